// A row is a position, and the sum goes through the kernel.
fn b_group(batch: u32) -> u32 { return batch * p.n * p.k; }

fn a_at(tile: Place, row: u32, depth: u32) -> u32 { return met(tile, row, depth); }

fn b_at(tile: Place, depth: u32, column: u32) -> u32 { return tile.b + column * p.k + depth; }
