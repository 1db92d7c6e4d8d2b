// Tiles of 64 rows and columns of `matmul/cooperative.wgsl`: half of the threads decode weights,
// the others bring `x`.
alias Factor = f32;
const PAD = 4u;
const DEPTH = 32u;

fn place(group: u32, side: u32) -> Place { return place_of(group, side, side); }

fn fill(thread: u32, tile: Place, start: u32) {
    if (thread < 64u) {
        fill_w(thread, tile, start);
    } else {
        fill_x(thread - 64u, 64u, tile, start);
    }
}

fn write_two(tile: Place, row: u32, column: u32, first: f32, second: f32) {
    if (row >= tile.m || column >= p.n) { return; }
    let at = out_row(tile, row) + column;
    out_set(at, first);
    if (column + 1u < p.n) { out_set(at + 1u, second); }
}
