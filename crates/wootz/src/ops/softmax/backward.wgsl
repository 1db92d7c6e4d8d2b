// One workgroup per row: the dot product of y and dy, then y·(dy − dot).

struct Params { rows: u32, columns: u32, y_offset: u32, dy_offset: u32 }
var<immediate> p: Params;

var<workgroup> partial: array<f32, WIDTH>;

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let row = wid.x + wid.y * groups.x;
    let base = row * p.columns;
    // The last groups of a grid may lie past the end; they still meet the barriers.
    let columns = select(0u, p.columns, row < p.rows);
    let steps = span_steps(p.columns);
    y_keep(p.y_offset + base, columns, lid);
    dy_keep(p.dy_offset + base, columns, lid);
    var dot = 0.0;
    for (var step = 0u; step < steps; step++) {
        let column = span_column(step, lid);
        if (column >= columns) { continue; }
        let y = y_row(step, p.y_offset + base + column);
        dot += span_sum(y * dy_row(step, p.dy_offset + base + column));
    }
    partial[lid] = dot;
    workgroupBarrier();
    for (var half = WIDTH / 2u; half > 0u; half = half / 2u) {
        if (lid < half) { partial[lid] = partial[lid] + partial[lid + half]; }
        workgroupBarrier();
    }
    dot = partial[0];
    for (var step = 0u; step < steps; step++) {
        let column = span_column(step, lid);
        if (column >= columns) { continue; }
        let y = y_row(step, p.y_offset + base + column);
        let dy = dy_row(step, p.dy_offset + base + column);
        out_span_set(base + column, y * (dy - Span(dot)));
    }
}
