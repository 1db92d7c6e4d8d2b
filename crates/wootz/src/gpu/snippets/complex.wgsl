// Functions of complex numbers, which are vectors of a real and an imaginary part. Formulas are those
// without overflow and cancellation that single precision needs.

fn wz_z_mul(a: vec2f, b: vec2f) -> vec2f { return vec2f(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
fn wz_z_conj(a: vec2f) -> vec2f { return vec2f(a.x, -a.y); }
fn wz_z_turned(a: vec2f) -> vec2f { return vec2f(-a.y, a.x); }
fn wz_z_unturned(a: vec2f) -> vec2f { return vec2f(a.y, -a.x); }
fn wz_z_isnan(a: vec2f) -> bool { return wz_isnan(a.x) || wz_isnan(a.y); }
fn wz_z_isinf(a: vec2f) -> bool { return wz_isinf(a.x) || wz_isinf(a.y); }
fn wz_z_iszero(a: vec2f) -> bool { return wz_iszero(a.x) && wz_iszero(a.y); }
fn wz_z_equal(a: vec2f, b: vec2f) -> bool { return wz_equal(a.x, b.x) && wz_equal(a.y, b.y); }
fn wz_z_less(a: vec2f, b: vec2f) -> bool {
    return wz_less(a.x, b.x) || (wz_equal(a.x, b.x) && wz_less(a.y, b.y));
}
fn wz_z_less_equal(a: vec2f, b: vec2f) -> bool {
    return wz_less(a.x, b.x) || (wz_equal(a.x, b.x) && wz_less_equal(a.y, b.y));
}
fn wz_z_maximum(a: vec2f, b: vec2f) -> vec2f {
    return select(b, a, wz_z_isnan(a) || wz_z_less(b, a));
}
fn wz_z_minimum(a: vec2f, b: vec2f) -> vec2f {
    return select(b, a, wz_z_isnan(a) || wz_z_less(a, b));
}

// The power of two of a number's size, so that scaling by it is exact; 1 for what has none.
fn wz_z_scale(a: vec2f) -> f32 {
    let e = bitcast<u32>(max(abs(a.x), abs(a.y))) & 0x7f800000u;
    return select(bitcast<f32>(e), 1.0, e == 0u || e >= 0x7f000000u);
}

fn wz_z_abs(a: vec2f) -> f32 {
    if wz_z_isinf(a) { return wz_inf(); }
    if wz_z_isnan(a) { return wz_nan(); }
    let large = max(abs(a.x), abs(a.y));
    if wz_iszero(large) { return 0.0; }
    let s = select(wz_z_scale(a), 1.7014118e38, large >= 1.7014118e38);
    // The root, and what it lacks: squares are sums of two numbers, so that the result is rounded once.
    let p = wz_z_square(large / s);
    let q = wz_z_square(min(abs(a.x), abs(a.y)) / s);
    let sum = p.x + q.x;
    let rest = ((p.x - sum) + q.x) + (p.y + q.y);
    let root = sqrt(sum);
    if wz_iszero(root) { return large; }
    let back = wz_z_square(root);
    return s * (root + ((sum - back.x) - back.y + rest) / (2.0 * root));
}

// The square of a number and its rounding error, by products of its halves, which are exact.
fn wz_z_square(x: f32) -> vec2f {
    let h = wz_head(x);
    let l = x - h;
    let square = x * x;
    return vec2f(square, ((h * h - square) + 2.0 * h * l) + l * l);
}

fn wz_z_div(a: vec2f, b: vec2f) -> vec2f {
    if wz_z_iszero(b) { return a / abs(b.x); }
    if wz_z_isinf(b) && !wz_z_isinf(a) && !wz_z_isnan(a) && !wz_z_isnan(b) { return vec2f(); }
    let s = wz_z_scale(b);
    let d = b / s;
    let n = d.x * d.x + d.y * d.y;
    let t = a / s;
    return vec2f(t.x * d.x + t.y * d.y, t.y * d.x - t.x * d.y) / n;
}

fn wz_z_sign(a: vec2f) -> vec2f {
    if wz_z_iszero(a) { return a; }
    return a / wz_z_abs(a);
}

fn wz_z_exp(a: vec2f) -> vec2f {
    // Fast math knows no NaN, so it is looked for before anything is computed.
    if wz_isnan(a.x) { return vec2f(wz_nan(), select(wz_nan(), a.y, wz_iszero(a.y))); }
    let size = wz_exp(a.x);
    if wz_iszero(size) { return vec2f(); }
    if wz_iszero(a.y) { return vec2f(size, a.y); }
    if wz_isnan(a.y) { return vec2f(wz_nan()); }
    return vec2f(size * wz_cos(a.y), size * wz_sin(a.y));
}

// The square of the distance from zero, less one: exact products, so that little cancels near it.
fn wz_z_excess(a: vec2f) -> f32 {
    let large = max(abs(a.x), abs(a.y));
    let small = min(abs(a.x), abs(a.y));
    return (large - 1.0) * (large + 1.0) + small * small;
}

fn wz_z_log(a: vec2f) -> vec2f {
    let size = wz_z_abs(a);
    let near = size > 0.5 && size < 2.0;
    let re = select(wz_log(size), 0.5 * wz_log1p(wz_z_excess(a)), near);
    return vec2f(re, wz_arctan2(a.y, a.x));
}

fn wz_z_log1p(a: vec2f) -> vec2f {
    let b = vec2f(1.0 + a.x, a.y);
    let near = abs(a.x) < 0.5 && abs(a.y) < 1.0;
    let re = select(wz_z_log(b).x, 0.5 * wz_log1p(a.x * (2.0 + a.x) + a.y * a.y), near);
    return vec2f(re, wz_arctan2(b.y, b.x));
}

fn wz_z_logaddexp(a: vec2f, b: vec2f) -> vec2f {
    let swap = wz_z_less(a, b);
    let low = select(b, a, swap);
    let high = select(a, b, swap);
    if wz_z_isnan(a) || wz_z_isnan(b) { return vec2f(wz_nan()); }
    if (wz_isinf(low.x) && low.x < 0.0) || (wz_isinf(high.x) && high.x > 0.0) { return high; }
    return high + wz_z_log1p(wz_z_exp(low - high));
}

fn wz_z_sqrt(a: vec2f) -> vec2f {
    if wz_z_iszero(a) { return vec2f(0.0, a.y); }
    let positive = !wz_signbit(a.x);
    if wz_isinf(a.y) { return vec2f(wz_inf(), a.y); }
    if wz_isinf(a.x) && !wz_isnan(a.y) {
        let other = wz_copysign(select(wz_inf(), 0.0, positive), a.y);
        return vec2f(select(0.0, wz_inf(), positive), other);
    }
    // By a power of four.
    let half = wz_exp2(wz_rint(0.25 * wz_log2(max(max(abs(a.x), abs(a.y)), 1.2e-38))));
    let s = half * half;
    let b = a / s / s;
    let large = sqrt((wz_z_abs(b) + abs(b.x)) * 0.5);
    let small = abs(b.y) / (2.0 * large);
    let other = wz_copysign(select(large, small, positive), a.y);
    return s * vec2f(select(small, large, positive), other);
}

fn wz_z_power(a: vec2f, b: vec2f) -> vec2f {
    if wz_z_isnan(a) || wz_z_isnan(b) { return vec2f(wz_nan()); }
    return wz_z_exp(wz_z_mul(b, wz_z_log(a)));
}

fn wz_z_sinh(a: vec2f) -> vec2f {
    if wz_iszero(a.y) { return vec2f(wz_sinh(a.x), a.y); }
    if wz_z_isnan(a) { return vec2f(wz_nan()); }
    return vec2f(wz_sinh(a.x) * wz_cos(a.y), wz_cosh(a.x) * wz_sin(a.y));
}

fn wz_z_cosh(a: vec2f) -> vec2f {
    if wz_iszero(a.y) { return vec2f(wz_cosh(a.x), wz_copysign(1.0, a.x) * a.y); }
    if wz_z_isnan(a) { return vec2f(wz_nan()); }
    return vec2f(wz_cosh(a.x) * wz_cos(a.y), wz_sinh(a.x) * wz_sin(a.y));
}

fn wz_z_tanh(a: vec2f) -> vec2f {
    let s = wz_sin(a.y);
    let c = wz_cos(a.y);
    if abs(a.x) > 9.0 {
        // The square of e^-x and not e^-2x: the exponential is less exact farther out.
        let decay = wz_exp(-abs(a.x));
        return vec2f(wz_copysign(1.0, a.x), 4.0 * s * c * decay * decay);
    }
    let sh = wz_sinh(a.x);
    let n = sh * sh + c * c;
    return vec2f(sh * wz_cosh(a.x), s * c) / n;
}

fn wz_z_asin(a: vec2f) -> vec2f {
    let below = wz_z_sqrt(vec2f(1.0 - a.x, -a.y));
    let above = wz_z_sqrt(vec2f(1.0 + a.x, a.y));
    let angle = wz_arctan2(a.x, wz_z_mul(below, above).x);
    return vec2f(angle, wz_asinh(wz_z_mul(wz_z_conj(below), above).y));
}

fn wz_z_acos(a: vec2f) -> vec2f {
    let below = wz_z_sqrt(vec2f(1.0 - a.x, -a.y));
    let above = wz_z_sqrt(vec2f(1.0 + a.x, a.y));
    let angle = 2.0 * wz_arctan2(below.x, above.x);
    return vec2f(angle, wz_asinh(wz_z_mul(wz_z_conj(above), below).y));
}

fn wz_z_acosh(a: vec2f) -> vec2f {
    let below = wz_z_sqrt(vec2f(a.x - 1.0, a.y));
    let above = wz_z_sqrt(vec2f(a.x + 1.0, a.y));
    let angle = 2.0 * wz_arctan2(below.y, above.x);
    return vec2f(wz_asinh(wz_z_mul(wz_z_conj(below), above).x), angle);
}

fn wz_z_atanh(a: vec2f) -> vec2f {
    // In the right half of the plane, where nothing cancels; the left one is its mirror image.
    let x = abs(a.x);
    let beside = (1.0 - x) * (1.0 - x) + a.y * a.y;
    let re = wz_copysign(0.25 * wz_log1p(4.0 * x / beside), a.x);
    return vec2f(re, 0.5 * wz_arctan2(2.0 * a.y, (1.0 - a.x) * (1.0 + a.x) - a.y * a.y));
}
