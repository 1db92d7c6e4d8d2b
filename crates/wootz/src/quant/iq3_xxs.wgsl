
fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let word = w_word(at + 66u + 4u * unit);
    let scale = w_half(at) * (0.5 + f32(word >> 28u)) * 0.5;
    for (var part = 0u; part < 8u; part++) {
        let place = point(w_byte(at + 2u + 8u * unit + part));
        let signs = signs_of(word >> (7u * (part / 2u))) >> (4u * (part % 2u));
        for (var i = 0u; i < 4u; i++) {
            // Steps of 8 from 4, but for the last.
            let coordinate = (place >> (4u * i)) & 7u;
            let level = f32(4u + 8u * coordinate + 2u * (coordinate / 7u));
            (*weights)[4u * part + i] = signed(scale * level, signs >> i);
        }
    }
}
