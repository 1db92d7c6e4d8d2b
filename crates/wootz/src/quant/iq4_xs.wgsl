
fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    let low = (w_byte(at + 4u + unit / 2u) >> (4u * (unit % 2u))) & 15u;
    let high = (w_byte(at + 2u + unit / 4u) >> (2u * (unit % 4u))) & 3u;
    let scale = w_half(at) * (f32(low | (high << 4u)) - 32.0);
    decode_levels(scale, at + 8u + 16u * unit, weights);
}
