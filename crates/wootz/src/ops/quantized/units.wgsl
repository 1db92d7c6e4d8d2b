// The products of ROWS rows of weights from `w_row` on, or of the `rows` that there are, with up to X rows of `x`. Threads take
// units of 32 weights in turns, so that a subgroup reads neighbouring words, each once for all rows of `x`.
fn add_units(w_row: u32, rows: u32, x_first: u32, lid: u32, sums: ptr<function, array<f32, SUMS>>) {
    let units = (p.k + 31u) / 32u;
    var weights: array<f32, 32>;
    var held: array<f32, 32>;
    for (var unit = lid; unit < units; unit += THREADS) {
        let count = weights_in(p.k, unit);
        if (X == 1u) {
            for (var i = 0u; i < count; i++) { held[i] = x(x_first + unit * 32u + i); }
        }
        for (var row = 0u; row < min(ROWS, rows); row++) {
            row_weights(w_row + row, p.k, unit, &weights);
            if (X == 1u) {
                var sum = (*sums)[row];
                for (var i = 0u; i < count; i++) { sum = fma(weights[i], held[i], sum); }
                (*sums)[row] = sum;
            } else {
                for (var j = 0u; j < min(X, p.m); j++) {
                    let at = x_first + j * p.k + unit * 32u;
                    var sum = (*sums)[row * X + j];
                    for (var i = 0u; i < count; i++) { sum = fma(weights[i], x(at + i), sum); }
                    (*sums)[row * X + j] = sum;
                }
            }
        }
    }
}
