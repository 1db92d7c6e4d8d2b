// Floats of 4 and 8 bits.

// Twice the value of a float of 4 bits; zero has no sign.
fn doubled_e2m1(code: u32) -> f32 {
    let magnitude = f32((0xc8643210u >> (4u * (code & 7u))) & 15u);
    return select(magnitude, -magnitude, code > 8u);
}

// A float of 8 bits without its sign, NaN not looked at.
fn e4m3_magnitude(byte: u32) -> f32 {
    let fraction = byte & 7u;
    let exponent = (byte >> 3u) & 15u;
    if (exponent == 0u) { return f32(fraction) * bitcast<f32>(118u << 23u); }
    return bitcast<f32>(((exponent + 120u) << 23u) | (fraction << 20u));
}
