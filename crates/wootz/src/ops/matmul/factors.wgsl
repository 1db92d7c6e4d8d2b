// What kernels that compute a square tile of a product share: its factors on their way into
// workgroup memory, and its sums on their way out. Around this stand TILE, DEPTH and THREADS, and
// `keep_a` and `keep_b`, which know where elements lie.
struct Params {
    m: u32, n: u32, k: u32,
    a_row: u32, a_column: u32, a_offset: u32,
    b_row: u32, b_column: u32, b_offset: u32,
    across: u32, tiles: u32, groups: u32,
    // MORE
}
var<immediate> p: Params;

// FILL

// Writes two neighbours of the output, as far as it goes.
fn write_two(tile: Place, row: u32, column: u32, first: f32, second: f32) {
    if (row >= tile.m || column >= p.n) { return; }
    let both = column + 1u < p.n;
    var other = 0.0;
    if (both) { other = finish(tile.c, row, column + 1u, second); }
    out_pair(out_at(tile, row) + column, finish(tile.c, row, column, first), other, both);
}
