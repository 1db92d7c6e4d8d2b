// Sums of a feature over the positions: a thread for each.
@compute @workgroup_size(WIDTH)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let number = wid.x + wid.y * groups.x;
    if (number >= p.all) { return; }
    let size = p.features / p.groups;
    let count = p.positions * size;
    let found = moments(number, count, lid);
    var terms = vec2(0.0, 0.0);
    for (var i = lid; i < size; i += WIDTH) {
        var sums = vec2(0.0, 0.0);
        for (var position = 0u; position < p.positions; position++) {
            let at = place(number, position * size + i);
            let slope = dy(p.dy + at);
            sums += vec2(slope, slope * ((x(p.x + at) - found.x) * found.y));
        }
        let column = feature(number % p.groups, size, i);
        let first = number / p.groups * 2u * p.features;
        partials_set(first + column, sums.x);
        partials_set(first + p.features + column, sums.y);
        terms += sums * weight(p.weight + column);
    }
    let level = group_sum(terms, lid) / f32(count);
    let steps = span_steps(count);
    for (var step = 0u; step < steps; step++) {
        let i = span_column(step, lid);
        if (i >= count) { continue; }
        let at = place(number, i);
        let normal = (x_of(step, at) - found.x) * found.y;
        let term = dy(p.dy + at) * weight(p.weight + at % p.features);
        out_set(at, (term - level.x - normal * level.y) * found.y);
    }
}
