// Functions with the very bits that MLX computes on a CPU, because random numbers are made of
// them. MLX calls the C library, whose logarithm is evaluated in doubles and rounded once: here in
// 64-bit integers, as pairs of a high and a low word, which no driver can reorder or fuse.

fn wz_c_wide(a: u32, b: u32) -> vec2u { return vec2u(wz_mulhi(a, b), a * b); }

fn wz_c_add(a: vec2u, b: vec2u) -> vec2u {
    let low = a.y + b.y;
    return vec2u(a.x + b.x + select(0u, 1u, low < a.y), low);
}

fn wz_c_subtract(a: vec2u, b: vec2u) -> vec2u {
    return vec2u(a.x - b.x - select(0u, 1u, a.y < b.y), a.y - b.y);
}

fn wz_c_negate(a: vec2u) -> vec2u { return wz_c_subtract(vec2u(0u, 0u), a); }

// For places below 32, and not 0 to the right.
fn wz_c_left(a: vec2u, places: u32) -> vec2u {
    return vec2u((a.x << places) | ((a.y >> 1u) >> (31u - places)), a.y << places);
}

fn wz_c_right(a: vec2u, places: u32) -> vec2u {
    return vec2u(a.x >> places, (a.y >> places) | (a.x << (32u - places)));
}

// The high 64 bits of a product.
fn wz_c_product(a: vec2u, b: vec2u) -> vec2u {
    let m = wz_c_wide(a.x, b.y);
    let n = wz_c_wide(a.y, b.x);
    let once = m.y + n.y;
    let twice = once + wz_mulhi(a.y, b.y);
    let carry = select(0u, 1u, once < m.y) + select(0u, 1u, twice < once);
    let high = wz_c_add(wz_c_wide(a.x, b.x), vec2u(0u, m.x));
    return wz_c_add(wz_c_add(high, vec2u(0u, n.x)), vec2u(0u, carry));
}

// magnitude * 2^exponent as the nearest float, ties to even, with the sign bit of `sign`.
fn wz_c_round(magnitude: vec2u, exponent: i32, sign: u32) -> f32 {
    var m = magnitude;
    var e = exponent + 190;
    if m.x == 0u {
        m = vec2u(m.y, 0u);
        e = e - 32;
    }
    if m.x == 0u { return 0.0; }
    let z = countLeadingZeros(m.x);
    m = wz_c_left(m, z);
    let mantissa = m.x >> 8u;
    let above = ((m.x & 127u) | m.y | (mantissa & 1u)) != 0u;
    let up = select(0u, 1u, (m.x & 128u) != 0u && above);
    // The leading bit of the mantissa adds one to the exponent, and so does a carry.
    let bits = (u32(e - i32(z) - 1) << 23u) + mantissa + up;
    return bitcast<f32>(bits | (sign & 0x80000000u));
}

// Of a sixteenth of the mantissas: an inverse with 60 binary places, and its logarithm with 56.
fn wz_c_log_constants(i: u32) -> vec4u {
    switch i {
        case 0u: { return vec4u(0x1661ec79u, 0xf8f3be00u, 0xffaa1021u, 0xfdcd5488u); }
        case 1u: { return vec4u(0x1571ed4au, 0xaf883d00u, 0xffb5043du, 0x60fe4894u); }
        case 2u: { return vec4u(0x149539f0u, 0xf010b000u, 0xffbf8546u, 0x02bb1664u); }
        case 3u: { return vec4u(0x13c995b0u, 0xb8038500u, 0xffc99c4eu, 0xb2fbb62eu); }
        case 4u: { return vec4u(0x130d190cu, 0x8864a500u, 0xffd35161u, 0xea7f1150u); }
        case 5u: { return vec4u(0x125e227bu, 0x0b8ea000u, 0xffdcaba8u, 0x70c6fe00u); }
        case 6u: { return vec4u(0x11bb4a4au, 0x1a343f00u, 0xffe5b189u, 0x3173f1a2u); }
        case 7u: { return vec4u(0x112358f0u, 0x8ae5ba00u, 0xffee68c3u, 0xa59ee334u); }
        case 8u: { return vec4u(0x10953f41u, 0x9900a700u, 0xfff6d685u, 0xe38f79f1u); }
        case 9u: { return vec4u(0x10000000u, 0x00000000u, 0x00000000u, 0x00000000u); }
        case 10u: { return vec4u(0x0f30467eu, 0xcd23d600u, 0x000d52d5u, 0x2ef92cc2u); }
        case 11u: { return vec4u(0x0e52598fu, 0x81355000u, 0x001c5e53u, 0xaa362eb4u); }
        case 12u: { return vec4u(0x0d901b2bu, 0xb57e7300u, 0x002a4dcau, 0xee41b610u); }
        case 13u: { return vec4u(0x0ce168b1u, 0xd0d51680u, 0x0037850cu, 0x1a448ee0u); }
        case 14u: { return vec4u(0x0c437301u, 0xbc20f680u, 0x0044162fu, 0x2281fb84u); }
        default: { return vec4u(0x0bb3ee7au, 0xa9a43100u, 0x005010c1u, 0x5edbb824u); }
    }
}

