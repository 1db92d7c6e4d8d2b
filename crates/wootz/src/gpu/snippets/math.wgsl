// Elementwise mathematics for f32, where WGSL's built-ins are missing, loosely
// specified or undefined at the edges. Drivers may reorder floats and assume there is no NaN, so
// every edge is decided on bits, no step depends on the order of a sum, and sums that must be
// exact are made of parts with few bits.

fn wz_isnan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn wz_isinf(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
fn wz_signbit(x: f32) -> bool { return (bitcast<u32>(x) >> 31u) != 0u; }
fn wz_iszero(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0u; }

// Infinity and NaN may not be constants, hence the variables.
fn wz_inf() -> f32 { var b = 0x7f800000u; return bitcast<f32>(b); }
fn wz_nan() -> f32 { var b = 0x7fc00000u; return bitcast<f32>(b); }

// x with the sign of y.
fn wz_copysign(x: f32, y: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(y) & 0x80000000u));
}

// x with its low 12 bits cleared: products of two such numbers are exact.
fn wz_head(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }

// Nearest integer, ties to even, keeping the sign of zero.
fn wz_rint(x: f32) -> f32 {
    let a = abs(x);
    var m = 8388608.0;
    let b = bitcast<u32>(x) & 0x7fffffffu;
    return select(wz_copysign(round(a), x), x, b >= bitcast<u32>(m));
}

// p * 2^n, in two steps so that n may leave the range of the exponent.
fn wz_scale(p: f32, n: i32) -> f32 {
    let h = n >> 1u;
    return p * bitcast<f32>(u32(h + 127) << 23u) * bitcast<f32>(u32(n - h + 127) << 23u);
}

// exp(x) - 1 for |x| <= ln(2) / 2.
fn wz_expm1_near(r: f32) -> f32 {
    let p = fma(fma(fma(fma(1.3950727e-3, r, 8.369025e-3), r, 4.1666202e-2), r, 0.16666518), r, 0.5);
    return fma(r * r, p, r);
}

// x - n ln 2, with the high part short enough for exact products. The clamp changes nothing; it
// keeps drivers from adding the two constants up, which would undo the split.
fn wz_minus_ln2(x: f32, n: f32) -> f32 {
    return fma(n, 2.1219444e-4, clamp(fma(n, -0.693359375, x), -2.0, 2.0));
}

fn wz_exp(x: f32) -> f32 {
    let y = clamp(x, -104.0, 89.0);
    let n = round(y * 1.44269504);
    let e = wz_scale(1.0 + wz_expm1_near(wz_minus_ln2(y, n)), i32(n));
    return select(e, x, wz_isnan(x));
}

fn wz_exp2(x: f32) -> f32 {
    let y = clamp(x, -151.0, 129.0);
    let n = round(y);
    let e = wz_scale(1.0 + wz_expm1_near((y - n) * 0.69314718), i32(n));
    return select(e, x, wz_isnan(x));
}

fn wz_expm1(x: f32) -> f32 {
    let y = clamp(x, -30.0, 89.0);
    let n = round(y * 1.44269504);
    let m = wz_expm1_near(wz_minus_ln2(y, n));
    // Half the scale, because 2^128 does not exist.
    let s = bitcast<f32>(u32(i32(n) + 126) << 23u);
    let e = select(2.0 * fma(s, m, s - 0.5), m, n == 0.0);
    return select(e, x, wz_isnan(x) || abs(x) < 1e-30);
}

struct WzLog { k: f32, f: f32 }

// x as 2^k (1 + f) with f in sqrt(1/2) - 1 .. sqrt(2) - 1, for positive finite x.
fn wz_log_split(x: f32) -> WzLog {
    var b = bitcast<u32>(x);
    var k = 0.0;
    if b < 0x800000u {
        // Subnormal: shifted on integers, because the device may flush it.
        let z = countLeadingZeros(b) - 8u;
        b = ((b << z) & 0x7fffffu) | 0x3f800000u;
        k = -126.0 - f32(z);
    }
    b = b - 0x3f3504f3u;
    k = k + f32(bitcast<i32>(b) >> 23u);
    return WzLog(k, bitcast<f32>((b & 0x7fffffu) + 0x3f3504f3u) - 1.0);
}

