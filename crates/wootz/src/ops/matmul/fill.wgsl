// The tile of the left matrix from column `start` on and that of the right one from row `start` on;
// zeros past their ends.
fn fill(thread: u32, tile: Place, start: u32) {
    for (var e = thread; e < TILE * DEPTH; e += THREADS) {
        // Neighbouring threads read along the axis whose elements are neighbours.
        var row = e / DEPTH;
        var depth = e % DEPTH;
        if (p.a_column != 1u) {
            row = e % TILE;
            depth = e / TILE;
        }
        var value = Factor(0.0);
        if (tile.top + row < tile.m && start + depth < tile.k) {
            value = a(a_at(tile, tile.top + row, start + depth));
        }
        keep_a(row, depth, value);
    }
    for (var e = thread; e < TILE * DEPTH; e += THREADS) {
        var column = e % TILE;
        var depth = e / TILE;
        if (p.b_column != 1u) {
            column = e / DEPTH;
            depth = e % DEPTH;
        }
        var value = Factor(0.0);
        if (tile.left + column < p.n && start + depth < tile.k) {
            value = b(b_at(tile, start + depth, tile.left + column));
        }
        keep_b(depth, column, value);
    }
}
