
fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let d = w_half(at);
    for (var part = 0u; part < 4u; part++) {
        let code = (w_byte(at + 74u + unit) >> (4u * (part / 2u))) & 15u;
        let scale = d * (0.5 + f32(code)) * 0.25;
        let high = (w_byte(at + 66u + unit) >> (2u * part)) & 3u;
        let place = point(w_byte(at + 2u + 4u * unit + part) | (high << 8u));
        eight(part, scale, place, w_byte(at + 34u + 4u * unit + part), weights);
    }
}
