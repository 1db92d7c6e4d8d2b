// A thread's elements of a group are of one feature if the features divide the threads: then its sums are made of what it
// keeps. Else a thread goes down the column of a feature.
var<private> dy_kept: array<f32, max(KEPT, 1u)>;
var<workgroup> columns: array<vec2<f32>, WIDTH>;

fn dy_of(step: u32, at: u32) -> f32 {
    if (KEPT > 0u) { return dy_kept[step]; }
    return dy(p.dy + at);
}

// The sums of a feature, which are kept for the gradients of weight and bias, as the group's.
fn of_group(number: u32, i: u32, size: u32, sums: vec2<f32>) -> vec2<f32> {
    let column = feature(number % p.groups, size, i);
    let first = number / p.groups * 2u * p.features;
    partials_set(first + column, sums.x);
    partials_set(first + p.features + column, sums.y);
    return sums * weight(p.weight + column);
}

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
    let steps = span_steps(count);
    for (var step = 0u; step < KEPT; step++) {
        let i = span_column(step, lid);
        if (i < count) { dy_kept[step] = dy(p.dy + place(number, i)); }
    }
    var terms = vec2(0.0, 0.0);
    if (BY_COLUMN) {
        var sums = vec2(0.0, 0.0);
        for (var step = 0u; step < steps; step++) {
            let i = span_column(step, lid);
            if (i >= count) { continue; }
            let at = place(number, i);
            let slope = dy_of(step, at);
            sums += vec2(slope, slope * ((x_of(step, at) - found.x) * found.y));
        }
        columns[lid] = sums;
        workgroupBarrier();
        if (lid < size) {
            sums = columns[lid];
            for (var other = lid + size; other < WIDTH; other += size) { sums += columns[other]; }
            terms = of_group(number, lid, size, sums);
        }
    } else {
        for (var i = lid; i < size; i += WIDTH) {
            var sums = vec2(0.0, 0.0);
            for (var position = 0u; position < p.positions; position++) {
                let at = place(number, position * size + i);
                let slope = dy(p.dy + at);
                sums += vec2(slope, slope * ((x(p.x + at) - found.x) * found.y));
            }
            terms += of_group(number, i, size, sums);
        }
    }
    let level = group_sum(terms, lid) / f32(count);
    for (var step = 0u; step < steps; step++) {
        let i = span_column(step, lid);
        if (i >= count) { continue; }
        let at = place(number, i);
        let normal = (x_of(step, at) - found.x) * found.y;
        let term = dy_of(step, at) * weight(p.weight + at % p.features);
        out_set(at, (term - level.x - normal * level.y) * found.y);
    }
}
