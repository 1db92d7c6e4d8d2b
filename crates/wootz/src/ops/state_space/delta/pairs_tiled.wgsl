// A thread has four products of each kind.
struct Pairs { one: vec4<f32>, two: vec4<f32> }
fn no_pairs() -> Pairs { return Pairs(vec4<f32>(0.0), vec4<f32>(0.0)); }

fn add_pairs(sums: ptr<function, Pairs>, thread: u32, subgroup: u32) {
    let row = thread / 16u * PITCH;
    let column = thread % 16u * PITCH;
    for (var i = 0u; i < DEPTH; i += 4u) {
        let x = four(2u * SIDE + column + i);
        let y = four(2u * SIDE + column + 16u * PITCH + i);
        if (CORRECTS) {
            let a = four(ONE + row + i);
            let b = four(ONE + row + 16u * PITCH + i);
            (*sums).one += vec4<f32>(dot(a, x), dot(a, y), dot(b, x), dot(b, y));
        }
        let c = four(SIDE + row + i);
        let d = four(SIDE + row + 16u * PITCH + i);
        (*sums).two += vec4<f32>(dot(c, x), dot(c, y), dot(d, x), dot(d, y));
    }
}

fn keep_pairs(sums: ptr<function, Pairs>, at: u32, thread: u32, subgroup: u32) {
    if (CORRECTS) { keep_four((*sums).one, at, thread); }
    keep_four((*sums).two, at + SECOND, thread);
}

fn keep_four(x: vec4<f32>, at: u32, thread: u32) {
    let to = at + thread / 16u * STEPS + thread % 16u;
    memory[to] = x.x;
    memory[to + 16u] = x.y;
    memory[to + 16u * STEPS] = x.z;
    memory[to + 16u * STEPS + 16u] = x.w;
}
