// The signs of 128 weights of one magnitude.

fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let d = w_half(at);
    let signs = w_word(at + 2u + 4u * unit);
    for (var i = 0u; i < 32u; i++) { (*weights)[i] = select(-d, d, ((signs >> i) & 1u) == 1u); }
}
