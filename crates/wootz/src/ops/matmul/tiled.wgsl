// A workgroup computes a square tile of the output, in steps along k through workgroup memory. A
// thread holds PER rows of PER columns, summed in the order of k.
struct Params {
    m: u32, n: u32, k: u32,
    a_row: u32, a_column: u32, a_offset: u32,
    b_row: u32, b_column: u32, b_offset: u32,
    across: u32, tiles: u32, groups: u32,
    // MORE
}
var<immediate> p: Params;

const TILE = 16u * PER;
const DEPTH = 16u;
// A row more than the tile keeps threads on different banks while they fill it.
const PITCH = TILE + 1u;
var<workgroup> a_tile: array<f32, DEPTH * PITCH>;
var<workgroup> b_tile: array<f32, DEPTH * PITCH>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let tile = place(group, TILE);
    if (tile.top >= tile.m) { return; }
    let top = tile.top;
    let left = tile.left;
    let x = (thread % 16u) * PER;
    let y = (thread / 16u) * PER;

    var sums: array<Sums, PER>;
    for (var i = 0u; i < PER; i++) { sums[i] = Sums(0.0); }
    for (var start = 0u; start < tile.k; start += DEPTH) {
        for (var e = thread; e < TILE * DEPTH; e += 256u) {
            // Neighbouring threads read along the axis whose elements are neighbours.
            var row = e / DEPTH;
            var depth = e % DEPTH;
            if (p.a_column != 1u) {
                row = e % TILE;
                depth = e / TILE;
            }
            var value = 0.0;
            if (top + row < tile.m && start + depth < tile.k) {
                value = a(a_at(tile, top + row, start + depth));
            }
            a_tile[depth * PITCH + row] = value;
        }
        for (var e = thread; e < TILE * DEPTH; e += 256u) {
            var column = e % TILE;
            var depth = e / TILE;
            if (p.b_column != 1u) {
                column = e / DEPTH;
                depth = e % DEPTH;
            }
            var value = 0.0;
            if (left + column < p.n && start + depth < tile.k) {
                value = b(b_at(tile, start + depth, left + column));
            }
            b_tile[depth * PITCH + column] = value;
        }
        workgroupBarrier();
        for (var depth = 0u; depth < DEPTH; depth++) {
            var right: Sums;
            for (var j = 0u; j < PER; j++) { right[j] = b_tile[depth * PITCH + x + j]; }
            for (var i = 0u; i < PER; i++) {
                sums[i] += a_tile[depth * PITCH + y + i] * right;
            }
        }
        workgroupBarrier();
    }

    for (var i = 0u; i < PER; i++) {
        let row = top + y + i;
        if (row < tile.m) {
            let at = out_at(tile, row);
            for (var j = 0u; j < PER; j += 2u) {
                let column = left + x + j;
                if (column < p.n) {
                    let both = column + 1u < p.n;
                    let value = finish(tile.c, row, column, sums[i][j]);
                    var second = 0.0;
                    if (both) { second = finish(tile.c, row, column + 1u, sums[i][j + 1u]); }
                    out_pair(at + column, value, second, both);
                }
            }
        }
    }
}