// log(1 + f) - f for f as above.
fn wz_log_rest(f: f32) -> f32 {
    let s = f / (2.0 + f);
    let z = s * s;
    let r = z * fma(fma(fma(0.2358214, z, 0.2853731), z, 0.40000334), z, 0.6666666);
    let h = 0.5 * f * f;
    return fma(s, h + r, -h);
}

// What a logarithm gives for zero, negative numbers, infinity and NaN.
fn wz_log_edges(x: f32, y: f32) -> f32 {
    let b = bitcast<u32>(x);
    if (b & 0x7fffffffu) == 0u { return -wz_inf(); }
    if b == 0x7f800000u || wz_isnan(x) { return x; }
    if b > 0x80000000u { return wz_nan(); }
    return y;
}

fn wz_log(x: f32) -> f32 {
    let l = wz_log_split(x);
    let y = fma(l.k, 0.693359375, fma(l.k, -2.1219444e-4, wz_log_rest(l.f)) + l.f);
    return wz_log_edges(x, y);
}

fn wz_log2(x: f32) -> f32 {
    let l = wz_log_split(x);
    return wz_log_edges(x, fma(l.f + wz_log_rest(l.f), 1.44269504, l.k));
}

fn wz_log10(x: f32) -> f32 {
    let l = wz_log_split(x);
    return wz_log_edges(x, fma(l.k, 0.30103, (l.f + wz_log_rest(l.f)) * 0.4342945));
}

fn wz_log1p(x: f32) -> f32 {
    // Where 1 + x would not be split, x itself is the exact argument.
    if x > -0.29 && x < 0.41 {
        return select(x + wz_log_rest(x), x, abs(x) < 1e-15);
    }
    if wz_isnan(x) { return x; }
    return wz_log(1.0 + x);
}

fn wz_logaddexp(a: f32, b: f32) -> f32 {
    if wz_isnan(a) || wz_isnan(b) { return wz_nan(); }
    let hi = max(a, b);
    if bitcast<u32>(a) == bitcast<u32>(b) { return select(hi + 0.69314718, hi, wz_isinf(a)); }
    if wz_isinf(a) || wz_isinf(b) { return select(select(b, a, wz_signbit(b)), select(a, b, wz_signbit(a)), wz_isinf(a)); }
    return hi + wz_log1p(wz_exp(-abs(a - b)));
}

fn wz_sigmoid(x: f32) -> f32 {
    let e = wz_exp(-abs(x));
    let y = select(1.0, e, wz_signbit(x)) / (1.0 + e);
    return select(y, x, wz_isnan(x));
}

fn wz_tanh(x: f32) -> f32 {
    let a = min(abs(x), 9.1);
    let z = a * a;
    let p = fma(fma(fma(fma(-5.7170484e-3, z, 2.065059e-2), z, -5.37435e-2), z, 0.13331491), z, -0.33333284);
    let large = 1.0 - 2.0 / (1.0 + wz_exp(2.0 * a));
    let y = wz_copysign(select(large, fma(a * z, p, a), a < 0.625), x);
    return select(y, x, wz_isnan(x));
}

fn wz_sinh(x: f32) -> f32 {
    let a = abs(x);
    let t = wz_expm1(min(a, 80.0));
    let h = wz_exp(0.5 * a);
    let y = select(0.5 * (t + t / (t + 1.0)), 0.5 * h * h, a > 80.0);
    return select(wz_copysign(y, x), x, wz_isnan(x) || a < 1e-30);
}

fn wz_cosh(x: f32) -> f32 {
    let a = abs(x);
    let e = wz_exp(min(a, 80.0));
    let h = wz_exp(0.5 * a);
    let y = select(0.5 * e + 0.5 / e, 0.5 * h * h, a > 80.0);
    return select(y, x, wz_isnan(x));
}