fn wz_c_log(x: f32) -> f32 {
    var b = bitcast<u32>(x);
    if b == 0u || b >= 0x7f800000u { return wz_log_edges(x, x); }
    var shifted = 0u;
    if b < 0x800000u {
        // Subnormal: given an exponent that floats do not have.
        shifted = countLeadingZeros(b) - 8u;
        b = ((b << shifted) & 0x7fffffu) | 0x800000u;
    }
    let part = b - 0x3f330000u;
    let i = (part >> 19u) & 15u;
    let k = (bitcast<i32>(part) >> 23u) - i32(shifted);
    let z = b - (part & 0xff800000u);
    let constants = wz_c_log_constants(i);
    // r = z * inverse - 1 with 60 places.
    let m = ((z & 0x7fffffu) | 0x800000u) << ((z >> 23u) - 126u);
    let high = wz_c_left(wz_c_wide(m, constants.x), 8u);
    var r = wz_c_add(high, wz_c_right(wz_c_wide(m, constants.y), 24u));
    r = wz_c_subtract(r, vec2u(0x10000000u, 0u));
    let negative = r.x >= 0x80000000u;
    // log(1 + r) = r - r²(c - br + ar²), the bracket with 64 places.
    let size = wz_c_left(select(r, wz_c_negate(r), negative), 8u);
    let square = wz_c_product(size, size);
    let linear = wz_c_right(wz_c_product(vec2u(0x555d6c2fu, 0x802da800u), size), 4u);
    var p = vec2u(0x7ffffbc8u, 0x29048c00u);
    p = select(wz_c_subtract(p, linear), wz_c_add(p, linear), negative);
    p = wz_c_add(p, wz_c_right(wz_c_product(vec2u(0x403a8d22u, 0xe20cd000u), square), 8u));
    let rest = wz_c_product(p, square);
    var y: vec2u;
    var places = 66;
    if i == 9u && k == 0 {
        // Near 1 nothing is added, and r is exact: more places for a small result.
        y = wz_c_subtract(wz_c_left(r, 6u), wz_c_right(rest, 6u));
    } else {
        places = 56;
        let count = u32(abs(k));
        var base = wz_c_wide(count, 0xf7d1cf78u);
        base = wz_c_add(base, vec2u(count * 0x00b17217u, 0u));
        base = select(base, wz_c_negate(base), k < 0);
        base = wz_c_add(base, constants.zw);
        let down = vec2u(bitcast<u32>(bitcast<i32>(r.x) >> 4u), (r.y >> 4u) | (r.x << 28u));
        y = wz_c_subtract(wz_c_add(base, down), wz_c_right(rest, 16u));
    }
    let below = y.x >= 0x80000000u;
    return wz_c_round(select(y, wz_c_negate(y), below), -places, y.x);
}

// log(1 + x) in single precision, step by step as the C library.
fn wz_c_log1p(x: f32) -> f32 {
    let b = bitcast<u32>(x);
    if b >= 0xbf800000u || (b >= 0x7f800000u && b < 0x80000000u) || abs(x) < 1.8626451e-9 {
        return wz_log1p(x);
    }
    var f = x;
    var k = 0.0;
    var c = 0.0;
    if !(b < 0x3ed413d7u || (b >= 0x80000000u && b <= 0xbe95f61fu)) {
        let u = select(1.0 + x, x, abs(x) >= 9.007199e15);
        let exponent = i32(bitcast<u32>(u) >> 23u) - 127;
        c = select(x - (u - 1.0), 1.0 - (u - x), exponent > 0) / u;
        c = select(c, 0.0, abs(x) >= 9.007199e15);
        let mantissa = bitcast<u32>(u) & 0x7fffffu;
        let low = mantissa < 0x3504f7u;
        k = f32(exponent + select(1, 0, low));
        f = bitcast<f32>(mantissa | select(0x3f000000u, 0x3f800000u, low)) - 1.0;
        if select((0x800000u - mantissa) >> 2u, mantissa, low) == 0u {
            let r = 0.5 * f * f * (1.0 - 0.6666667 * f);
            let near = k * 0.69313812256 - ((r - (k * 9.0580006145e-6 + c)) - f);
            return select(near, k * 0.69313812256 + (c + k * 9.0580006145e-6), f == 0.0);
        }
    }
    let half = 0.5 * f * f;
    let s = f / (2.0 + f);
    let z = s * s;
    var r = 0.15313838422 + z * 0.1479819864;
    r = 0.4000000059 + z * (0.28571429849 + z * (0.22222198546 + z * (0.1818357259 + z * r)));
    r = z * (0.66666668653 + z * r);
    if k == 0.0 { return f - (half - s * (half + r)); }
    return k * 0.69313812256 - ((half - (s * (half + r) + (k * 9.0580006145e-6 + c))) - f);
}

