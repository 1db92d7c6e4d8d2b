// One workgroup per row: s = Σ dy·w·x, then dx = r·(dy·w − x·s·r²/D).
struct Params {
    rows: u32, columns: u32,
    x_offset: u32, weight_offset: u32, dy_offset: u32, r_offset: u32,
}
var<immediate> p: Params;

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let row = wid.x + wid.y * groups.x;
    if (row >= p.rows) { return; }
    let base = row * p.columns;
    let steps = span_steps(p.columns);
    x_keep(p.x_offset + base, p.columns, lid);
    dy_keep(p.dy_offset + base, p.columns, lid);
    var products = 0.0;
    for (var step = 0u; step < steps; step++) {
        let column = span_column(step, lid);
        if (column >= p.columns) { continue; }
        let dy = dy_row(step, p.dy_offset + base + column);
        let term = dy * weight_span(p.weight_offset + column);
        products += span_sum(term * x_row(step, p.x_offset + base + column));
    }
    let sum = group_sum(vec2<f32>(products, 0.0), lid).x;
    let factor = r(p.r_offset + row);
    let slope = sum * factor * factor / f32(p.columns);
    for (var step = 0u; step < steps; step++) {
        let column = span_column(step, lid);
        if (column >= p.columns) { continue; }
        let dy = dy_row(step, p.dy_offset + base + column);
        let term = dy * weight_span(p.weight_offset + column);
        let x = x_row(step, p.x_offset + base + column);
        out_span_set(base + column, factor * (term - x * slope));
    }
}