fn wz_asinh(x: f32) -> f32 {
    let a = abs(x);
    let m = min(a, 1e9);
    let near = wz_log1p(m + m * m / (1.0 + sqrt(m * m + 1.0)));
    let y = select(near, wz_log(a) + 0.69314718, a > 1e9);
    return select(wz_copysign(y, x), x, wz_isnan(x) || a < 1e-15);
}

fn wz_acosh(x: f32) -> f32 {
    if wz_isnan(x) || bitcast<u32>(x) == 0x7f800000u { return x; }
    if x < 1.0 { return wz_nan(); }
    let t = min(x, 1e9) - 1.0;
    return select(wz_log1p(t + sqrt(t * (t + 2.0))), wz_log(x) + 0.69314718, x > 1e9);
}

fn wz_atanh(x: f32) -> f32 {
    let b = bitcast<u32>(x) & 0x7fffffffu;
    if b == 0x3f800000u { return wz_copysign(wz_inf(), x); }
    if b > 0x3f800000u { return wz_nan(); }
    let a = abs(x);
    return select(wz_copysign(0.5 * wz_log1p(2.0 * a / (1.0 - a)), x), x, a < 1e-15);
}

fn wz_erf(x: f32) -> f32 {
    let a = min(abs(x), 4.0);
    let z = a * a;
    var p = fma(8.3824045e-5, z, -8.145601e-4);
    p = fma(fma(fma(fma(fma(p, z, 5.2012866e-3), z, -2.68595e-2), z, 0.11283697), z, -0.37612635), z, 0.12837917);
    var q = fma(-2.1095268e-5, a, 4.3446448e-4);
    q = fma(fma(fma(q, a, -4.171069e-3), a, 2.5119435e-2), a, -0.108280085);
    q = fma(fma(fma(q, a, -0.6333469), a, -1.1295149), a, 1.746811e-4);
    let y = wz_copysign(select(1.0 - wz_exp(q), fma(a, p, a), a < 0.92), x);
    return select(y, x, wz_isnan(x));
}

// Half of erfc(-x / sqrt(2)), with as many digits where that is next to nothing. The square is taken in
// two parts, because its rounding error would be one of the power's digits.
fn wz_normal_cdf(x: f32) -> f32 {
    let a = min(abs(x), 14.5);
    let t = 1.0 / fma(0.25, a, 1.0);
    var p = fma(fma(0.016892316, t, -0.064536676), t, 0.055878315);
    p = fma(fma(fma(p, t, 0.022612456), t, 0.017733416), t, 0.08385193);
    p = fma(fma(fma(fma(p, t, 0.07301256), t, 0.09528791), t, 0.09952145), t, 0.099746334);
    let h = wz_head(a);
    let d = 0.5 * (a - h) * (a + h);
    let rest = fma(d, fma(d, fma(d, -0.16666667, 0.5), -1.0), 1.0);
    let tail = wz_exp(-0.5 * h * h) * rest * (t * p);
    let z = a * a;
    var q = fma(fma(-7.654209e-6, z, 1.1348637e-4), z, -1.18633e-3);
    q = fma(fma(fma(q, z, 9.973323e-3), z, -0.06649036), z, 0.39894228);
    let y = select(select(1.0 - tail, tail, wz_signbit(x)), fma(wz_copysign(a, x), q, 0.5), a < 1.0);
    return select(y, x, wz_isnan(x));
}

