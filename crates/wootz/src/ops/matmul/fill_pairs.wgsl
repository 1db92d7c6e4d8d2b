// As `fill.wgsl`, of factors two of which are a word: a thread takes two along the axis whose elements are neighbours, and
// reads a word that holds both once.
fn fill(thread: u32, tile: Place, start: u32) {
    for (var e = 2u * thread; e < TILE * DEPTH; e += 2u * THREADS) {
        var row = e / DEPTH;
        var depth = e % DEPTH;
        var next = vec2<u32>(0u, 1u);
        if (p.a_column != 1u) {
            row = e % TILE;
            depth = e / TILE;
            next = vec2<u32>(1u, 0u);
        }
        var first = 0.0;
        var second = 0.0;
        if (tile.top + row < tile.m && start + depth < tile.k) {
            let at = a_at(tile, tile.top + row, start + depth);
            let word = a_data[at >> 1u];
            first = a_of(word, at);
            if (tile.top + row + next.x < tile.m && start + depth + next.y < tile.k) {
                let other = a_at(tile, tile.top + row + next.x, start + depth + next.y);
                if ((other >> 1u) == (at >> 1u)) {
                    second = a_of(word, other);
                } else {
                    second = a(other);
                }
            }
        }
        keep_a(row, depth, first);
        keep_a(row + next.x, depth + next.y, second);
    }
    for (var e = 2u * thread; e < TILE * DEPTH; e += 2u * THREADS) {
        var column = e % TILE;
        var depth = e / TILE;
        var next = vec2<u32>(0u, 1u);
        if (p.b_column != 1u) {
            column = e / DEPTH;
            depth = e % DEPTH;
            next = vec2<u32>(1u, 0u);
        }
        var first = 0.0;
        var second = 0.0;
        if (tile.left + column < p.n && start + depth < tile.k) {
            let at = b_at(tile, start + depth, tile.left + column);
            let word = b_data[at >> 1u];
            first = b_of(word, at);
            if (tile.left + column + next.y < p.n && start + depth + next.x < tile.k) {
                let other = b_at(tile, start + depth + next.x, tile.left + column + next.y);
                if ((other >> 1u) == (at >> 1u)) {
                    second = b_of(word, other);
                } else {
                    second = b(other);
                }
            }
        }
        keep_b(depth, column, first);
        keep_b(depth + next.x, column + next.y, second);
    }
}
