// One workgroup per row: the factor that normalises it.
struct Params { rows: u32, columns: u32, eps: u32, x_offset: u32 }
var<immediate> p: Params;

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let row = wid.x + wid.y * groups.x;
    if (row >= p.rows) { return; }
    let base = p.x_offset + row * p.columns;
    var squares = 0.0;
    for (var step = 0u; step < span_steps(p.columns); step++) {
        let column = span_column(step, lid);
        if (column >= p.columns) { continue; }
        let value = x_span(base + column);
        squares += span_sum(value * value);
    }
    let sum = group_sum(vec2<f32>(squares, 0.0), lid).x;
    if (lid == 0u) { out_set(row, inverse_root(sum, p.columns, p.eps)); }
}
