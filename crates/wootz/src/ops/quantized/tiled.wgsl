
// A workgroup computes 32 rows of 64 columns in steps of 32 along k. In each a thread decodes 32 weights;
// then it adds to its 4 rows of 8 columns.

const ROWS = 32u;
const COLUMNS = 64u;
const PITCH = 33u;
var<workgroup> x_tile: array<f32, ROWS * PITCH>;
var<workgroup> w_tile: array<f32, 32u * COLUMNS>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let group = wid.x + wid.y * groups.x;
    let tile = tile_of(group, ROWS, COLUMNS);
    let counts = group < p.groups && tile.top < tile.rows;

    var weights: array<f32, 32>;
    var sums: array<f32, 32>;
    for (var i = 0u; i < 32u; i++) { sums[i] = 0.0; }
    for (var start = 0u; start < p.k; start += 32u) {
        for (var e = lid; e < ROWS * 32u; e += 64u) {
            let row = tile.top + e / 32u;
            let depth = start + e % 32u;
            var value = 0.0;
            if (counts && row < tile.rows && depth < p.k) { value = x(x_row(tile, row) + depth); }
            x_tile[e / 32u * PITCH + e % 32u] = value;
        }
        for (var i = 0u; i < 32u; i++) { weights[i] = 0.0; }
        if (TRANSPOSE) {
            // Units lie along k: a thread has a column.
            let column = tile.left + lid;
            if (counts && column < p.n) {
                weights_of((tile.matrix * p.n + column) * (p.k / 32u) + start / 32u, &weights);
            }
            for (var i = 0u; i < 32u; i++) { w_tile[i * COLUMNS + lid] = weights[i]; }
        } else {
            // Units lie along n: two threads have a row.
            let depth = start + lid / 2u;
            let unit = tile.left / 32u + lid % 2u;
            if (counts && depth < p.k && unit < p.n / 32u) {
                weights_of((tile.matrix * p.k + depth) * (p.n / 32u) + unit, &weights);
            }
            for (var i = 0u; i < 32u; i++) {
                w_tile[lid / 2u * COLUMNS + lid % 2u * 32u + i] = weights[i];
            }
        }
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
        if (counts && row < tile.rows) {
            let out = out_row(tile, row);
            for (var j = 0u; j < 8u; j++) {
                let column = tile.left + lid % 8u + 8u * j;
                if (column < p.n) { out_set(out + column, sums[i * 8u + j]); }
            }
        }
    }
}
