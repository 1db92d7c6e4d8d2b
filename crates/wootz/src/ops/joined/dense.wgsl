// Neighbouring threads read neighbouring weights, each once for all rows of `x`.
fn add_rows(first: u32, lid: u32, sums: ptr<function, array<f32, SUMS>>) {
    for (var at = lid; at < p.k; at += THREADS) {
        for (var row = 0u; row < min(ROWS, p.n - first); row++) {
            let weight = w(p.w_at + (first + row) * p.k + at);
            for (var j = 0u; j < min(X, p.m); j++) {
                let place = row * X + j;
                (*sums)[place] = fma(weight, x(p.x_at + j * p.k + at), (*sums)[place]);
            }
        }
    }
}
