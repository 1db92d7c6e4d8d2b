// Tiles of products that sum over the rows of all products with one right matrix: `p.k` rows of
// each.
fn place(group: u32, side: u32) -> Place {
    let expert = group / p.tiles;
    let tile = group % p.tiles;
    let start = starts(expert);
    let depth = (starts(expert + 1u) - start) * p.k;
    // After an error nothing is written.
    let rows = select(0u, p.m, starts(p.experts) == p.items);
    return Place(start, p.a_offset, p.b_offset, expert,
        (tile / p.across) * side, (tile % p.across) * side, rows, depth);
}

fn a_at(tile: Place, row: u32, depth: u32) -> u32 {
    let i = tile.batch + depth / p.k;
    let matrix = select(left(i), product(i), p.transposed != 0u);
    return tile.a + matrix * p.a_batch + row * p.a_row + (depth % p.k) * p.a_column;
}

fn b_at(tile: Place, depth: u32, column: u32) -> u32 {
    let i = tile.batch + depth / p.k;
    let matrix = select(product(i), left(i), p.transposed != 0u);
    return tile.b + matrix * p.b_batch + (depth % p.k) * p.b_row + column * p.b_column;
}

fn out_at(tile: Place, row: u32) -> u32 {
    return (tile.c * p.m + row) * p.n;
}
