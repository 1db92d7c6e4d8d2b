
fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let d = w_half(at);
    for (var part = 0u; part < 4u; part++) {
        let word = w_word(at + 2u + 8u * unit + 2u * part) & 0xffffu;
        let code = (w_byte(at + 66u + unit) >> (4u * (part / 2u))) & 15u;
        let scale = d * (0.5 + f32(code)) * 0.25;
        eight(part, scale, point(word & 511u), signs_of(word >> 9u), weights);
    }
}
