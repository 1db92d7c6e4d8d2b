// A thread takes a pair of features (or as many as make whole words), or features that are only
// copied, at one position: it finds cosine and sine once and rotates the pair in several heads.
struct Params {
    threads: u32, items: u32, copied: u32,
    heads: u32, length: u32, features: u32, half: u32,
    group_heads: u32, head_blocks: u32, heads_per_thread: u32,
    x_offset: u32, x_batch: u32, x_head: u32, x_row: u32,
    frequencies_offset: u32, axes: u32,
    positions_offset: u32, positions_batch: u32, positions_axis: u32,
    start: f32, scale: f32, amplitude: f32, sine_sign: f32,
}
var<immediate> p: Params;

// Cosine and sine of a pair, times the amplitude.
fn turn(pair: u32, group: u32, row: u32) -> vec2f {
    var angle = 0.0;
    for (var axis = 0u; axis < p.axes; axis++) {
        let frequency = frequencies(p.frequencies_offset + axis * p.half + pair);
        let term = position(axis, group, row) * p.scale * frequency;
        if (axis == 0u) { angle = term; } else { angle += term; }
    }
    return vec2f(wz_cos(angle), wz_sin(angle) * p.sine_sign) * p.amplitude;
}

fn rotated(at: vec2f, turn: vec2f) -> vec2f {
    return vec2f(at.x * turn.x - at.y * turn.y, at.x * turn.y + at.y * turn.x);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let id = (wid.x + wid.y * groups.x) * 64u + lid;
    if (id >= p.threads) { return; }
    let item = id % p.items;
    let row = (id / p.items) % p.length;
    let block = id / (p.items * p.length);
    let group = block / p.head_blocks;
    let end = (group + 1u) * p.group_heads;
    let first = group * p.group_heads + (block % p.head_blocks) * p.heads_per_thread;
    let last = min(first + p.heads_per_thread, end);

    // Past the pairs come the features that are copied.
    let pairs = p.items - p.copied;
    let copied = item >= pairs;
    let pair = item * PAIRS;
    let both = pair + 1u < p.half;
    var turns = array<vec2f, 2>(vec2f(0.0), vec2f(0.0));
    if (!copied) {
        turns[0] = turn(pair, group, row);
        if (PAIRS == 2u && both) { turns[1] = turn(pair + 1u, group, row); }
    }
    for (var head = first; head < last; head++) {
        let source = p.x_offset + (head / p.heads) * p.x_batch + (head % p.heads) * p.x_head
            + row * p.x_row;
        let to = (head * p.length + row) * p.features;
        if (copied) {
            let at = 2u * p.half + (item - pairs) * PER_WORD;
            if (PER_WORD == 2u && at + 1u < p.features) {
                put2(to + at, x2(source + at));
            } else {
                put(to + at, x(source + at));
            }
        } else if (TRADITIONAL) {
            let at = 2u * pair;
            put2(to + at, rotated(x2(source + at), turns[0]));
        } else {
            let at = source + pair;
            if (PAIRS == 2u && both) {
                let left = x2(at);
                let right = x2(at + p.half);
                let y = rotated(vec2f(left.x, right.x), turns[0]);
                let z = rotated(vec2f(left.y, right.y), turns[1]);
                put2(to + pair, vec2f(y.x, z.x));
                put2(to + pair + p.half, vec2f(y.y, z.y));
            } else {
                let y = rotated(vec2f(x(at), x(at + p.half)), turns[0]);
                put(to + pair, y.x);
                put(to + pair + p.half, y.y);
            }
        }
    }
}
