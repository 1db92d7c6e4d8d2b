// An element of the gradient: softmax · h - target · g.
fn gradient(i: u32) -> f32 {
    let row = i / p.columns;
    let label = column(row);
    if (label == NONE) { return 0.0; }
    let softmax = power(logits(p.logits_offset + i) - lse(p.lse_offset + row));
    let slope = g(p.g_offset + row);
    var value = softmax * h(p.h_offset + row) - p.even * slope;
    if (i - row * p.columns == label) { value -= p.kept * slope; }
    return value;
}
