// A workgroup has a group of a sample: `all` groups, of which a sample has `groups`.
struct Params {
    all: u32, groups: u32, positions: u32, features: u32, eps: u32,
    x: u32, weight: u32, bias: u32, dy: u32,
}
var<immediate> p: Params;

// Where element `i` of a group is, in `x`.
fn place(number: u32, i: u32) -> u32 {
    let size = p.features / p.groups;
    let row = number / p.groups * p.positions + i / size;
    return row * p.features + feature(number % p.groups, size, i % size);
}

// A thread's elements of a group that fits; of a larger one they are read again whenever they are needed.
var<private> x_kept: array<Span, max(KEPT, 1u)>;

fn x_keep(number: u32, count: u32, lid: u32) {
    for (var step = 0u; step < KEPT; step++) {
        let i = span_column(step, lid);
        if (i < count) { x_kept[step] = x_span(p.x + place(number, i)); }
    }
}

fn x_of(step: u32, at: u32) -> Span {
    if (KEPT > 0u) { return x_kept[step]; }
    return x_span(p.x + at);
}

var<workgroup> x_first: f32;

// The mean of a group, and one over the root of its variance.
fn moments(number: u32, count: u32, lid: u32) -> vec2<f32> {
    x_keep(number, count, lid);
    // About one of its numbers: where all are alike, the mean is exactly that.
    if (lid == 0u) { x_first = span_lane(x_of(0u, place(number, 0u)), 0u); }
    workgroupBarrier();
    let shift = x_first;
    let steps = span_steps(count);
    var sum = 0.0;
    for (var step = 0u; step < steps; step++) {
        let i = span_column(step, lid);
        if (i < count) { sum += span_sum(x_of(step, place(number, i)) - Span(shift)); }
    }
    let mean = shift + group_sum(vec2(sum, 0.0), lid).x / f32(count);
    var squares = 0.0;
    for (var step = 0u; step < steps; step++) {
        let i = span_column(step, lid);
        if (i >= count) { continue; }
        let centred = x_of(step, place(number, i)) - Span(mean);
        squares += span_sum(centred * centred);
    }
    return vec2(mean, inverse_root(group_sum(vec2(squares, 0.0), lid).x, count, p.eps));
}