// C's powf. The logarithm is carried in parts, since its error is multiplied by y.
fn wz_power(x: f32, y: f32) -> f32 {
    let bx = bitcast<u32>(x);
    let by = bitcast<u32>(y);
    let ax = bx & 0x7fffffffu;
    let ay = by & 0x7fffffffu;
    if bx == 0x3f800000u || ay == 0u { return 1.0; }
    if ax > 0x7f800000u || ay > 0x7f800000u { return wz_nan(); }
    let up = by < 0x80000000u;
    if ay == 0x7f800000u {
        if ax == 0x3f800000u { return 1.0; }
        return select(0.0, wz_inf(), (ax > 0x3f800000u) == up);
    }
    // 0: no integer, 1: even, 2: odd.
    var kind = 1u;
    if ay < 0x3f800000u {
        kind = 0u;
    } else if ay < 0x4b800000u {
        let shift = 150u - (ay >> 23u);
        let whole = (ay & 0x7fffffu) | 0x800000u;
        if (whole & ((1u << shift) - 1u)) != 0u { kind = 0u; } else { kind = 1u + ((whole >> shift) & 1u); }
    }
    let sign = select(1.0, -1.0, bx >= 0x80000000u && kind == 2u);
    if ax == 0u || ax == 0x7f800000u {
        return wz_copysign(select(0.0, wz_inf(), (ax == 0u) != up), sign);
    }
    if bx >= 0x80000000u && kind == 0u { return wz_nan(); }
    let s = wz_log_split(bitcast<f32>(ax));
    let rest = wz_log_rest(s.f);
    let near = round((s.f + rest) * 1.44269504 * 4096.0) * (1.0 / 4096.0);
    let fh = wz_head(s.f);
    // 1.4423828125 has twelve bits; the second constant is what it lacks to log2(e).
    let low = ((fh * 1.4423828125 - near) + (s.f - fh) * 1.4423828125) + (s.f * 3.1222839e-4 + rest * 1.44269504);
    let guess = y * (s.k + near + low);
    if guess > 200.0 { return wz_copysign(wz_inf(), sign); }
    if guess < -200.0 { return wz_copysign(0.0, sign); }
    let n = round(guess);
    let yh = wz_head(y);
    let yl = y - yh;
    let f = (((yh * s.k - n) + yh * near) + (yl * s.k + yl * near)) + y * low;
    return wz_copysign(wz_scale(1.0 + wz_expm1_near(f * 0.69314718), i32(n)), sign);
}

fn wz_mulhi(a: u32, b: u32) -> u32 {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let mid = ah * bl + ((al * bl) >> 16u);
    return ah * bh + (mid >> 16u) + (((mid & 0xffffu) + al * bh) >> 16u);
}

// The bits of 2/pi, 32 at a time, after 32 zeros.
fn wz_two_over_pi(i: u32) -> u32 {
    switch i {
        case 1u: { return 0xa2f9836eu; }
        case 2u: { return 0x4e441529u; }
        case 3u: { return 0xfc2757d1u; }
        case 4u: { return 0xf534ddc0u; }
        case 5u: { return 0xdb629599u; }
        case 6u: { return 0x3c439041u; }
        case 7u: { return 0xfe5163abu; }
        default: { return 0u; }
    }
}

struct WzTurn { q: u32, r: f32 }

// |x| as q quarter turns and the rest r, at most pi/4 either way; for finite x.
fn wz_turn(x: f32) -> WzTurn {
    let a = abs(x);
    if a < 10000.5 {
        // pi/2 in three parts, with clamps that keep them apart as in wz_minus_ln2.
        let n = round(a * 0.636619772);
        let r = clamp(fma(n, -1.5703125, a), -16.0, 16.0);
        return WzTurn(u32(n), fma(n, -7.5497899e-8, clamp(fma(n, -4.837512969970703e-4, r), -2.0, 2.0)));
    }
    // Of mantissa times 2/pi only the bits below 4 count: 96 bits from there are multiplied.
    let b = bitcast<u32>(x);
    let m = (b & 0x7fffffu) | 0x800000u;
    let skip = ((b >> 23u) & 255u) - 150u + 30u;
    let w = skip >> 5u;
    let s = skip & 31u;
    let t = 31u - s;
    let w0 = (wz_two_over_pi(w) << s) | ((wz_two_over_pi(w + 1u) >> 1u) >> t);
    let w1 = (wz_two_over_pi(w + 1u) << s) | ((wz_two_over_pi(w + 2u) >> 1u) >> t);
    let w2 = (wz_two_over_pi(w + 2u) << s) | ((wz_two_over_pi(w + 3u) >> 1u) >> t);
    let mid = m * w1 + wz_mulhi(m, w2);
    let carry = select(0u, 1u, mid < m * w1);
    let hi = m * w0 + wz_mulhi(m, w1) + carry;
    let f = bitcast<i32>((hi << 2u) | (mid >> 30u));
    let turns = f32(f) * 2.3283064e-10 + f32(mid << 2u) * 5.421011e-20;
    return WzTurn((hi >> 30u) + ((hi >> 29u) & 1u), turns * 1.57079633);
}