// Shifted to the right by any number of places; what falls out sets the last bit.
fn wz_c_sticky(a: vec2u, places: u32) -> vec2u {
    if places == 0u { return a; }
    if places > 63u { return vec2u(0u, select(0u, 1u, (a.x | a.y) != 0u)); }
    if places > 31u {
        let n = places - 32u;
        let lost = (a.y | ((a.x << 1u) << (31u - n))) != 0u;
        let kept = a.x >> n;
        return vec2u(0u, kept | select(0u, 1u, lost || (n > 0u && (a.x & ((1u << n) - 1u)) != 0u)));
    }
    return wz_c_right(a, places) | vec2u(0u, select(0u, 1u, (a.y << (32u - places)) != 0u));
}

// a * b + c rounded once, for numbers whose product, sum and result are normal or zero.
fn wz_c_fma(a: f32, b: f32, c: f32) -> f32 {
    let x = bitcast<u32>(a);
    let y = bitcast<u32>(b);
    let z = bitcast<u32>(c);
    let ex = (x >> 23u) & 255u;
    let ey = (y >> 23u) & 255u;
    let ez = (z >> 23u) & 255u;
    if ex == 0u || ey == 0u { return c; }
    if ez == 0u { return a * b; }
    // Both with 62 bits, and their difference in exponents shifted away.
    var product = wz_c_left(wz_c_wide((x & 0x7fffffu) | 0x800000u, (y & 0x7fffffu) | 0x800000u), 14u);
    var term = vec2u(((z & 0x7fffffu) | 0x800000u) << 6u, 0u);
    let product_exponent = i32(ex + ey) - 314;
    let term_exponent = i32(ez) - 188;
    let apart = product_exponent - term_exponent;
    if apart >= 0 { term = wz_c_sticky(term, u32(apart)); } else { product = wz_c_sticky(product, u32(-apart)); }
    let exponent = max(product_exponent, term_exponent);
    let sign = x ^ y;
    if ((sign ^ z) & 0x80000000u) == 0u { return wz_c_round(wz_c_add(product, term), exponent, z); }
    let less = product.x < term.x || (product.x == term.x && product.y < term.y);
    if less { return wz_c_round(wz_c_subtract(term, product), exponent, z); }
    return wz_c_round(wz_c_subtract(product, term), exponent, sign);
}

// The inverse error function as MLX computes it: two polynomials in log(1 - a²).
fn wz_c_erfinv(a: f32) -> f32 {
    let b = bitcast<u32>(a) & 0x7fffffffu;
    if b == 0x3f800000u { return wz_copysign(wz_inf(), a); }
    if b > 0x3f800000u { return wz_nan(); }
    let t = wz_c_log(wz_c_fma(a, -a, 1.0));
    let far = t < -6.125;
    var p = select(5.43877832e-9, 0.0, far);
    p = wz_c_fma(p, t, select(1.43285448e-7, 3.03697567e-10, far));
    p = wz_c_fma(p, t, select(1.22774793e-6, 2.93243101e-8, far));
    p = wz_c_fma(p, t, select(1.12963626e-7, 1.22150334e-6, far));
    p = wz_c_fma(p, t, select(-5.61530760e-5, 2.84108955e-5, far));
    p = wz_c_fma(p, t, select(-1.47697632e-4, 3.93552968e-4, far));
    p = wz_c_fma(p, t, select(2.31468678e-3, 3.02698812e-3, far));
    p = wz_c_fma(p, t, select(1.15392581e-2, 4.83185798e-3, far));
    p = wz_c_fma(p, t, select(-2.32015476e-1, -2.64646143e-1, far));
    p = wz_c_fma(p, t, select(8.86226892e-1, 8.40016484e-1, far));
    return a * p;
}
