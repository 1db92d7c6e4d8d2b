
// Codes that are floats, and scales of one byte: powers of two, or floats.

fn scale_of(byte: u32) -> f32 {
    if (NV) { return e4m3(byte); }
    return bitcast<f32>(select(byte << 23u, 0x400000u, byte == 0u));
}

fn e4m3(byte: u32) -> f32 {
    let magnitude = select(bitcast<u32>(e4m3_magnitude(byte)), 0x7fc00000u, (byte & 0x7fu) == 0x7fu);
    return bitcast<f32>(magnitude | ((byte & 0x80u) << 24u));
}

// A float of 4 bits, whose zero has a sign.
fn e2m1(code: u32) -> f32 {
    let magnitude = bitcast<u32>(0.5 * doubled_e2m1(code & 7u));
    return bitcast<f32>(magnitude | ((code & 8u) << 28u));
}

fn weights_of(unit: u32, weights: ptr<function, array<f32, 32>>) {
    let per_word = select(8u, 4u, BYTES);
    for (var i = 0u; i < 32u; i += per_word) {
        let group = select(unit, 2u * unit + i / 16u, NV);
        // Of the dtype that is decoded to, as products are.
        let scale = product(scale_of(scales(p.scales_at + group)));
        let word = w_data[p.w_at + unit * (32u / per_word) + i / per_word];
        for (var j = 0u; j < per_word; j++) {
            var value = 0.0;
            if (BYTES) {
                value = e4m3((word >> (8u * j)) & 0xffu);
            } else {
                value = e2m1((word >> (4u * j)) & 15u);
            }
            (*weights)[i + j] = value * scale;
        }
    }
}
