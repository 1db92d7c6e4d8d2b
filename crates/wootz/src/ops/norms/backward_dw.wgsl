// A workgroup sums dy·x·r over a block of rows for 256 columns; neighbouring threads read along
// the rows.
struct Params {
    rows: u32, columns: u32, rows_per_block: u32, across: u32, groups: u32,
    x_offset: u32, dy_offset: u32, r_offset: u32,
}
var<immediate> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let group = wid.x + wid.y * groups.x;
    let block = group / p.across;
    let column = (group % p.across) * 256u + lid;
    if (group >= p.groups || column >= p.columns) { return; }
    let first = block * p.rows_per_block;
    let last = min(first + p.rows_per_block, p.rows);
    var sum = 0.0;
    for (var row = first; row < last; row++) {
        let at = row * p.columns + column;
        sum += dy(p.dy_offset + at) * x(p.x_offset + at) * r(p.r_offset + row);
    }
    partials_set(block * p.columns + column, sum);
}