fn wz_sin_near(r: f32) -> f32 {
    let z = r * r;
    return fma(r * z, fma(fma(fma(2.7183114e-6, z, -1.9839335e-4), z, 8.3333293e-3), z, -0.16666667), r);
}

fn wz_cos_near(r: f32) -> f32 {
    let z = r * r;
    return fma(z * z, fma(fma(2.4433157e-5, z, -1.3887316e-3), z, 4.1666646e-2), fma(z, -0.5, 1.0));
}

fn wz_sin(x: f32) -> f32 {
    if (bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u { return wz_nan(); }
    let t = wz_turn(x);
    let y = select(wz_sin_near(t.r), wz_cos_near(t.r), (t.q & 1u) != 0u);
    let sign = (t.q << 30u) ^ bitcast<u32>(x);
    return bitcast<f32>(bitcast<u32>(y) ^ (sign & 0x80000000u));
}

fn wz_cos(x: f32) -> f32 {
    if (bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u { return wz_nan(); }
    let t = wz_turn(x);
    let y = select(wz_cos_near(t.r), wz_sin_near(t.r), (t.q & 1u) != 0u);
    return bitcast<f32>(bitcast<u32>(y) ^ (((t.q + 1u) << 30u) & 0x80000000u));
}

fn wz_tan(x: f32) -> f32 {
    if (bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u { return wz_nan(); }
    let t = wz_turn(x);
    let s = wz_sin_near(t.r);
    let c = wz_cos_near(t.r);
    let odd = (t.q & 1u) != 0u;
    let y = select(s, -c, odd) / select(c, s, odd);
    return bitcast<f32>(bitcast<u32>(y) ^ (bitcast<u32>(x) & 0x80000000u));
}

// arctan(a / b) for a, b >= 0; zero over zero is 0.
fn wz_atan_ratio(a: f32, b: f32) -> f32 {
    if a == 0.0 { return 0.0; }
    let steep = a > b * 2.4142136;
    let flat = a <= b * 0.41421356;
    let t = select(select(a - b, -b, steep), a, flat) / select(select(a + b, a, steep), b, flat);
    let base = select(select(0.78539816, 1.57079633, steep), 0.0, flat);
    let z = t * t;
    var p = fma(fma(0.0471865, z, -0.08462019), z, 0.110416159);
    p = fma(fma(fma(p, z, -0.142816892), z, 0.199998879), z, -0.333333322);
    return base + fma(t * z, p, t);
}

fn wz_atan(x: f32) -> f32 {
    if wz_isnan(x) { return x; }
    return wz_copysign(wz_atan_ratio(min(abs(x), 1e30), 1.0), x);
}

// C's atan2.
fn wz_arctan2(y: f32, x: f32) -> f32 {
    if wz_isnan(x) || wz_isnan(y) { return wz_nan(); }
    var a = abs(y);
    var b = abs(x);
    if wz_isinf(y) || wz_isinf(x) {
        a = select(0.0, 1.0, wz_isinf(y));
        b = select(0.0, 1.0, wz_isinf(x));
    } else {
        // Kept away from both ends of the range, where sums overflow and quotients are flushed.
        let s = select(select(1.0, 1.8446744e19, max(a, b) < 1e-18), 5.4210109e-20, max(a, b) > 1e18);
        a = a * s;
        b = b * s;
    }
    let r = wz_atan_ratio(a, b);
    return wz_copysign(select(r, 3.14159265 - r, wz_signbit(x)), y);
}

// arcsin(|x|) up to 1/2, above that pi/2 - arcsin(|x|).
fn wz_asin_part(x: f32) -> f32 {
    let a = abs(x);
    let h = max(fma(a, -0.5, 0.5), 0.0);
    let z = select(a * a, h, a > 0.5);
    let s = select(a, 2.0 * sqrt(h), a > 0.5);
    var p = fma(fma(0.037936056, z, 0.01410157), z, 0.031911493);
    p = fma(fma(fma(p, z, 0.044501697), z, 0.075006123), z, 0.166666568);
    return fma(s * z, p, s);
}

fn wz_asin(x: f32) -> f32 {
    if wz_isnan(x) || abs(x) > 1.0 { return wz_nan(); }
    let y = wz_asin_part(x);
    return wz_copysign(select(y, 1.57079633 - y, abs(x) > 0.5), x);
}

fn wz_acos(x: f32) -> f32 {
    if wz_isnan(x) || abs(x) > 1.0 { return wz_nan(); }
    let y = wz_asin_part(x);
    if abs(x) <= 0.5 { return 1.57079633 - wz_copysign(y, x); }
    return select(y, 3.14159265 - y, wz_signbit(x));
}

// A number whose order is that of the floats; both zeros are 0. Not for NaN.
fn wz_order(x: f32) -> i32 {
    let b = bitcast<i32>(x);
    return select(b, -(b & 0x7fffffff), b < 0);
}

fn wz_less(a: f32, b: f32) -> bool {
    return !wz_isnan(a) && !wz_isnan(b) && wz_order(a) < wz_order(b);
}

fn wz_less_equal(a: f32, b: f32) -> bool {
    return !wz_isnan(a) && !wz_isnan(b) && wz_order(a) <= wz_order(b);
}

fn wz_equal(a: f32, b: f32) -> bool {
    return !wz_isnan(a) && !wz_isnan(b) && wz_order(a) == wz_order(b);
}

// NaN if either is; of two zeros the second.
fn wz_maximum(a: f32, b: f32) -> f32 { return select(b, a, wz_isnan(a) || wz_less(b, a)); }
fn wz_minimum(a: f32, b: f32) -> f32 { return select(b, a, wz_isnan(a) || wz_less(a, b)); }

// -1, 0 or 1; 0 for NaN.
fn wz_sign(x: f32) -> f32 {
    return select(select(1.0, -1.0, wz_signbit(x)), 0.0, wz_isnan(x) || wz_iszero(x));
}

// Exact for every quotient: long division on the mantissas, one bit of the quotient a step.
fn wz_remainder_f32(a: f32, b: f32) -> f32 {
    let ua = bitcast<u32>(a) & 0x7fffffffu;
    let ub = bitcast<u32>(b) & 0x7fffffffu;
    if ua >= 0x7f800000u || ub > 0x7f800000u || ub == 0u { return wz_nan(); }
    let opposite = ((bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u) != 0u;
    var m = (ua & 0x7fffffu) | select(0u, 0x800000u, ua >= 0x800000u);
    let d = (ub & 0x7fffffu) | select(0u, 0x800000u, ub >= 0x800000u);
    let eb = max(ub >> 23u, 1u);
    var r = bitcast<f32>(ua);
    if ua >= ub {
        for (var e = max(ua >> 23u, 1u); e > eb; e = e - 1u) {
            m = select(m, m - d, m >= d) << 1u;
        }
        m = select(m, m - d, m >= d);
        if m == 0u { return wz_copysign(0.0, a); }
        // Back to a float: up to a set leading bit, or to the smallest exponent.
        let up = min(countLeadingZeros(m) - 8u, eb - 1u);
        m = m << up;
        let e = select(0u, eb - up, m >= 0x800000u);
        r = bitcast<f32>((m & 0x7fffffu) | (e << 23u));
    }
    if ua == 0u { return a; }
    return select(wz_copysign(r, a), wz_copysign(bitcast<f32>(ub) - r, b), opposite);
}
