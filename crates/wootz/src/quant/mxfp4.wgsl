
// A power of two before 32 codes.
fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let exponent = w_byte(at);
    let scale = bitcast<f32>(select((exponent - 1u) << 23u, 0x200000u << (exponent & 1u), exponent < 2u));
    let words = w_words(at + 1u);
    for (var i = 0u; i < 16u; i += 4u) {
        let word = words[i / 4u];
        for (var j = 0u; j < 4u; j++) {
            let byte = (word >> (8u * j)) & 0xffu;
            (*weights)[i + j] = scale * doubled_e2m1(byte & 15u);
            (*weights)[i + j + 16u] = scale * doubled_e2m1(byte >> 4u);
        }
    }
}
