// Signed bytes with one scale: a float16 before 32 weights, or a float32 before 256, BEFORE bytes from the codes.

fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    var d: f32;
    let codes = at + BEFORE + 32u * unit;
    if (LONG) {
        d = bitcast<f32>(w_word(at));
    } else {
        d = w_half(at);
    }
    var words: vec4u;
    for (var i = 0u; i < 32u; i += 4u) {
        if (i % 16u == 0u) { words = w_words(codes + i); }
        let word = words[i / 4u % 4u];
        for (var j = 0u; j < 4u; j++) { (*weights)[i + j] = d * w_signed_byte(word, j); }
    }
}
