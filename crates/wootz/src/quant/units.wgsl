// Rows of whole units of 32 weights.
fn weights_in(width: u32, unit: u32) -> u32 { return 32u; }

fn row_weights(row: u32, width: u32, unit: u32, weights: ptr<function, array<f32, 32>>) {
    weights_of(row * (width / 32u) + unit, weights);
}
