// Codes of 3 bits, with a scale of 6 bits for each 16.

fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let d = w_half(at + 108u);
    var words: vec4u;
    var high_words: vec4u;
    for (var i = 0u; i < 32u; i += 4u) {
        if (i % 16u == 0u) {
            words = w_words(at + 32u + 32u * (unit / 4u) + i);
            high_words = w_words(at + i);
        }
        let group = 2u * unit + i / 16u;
        let low = (w_byte(at + 96u + group % 8u) >> (4u * (group / 8u))) & 15u;
        let high = (w_byte(at + 104u + group % 4u) >> (2u * (group / 4u))) & 3u;
        let scale = d * (f32(low | (high << 4u)) - 32.0);
        let word = words[i / 4u % 4u] >> (2u * (unit % 4u));
        let highs = high_words[i / 4u % 4u] >> unit;
        for (var j = 0u; j < 4u; j++) {
            let code = ((word >> (8u * j)) & 3u) | (((highs >> (8u * j)) & 1u) << 2u);
            (*weights)[i + j] = scale * (f32(code) - 4.0);
        }
    }
}
