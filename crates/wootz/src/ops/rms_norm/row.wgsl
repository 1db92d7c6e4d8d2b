// One workgroup per row: the mean of the squares, then the normalised row.
struct Params { rows: u32, columns: u32, eps: u32, x_offset: u32, weight_offset: u32 }
var<immediate> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let row = wid.x + wid.y * groups.x;
    if (row >= p.rows) { return; }
    let base = row * p.columns;
    var squares = 0.0;
    for (var column = lid; column < p.columns; column += WIDTH) {
        let value = x(p.x_offset + base + column);
        squares += value * value;
    }
    let r = inverse_root(group_sum(vec2<f32>(squares, 0.0), lid).x, p.columns, p.eps);
    for (var column = lid; column < p.columns; column += WIDTH) {
        let normal = rounded(x(p.x_offset + base + column) * r);
        out_set(base + column, normal * weight(p.weight_offset + column));
    }
}
