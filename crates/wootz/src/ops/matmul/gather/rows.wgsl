// Tiles of products whose rows are those of all left matrices with one right matrix.

// The first tile of a right matrix. From it to the next one's are enough tiles: rounding down
// loses less than one tile, and one more is there for each right matrix.
fn first_tile(expert: u32, side: u32) -> u32 {
    return starts(expert) * p.m / side + expert;
}

fn place(group: u32, side: u32) -> Place {
    let number = group / p.across;
    // The last right matrix whose first tile is not behind this one.
    var expert = 0u;
    var end = p.experts;
    while (end - expert > 1u) {
        let middle = (expert + end) / 2u;
        if (first_tile(middle, side) <= number) { expert = middle; } else { end = middle; }
    }
    let start = starts(expert);
    let rows = (starts(expert + 1u) - start) * p.m;
    let top = (number - first_tile(expert, side)) * side;
    return Place(start, p.a_offset, p.b_offset + expert * p.b_batch, 0u,
        top, (group % p.across) * side, rows, p.k);
}

fn a_at(tile: Place, row: u32, depth: u32) -> u32 {
    let matrix = left(tile.batch + row / p.m);
    return tile.a + matrix * p.a_batch + (row % p.m) * p.a_row + depth * p.a_column;
}

fn b_at(tile: Place, depth: u32, column: u32) -> u32 {
    return tile.b + depth * p.b_row + column * p.b_column;
}

fn out_at(tile: Place, row: u32) -> u32 {
    return (product(tile.batch + row / p.m) * p.m + row % p.m) * p.n;
}
