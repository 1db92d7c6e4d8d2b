
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

// Rows are whole groups, which may be half units.
fn weights_in(width: u32, unit: u32) -> u32 {
    if (NV) { return min(32u, width - 32u * unit); }
    return 32u;
}

fn row_weights(row: u32, width: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let per_word = select(8u, 4u, BYTES);
    let count = weights_in(width, unit);
    for (var i = count; i < 32u; i++) { (*weights)[i] = 0.0; }
    for (var i = 0u; i < count; i += per_word) {
        // Halves of units are numbered: a word may be too small for the numbers of weights.
        let half = row * (width / 16u) + 2u * unit + i / 16u;
        // Of the dtype that is decoded to, as products are.
        let scale = product(scale_of(scales(p.scales_at + select(half / 2u, half, NV))));
        let word = w_data[p.w_at + half * (16u / per_word) + i % 16u / per_word];
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
