
fn weights_of(unit: u32, weights: ptr<function, array<f32, 32>>) {
    decode_unit(p.w_at + unit / UNITS * BLOCK_BYTES, unit % UNITS, weights);
}
