
fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let word = w_word(at + 6u + 8u * unit);
    let scale = w_half(at) * (0.5 + f32(word >> 28u)) * 0.25;
    for (var part = 0u; part < 4u; part++) {
        let place = point(w_byte(at + 2u + 8u * unit + part));
        eight(part, scale, place, signs_of(word >> (7u * part)), weights);
    }
}
