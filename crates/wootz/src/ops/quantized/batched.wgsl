// Tiles of products of one shape, one product behind the other.

fn place_of(number: u32, rows: u32, columns: u32) -> Place {
    let across = (p.n + columns - 1u) / columns;
    let down = (p.m + rows - 1u) / rows;
    let batch = number / (across * down);
    return Place(batch, w_matrix(batch), number / across % down * rows, number % across * columns,
        p.m, p.k);
}

fn x_row(tile: Place, row: u32) -> u32 {
    return p.x_at + (x_matrix(tile.batch) * p.m + row) * p.k;
}

fn out_row(tile: Place, row: u32) -> u32 {
    return (tile.batch * p.m + row) * p.n;
}
