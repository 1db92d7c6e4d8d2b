// An element of the gradient of one side's logits.
fn gradient(i: u32) -> f32 {
    let row = i / p.columns;
    if (!counts(row)) { return 0.0; }
    let a = targets(p.targets_offset + i) - targets_lse(p.targets_lse_offset + row);
    let b =
        predictions(p.predictions_offset + i) - predictions_lse(p.predictions_lse_offset + row);
    let slope = g(p.g_offset + row);
    if (OF_PREDICTIONS) { return (power(b) - power(a)) * slope; }
    // Nothing of what has no chance, be it infinite. Told on the bits, because of fast math: from -88
    // down to minus infinity.
    let bits = bitcast<u32>(a);
    let nothing = bits >= 0xc2b00000u && bits <= 0xff800000u;
    let weighted = power(a) * (a - b - divergence(p.divergence_offset + row));
    return select(weighted, 0.0, nothing) * slope;
}
