
fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let word = w_byte(at + 34u + 2u * unit) | (w_byte(at + 35u + 2u * unit) << 8u);
    let scale = w_half(at) * f32(2u * ((word >> 12u) & 7u) + 1u);
    let by = signed(0.125, word >> 15u);
    for (var part = 0u; part < 4u; part++) {
        let high = (word >> (3u * part)) & 7u;
        moved(part, scale, point(w_byte(at + 2u + 4u * unit + part) | (high << 8u)), by, weights);
    }
}
