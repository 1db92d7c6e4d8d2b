
fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let code = (w_byte(at + 106u + unit / 2u) >> (4u * (unit % 2u))) & 15u;
    let scale = w_half(at) * f32(1u + 2u * code);
    for (var part = 0u; part < 8u; part++) {
        let high = (w_byte(at + 66u + unit) >> part) & 1u;
        let place = point(w_byte(at + 2u + 8u * unit + part) | (high << 8u));
        let signs = w_byte(at + 74u + 4u * unit + part / 2u) >> (4u * (part % 2u));
        for (var i = 0u; i < 4u; i++) {
            let level = f32(1u + 2u * ((place >> (4u * i)) & 7u));
            (*weights)[4u * part + i] = signed(scale * level, signs >> i);
        }
    }
}
