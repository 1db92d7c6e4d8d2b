@compute @workgroup_size(WIDTH)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let number = wid.x + wid.y * groups.x;
    if (number >= p.all) { return; }
    let count = p.positions * (p.features / p.groups);
    let found = moments(number, count, lid);
    let steps = span_steps(count);
    for (var step = 0u; step < steps; step++) {
        let i = span_column(step, lid);
        if (i >= count) { continue; }
        let at = place(number, i);
        let normal = (x_of(step, at) - Span(found.x)) * found.y;
        let scaled = normal * weight_span(p.weight + at % p.features);
        out_span_set(at, scaled + bias_span(p.bias + at % p.features));
    }
}
