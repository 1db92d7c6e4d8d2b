// A row is an element of the kernel, and the sum goes through all positions.
fn b_group(batch: u32) -> u32 { return batch * p.n; }

fn a_at(tile: Place, row: u32, depth: u32) -> u32 { return met(tile, depth, row); }

fn b_at(tile: Place, depth: u32, column: u32) -> u32 {
    return tile.b + depth * p.b_row * p.n + column;
}
