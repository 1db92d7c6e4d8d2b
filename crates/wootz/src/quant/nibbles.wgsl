// Codes of 4 or 5 bits with a scale, or with a scale and a minimum.

fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let d = w_half(at);
    var fifths = 0u;
    if (FIFTH) { fifths = w_word(at + FIFTHS); }
    var minimum = 0.0;
    if (MINIMUM) { minimum = w_half(at + 2u); }
    let words = w_words(at + CODES);
    for (var i = 0u; i < 16u; i += 4u) {
        let word = words[i / 4u];
        for (var j = 0u; j < 4u; j++) {
            let byte = (word >> (8u * j)) & 0xffu;
            let low = f32((byte & 15u) | (((fifths >> (i + j)) & 1u) << 4u));
            let high = f32((byte >> 4u) | (((fifths >> (i + j + 16u)) & 1u) << 4u));
            if (MINIMUM) {
                (*weights)[i + j] = d * low + minimum;
                (*weights)[i + j + 16u] = d * high + minimum;
            } else {
                (*weights)[i + j] = d * (low - HALF);
                (*weights)[i + j + 16u] = d * (high - HALF);
            }
        }
    }
}
