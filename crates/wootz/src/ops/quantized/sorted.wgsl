// Tiles whose rows are those of all products with one matrix of weights, which was found for them before.

// The first tile of a matrix. From it to the next one's are enough tiles: rounding down loses less than one
// tile, and one more is there for each matrix.
fn first_tile(expert: u32, rows: u32) -> u32 {
    return starts(expert) * p.m / rows + expert;
}

fn place_of(number: u32, rows: u32, columns: u32) -> Place {
    let across = (p.n + columns - 1u) / columns;
    let down = number / across;
    // The last matrix whose first tile is not behind this one.
    var expert = 0u;
    var end = p.experts;
    while (end - expert > 1u) {
        let middle = (expert + end) / 2u;
        if (first_tile(middle, rows) <= down) { expert = middle; } else { end = middle; }
    }
    let start = starts(expert);
    let all = (starts(expert + 1u) - start) * p.m;
    return Place(start, expert, (down - first_tile(expert, rows)) * rows, number % across * columns,
        all, p.k);
}

fn x_row(tile: Place, row: u32) -> u32 {
    return p.x_at + (left(tile.batch + row / p.m) * p.m + row % p.m) * p.k;
}

fn out_row(tile: Place, row: u32) -> u32 {
    return (number(tile.batch + row / p.m) * p.m + row % p.m) * p.n;
}
