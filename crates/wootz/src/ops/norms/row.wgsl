// One workgroup per row: its moments, then the normalised row.
struct Params {
    rows: u32, columns: u32, eps: u32, x_offset: u32, weight_offset: u32, bias_offset: u32,
}
var<immediate> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let row = wid.x + wid.y * groups.x;
    if (row >= p.rows) { return; }
    let base = row * p.columns;
    let shift = row_shift(p.x_offset + base, p.columns, lid);
    var sums = vec2<f32>(0.0);
    for (var column = lid; column < p.columns; column += WIDTH) {
        let value = x(p.x_offset + base + column) - shift;
        sums += vec2<f32>(value, 1.0) * value;
    }
    sums = group_sum(sums, lid);
    let known = mean_and_scale(sums, shift, p.columns, p.eps);
    let undefined = is_undefined(sums.x);
    for (var column = lid; column < p.columns; column += WIDTH) {
        let normal = rounded((x(p.x_offset + base + column) - known.x) * known.y);
        var value = normal * weight(p.weight_offset + column);
        if (CENTRED) { value += bias(p.bias_offset + column); }
        out_set(base + column, undefined_or(value, undefined));
    }
}
