// Tiles of products of one shape, one product behind the other.
fn place(group: u32, side: u32) -> Place {
    let batch = group / p.tiles;
    let tile = group % p.tiles;
    let starts = batch_offsets(batch);
    return Place(batch, p.a_offset + starts.x, p.b_offset + starts.y, starts.z,
        (tile / p.across) * side, (tile % p.across) * side, p.m, p.k);
}

fn a_at(tile: Place, row: u32, depth: u32) -> u32 {
    return tile.a + row * p.a_row + depth * p.a_column;
}

fn b_at(tile: Place, depth: u32, column: u32) -> u32 {
    return tile.b + depth * p.b_row + column * p.b_column;
}

fn out_at(tile: Place, row: u32) -> u32 {
    return (tile.batch * p.m + row) * p.n;
}
