// Three values in 2 bits.

fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let d = w_half(at + 64u);
    for (var i = 0u; i < 32u; i += 4u) {
        let word = w_word(at + 32u * (unit / 4u) + i) >> (2u * (unit % 4u));
        for (var j = 0u; j < 4u; j++) {
            (*weights)[i + j] = d * (f32((word >> (8u * j)) & 3u) - 1.0);
        }
    }
}
