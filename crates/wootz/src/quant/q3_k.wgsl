// Codes of 3 bits, with a scale of 6 bits for each 16.

fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let d = w_half(at + 108u);
    for (var i = 0u; i < 32u; i += 4u) {
        let group = 2u * unit + i / 16u;
        let low = (w_byte(at + 96u + group % 8u) >> (4u * (group / 8u))) & 15u;
        let high = (w_byte(at + 104u + group % 4u) >> (2u * (group / 4u))) & 3u;
        let scale = d * (f32(low | (high << 4u)) - 32.0);
        let word = w_word(at + 32u + 32u * (unit / 4u) + i) >> (2u * (unit % 4u));
        let highs = w_word(at + i) >> unit;
        for (var j = 0u; j < 4u; j++) {
            let code = ((word >> (8u * j)) & 3u) | (((highs >> (8u * j)) & 1u) << 2u);
            (*weights)[i + j] = scale * (f32(code) - 4.0);
        }
    }
}
