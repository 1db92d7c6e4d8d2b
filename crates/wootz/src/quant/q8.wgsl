// Signed bytes with one scale: a float16 before 32 weights, or a float32 before 256.

fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    var d: f32;
    var codes = at + 2u;
    if (LONG) {
        d = bitcast<f32>(w_word(at));
        codes = at + 4u + 32u * unit;
    } else {
        d = w_half(at);
    }
    for (var i = 0u; i < 32u; i += 4u) {
        let word = w_word(codes + i);
        for (var j = 0u; j < 4u; j++) { (*weights)[i + j] = d * w_signed_byte(word, j); }
    }
}
