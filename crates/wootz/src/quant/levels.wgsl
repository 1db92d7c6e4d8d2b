// Sixteen codes for levels of one byte: the low nibbles of 16 bytes are the first half.

fn decode_levels(scale: f32, codes: u32, weights: ptr<function, array<f32, 32>>) {
    let words = w_words(codes);
    for (var i = 0u; i < 16u; i += 4u) {
        let word = words[i / 4u];
        for (var j = 0u; j < 4u; j++) {
            let byte = (word >> (8u * j)) & 0xffu;
            (*weights)[i + j] = scale * level(byte & 15u);
            (*weights)[i + j + 16u] = scale * level(byte >> 4u);
        }
    }
}

fn level(code: u32) -> f32 {
    var levels = LEVELS;
    return w_signed_byte(levels[code >> 2u], code & 3u);
}
