
fn decode_unit(at: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    decode_levels(w_half(at), at + 2u, weights);
}
