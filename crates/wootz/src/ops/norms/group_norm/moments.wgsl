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

// The mean of a group, and one over the root of its variance.
fn moments(number: u32, count: u32, lid: u32) -> vec2<f32> {
    // About one of its numbers: where all are alike, the mean is exactly that.
    let shift = x(p.x + place(number, 0u));
    var sum = 0.0;
    for (var i = lid; i < count; i += WIDTH) { sum += x(p.x + place(number, i)) - shift; }
    let mean = shift + group_sum(vec2(sum, 0.0), lid).x / f32(count);
    var squares = 0.0;
    for (var i = lid; i < count; i += WIDTH) {
        let centred = x(p.x + place(number, i)) - mean;
        squares += centred * centred;
    }
    return vec2(mean, inverse_root(group_sum(vec2(squares, 0.0), lid).x, count, p.eps));
}
