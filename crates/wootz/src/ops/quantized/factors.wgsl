// What kernels that compute tiles of products share: a step of 32 along k on its way into workgroup
// memory, and sums on their way out. Around this stand TILE, the rows, and `keep_a` and `keep_b`,
// which know where elements lie.

// Rows of `x` from column `start` on, which lie in the order of the threads that bring them; zeros
// past the ends.
fn fill_x(thread: u32, threads: u32, tile: Place, start: u32) {
    for (var e = thread; e < TILE * 32u; e += threads) {
        let row = tile.top + e / 32u;
        let depth = start + e % 32u;
        var value = 0.0;
        if (row < tile.m && depth < p.k) { value = x(x_row(tile, row) + depth); }
        keep_a(e / 32u, e % 32u, value);
    }
}

// 64 columns of weights from row `start` on, decoded by as many threads.
fn fill_w(thread: u32, tile: Place, start: u32) {
    var weights: array<f32, 32>;
    for (var i = 0u; i < 32u; i++) { weights[i] = 0.0; }
    // A tile without rows needs none.
    let counts = tile.top < tile.m;
    if (TRANSPOSE) {
        // Units lie along k: a thread has a column.
        let column = tile.left + thread;
        if (counts && column < p.n) {
            row_weights(tile.matrix * p.n + column, p.k, start / 32u, &weights);
        }
        for (var i = 0u; i < 32u; i++) { keep_b(i, thread, weights[i]); }
    } else {
        // Units lie along n: two threads have a row.
        let depth = start + thread / 2u;
        let unit = tile.left / 32u + thread % 2u;
        if (counts && depth < p.k && unit < (p.n + 31u) / 32u) {
            row_weights(tile.matrix * p.k + depth, p.n, unit, &weights);
        }
        for (var i = 0u; i < 32u; i++) { keep_b(thread / 2u, thread % 2u * 32u + i, weights[i]); }
    }
}
