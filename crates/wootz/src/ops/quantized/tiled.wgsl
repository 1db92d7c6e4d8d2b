// A workgroup computes 32 rows of 64 columns in steps of 32 along k. In each a thread decodes 32 weights;
// then it adds to its 4 rows of 8 columns.

const TILE = 32u;
const COLUMNS = 64u;
const PITCH = 33u;
var<workgroup> x_tile: array<f32, TILE * PITCH>;
var<workgroup> w_tile: array<f32, 32u * COLUMNS>;

fn keep_a(row: u32, depth: u32, value: f32) { x_tile[row * PITCH + depth] = value; }
fn keep_b(depth: u32, column: u32, value: f32) { w_tile[depth * COLUMNS + column] = value; }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let tile = place_of(group, TILE, COLUMNS);
    if (tile.top >= tile.m) { return; }

    var sums: array<f32, 32>;
    for (var i = 0u; i < 32u; i++) { sums[i] = 0.0; }
    for (var start = 0u; start < p.k; start += 32u) {
        fill_x(lid, 64u, tile, start);
        fill_w(lid, tile, start);
        workgroupBarrier();
        for (var depth = 0u; depth < 32u; depth++) {
            for (var i = 0u; i < 4u; i++) {
                let value = x_tile[(lid / 8u * 4u + i) * PITCH + depth];
                for (var j = 0u; j < 8u; j++) {
                    sums[i * 8u + j] =
                        fma(value, w_tile[depth * COLUMNS + lid % 8u + 8u * j], sums[i * 8u + j]);
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        let row = tile.top + lid / 8u * 4u + i;
        if (row < tile.m) {
            let out = out_row(tile, row);
            for (var j = 0u; j < 8u; j++) {
                let column = tile.left + lid % 8u + 8u * j;
                if (column < p.n) { out_set(out + column, sums[i * 8u + j]); }
            }
        }
    }
}
