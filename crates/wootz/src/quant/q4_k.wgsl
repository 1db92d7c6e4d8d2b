// Codes of 4 or 5 bits, with a scale and a minimum of 6 bits for each 32.

fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    var both = vec2u(w_byte(at + 4u + unit), w_byte(at + 8u + unit)) & vec2u(63u);
    if (unit >= 4u) {
        let low = w_byte(at + 8u + unit);
        both = vec2u(low & 15u, low >> 4u)
            | ((vec2u(w_byte(at + unit), w_byte(at + 4u + unit)) >> vec2u(6u)) << vec2u(4u));
    }
    let scale = w_half(at) * f32(both.x);
    let minimum = w_half(at + 2u) * f32(both.y);
    var words: vec4u;
    var fifth_words: vec4u;
    for (var i = 0u; i < 32u; i += 4u) {
        if (i % 16u == 0u) {
            words = w_words(at + CODES + 32u * (unit / 2u) + i);
            if (FIFTH) { fifth_words = w_words(at + 16u + i); }
        }
        let word = words[i / 4u % 4u] >> (4u * (unit % 2u));
        var fifths = 0u;
        if (FIFTH) { fifths = fifth_words[i / 4u % 4u] >> unit; }
        for (var j = 0u; j < 4u; j++) {
            let code = ((word >> (8u * j)) & 15u) | (((fifths >> (8u * j)) & 1u) << 4u);
            (*weights)[i + j] = scale * f32(code) - minimum;
        }
    }
}
