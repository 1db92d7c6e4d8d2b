// An element of the gradient of one side's logits.
fn gradient(i: u32) -> f32 {
    let row = i / p.columns;
    let a = targets(p.targets_offset + i) - targets_lse(p.targets_lse_offset + row);
    let b =
        predictions(p.predictions_offset + i) - predictions_lse(p.predictions_lse_offset + row);
    let slope = g(p.g_offset + row);
    if (OF_PREDICTIONS) { return (power(b) - power(a)) * slope; }
    let chance = power(a);
    var weighted = 0.0;
    if (!wz_iszero(chance)) {
        weighted = chance * (a - b - divergence(p.divergence_offset + row));
    }
    return weighted * slope;
}
