// Codes of 2 bits, with a scale and a minimum of 4 bits for each 16.

fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let d = w_half(at + 80u);
    let least = w_half(at + 82u);
    var words: vec4u;
    for (var i = 0u; i < 32u; i += 4u) {
        if (i % 16u == 0u) { words = w_words(at + 16u + 32u * (unit / 4u) + i); }
        let both = w_byte(at + 2u * unit + i / 16u);
        let scale = d * f32(both & 15u);
        let minimum = least * f32(both >> 4u);
        let word = words[i / 4u % 4u] >> (2u * (unit % 4u));
        for (var j = 0u; j < 4u; j++) {
            (*weights)[i + j] = scale * f32((word >> (8u * j)) & 3u) - minimum;
        }
    }
}
