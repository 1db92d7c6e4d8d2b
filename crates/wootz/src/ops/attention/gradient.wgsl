// The softmax of one score and the gradient of the score.
struct Gradient { p: f32, ds: f32, seen: bool }

fn gradient_of(product: f32, dp: f32, row: vec4<u32>, mask_at: u32, key: u32) -> Gradient {
    let bits = score_bits(product, row.zw, mask_at, key);
    // A row that sees nothing has no log-sum-exp to start from.
    if (bits == HIDDEN || row.x == 0xff800000u) { return Gradient(0.0, 0.0, false); }
    let power = power_of(bits, bitcast<f32>(row.x));
    if (bits == 0xff800000u) { return Gradient(power, 0.0, true); }
    return Gradient(power, power * (dp - bitcast<f32>(row.y)), true);
}

// The bits to keep in a tile.
fn kept(value: f32, seen: bool) -> u32 {
    let bits = bits_of(value);
    return select(ABSENT, select(bits, 0u, bits == ABSENT), seen);
}
