// Codes of 6 bits, with a scale of 8 bits for each 16.

fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let d = w_half(at + 208u);
    let part = unit % 4u;
    var low_words: vec4u;
    var high_words: vec4u;
    for (var i = 0u; i < 32u; i += 4u) {
        if (i % 16u == 0u) {
            low_words = w_words(at + 64u * (unit / 4u) + 32u * (part % 2u) + i);
            high_words = w_words(at + 128u + 32u * (unit / 4u) + i);
        }
        let group = at + 192u + 2u * unit + i / 16u;
        let scale = d * w_signed_byte(w_byte(group), 0u);
        let low = low_words[i / 4u % 4u] >> (4u * (part / 2u));
        let high = high_words[i / 4u % 4u] >> (2u * part);
        for (var j = 0u; j < 4u; j++) {
            let code = ((low >> (8u * j)) & 15u) | (((high >> (8u * j)) & 3u) << 4u);
            (*weights)[i + j] = scale * (f32(code) - 32.0);
        }
    }
}
