// A workgroup computes a square tile of the output, in steps along k through workgroup memory. A
// thread holds PER rows of PER columns, summed in the order of k.
const THREADS = 256u;
const TILE = 16u * PER;
const DEPTH = 16u;
// A row more than the tile keeps threads on different banks while they fill it.
const PITCH = TILE + 1u;
var<workgroup> a_tile: array<f32, DEPTH * PITCH>;
var<workgroup> b_tile: array<f32, DEPTH * PITCH>;

fn keep_a(row: u32, depth: u32, value: f32) { a_tile[depth * PITCH + row] = value; }
fn keep_b(depth: u32, column: u32, value: f32) { b_tile[depth * PITCH + column] = value; }

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let tile = place(group, TILE);
    if (tile.top >= tile.m) { return; }
    let x = (thread % 16u) * PER;
    let y = (thread / 16u) * PER;

    var sums: array<Sums, PER>;
    for (var i = 0u; i < PER; i++) { sums[i] = Sums(0.0); }
    for (var start = 0u; start < tile.k; start += DEPTH) {
        fill(thread, tile, start);
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
        for (var j = 0u; j < PER; j += 2u) {
            write_two(tile, tile.top + y + i, tile.left + x + j, sums[i][j], sums[i][j + 1u]);
        }
    }
}
