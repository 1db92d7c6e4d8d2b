// Three values in 2 bits.

fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let d = w_half(at + 64u);
    var words: vec4u;
    for (var i = 0u; i < 32u; i += 4u) {
        if (i % 16u == 0u) { words = w_words(at + 32u * (unit / 4u) + i); }
        let word = words[i / 4u % 4u] >> (2u * (unit % 4u));
        for (var j = 0u; j < 4u; j++) {
            (*weights)[i + j] = d * (f32((word >> (8u * j)) & 3u) - 1.0);
        }
    }
}
