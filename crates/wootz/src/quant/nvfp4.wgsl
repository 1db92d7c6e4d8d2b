
// Four scales before four times 16 codes.
fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let words = w_words(at + 4u + 16u * unit);
    for (var i = 0u; i < 16u; i += 4u) {
        let group = i / 8u;
        let byte = w_byte(at + 2u * unit + group);
        let scale = select(0.5 * e4m3_magnitude(byte), 0.0, byte == 0x7fu);
        let word = words[i / 4u];
        let first = 16u * group + i % 8u;
        for (var j = 0u; j < 4u; j++) {
            let byte = (word >> (8u * j)) & 0xffu;
            (*weights)[first + j] = scale * doubled_e2m1(byte & 15u);
            (*weights)[first + j + 8u] = scale * doubled_e2m1(byte >> 4u);
        }
    }
}
