// A workgroup sums dy·x·r over a block of rows for 256 spans of columns; neighbouring threads read along
// the rows.
struct Params {
    rows: u32, columns: u32, rows_per_block: u32, across: u32, groups: u32,
    x_offset: u32, dy_offset: u32, r_offset: u32,
}
var<immediate> p: Params;

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let group = wid.x + wid.y * groups.x;
    let block = group / p.across;
    let column = span_column(group % p.across, lid);
    if (group >= p.groups || column >= p.columns) { return; }
    let first = block * p.rows_per_block;
    let last = min(first + p.rows_per_block, p.rows);
    var sum = Span(0.0);
    for (var row = first; row < last; row++) {
        let at = row * p.columns + column;
        sum += dy_span(p.dy_offset + at) * x_span(p.x_offset + at) * r(p.r_offset + row);
    }
    let at = block * p.columns + column;
    for (var lane = 0u; lane < SPAN; lane++) { partials_set(at + lane, span_lane(sum, lane)); }
}
