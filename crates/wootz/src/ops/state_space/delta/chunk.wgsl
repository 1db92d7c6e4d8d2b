// What kernels for chunks of steps share. Offsets are of inputs in their memory, then of the parts of the
// scratch memory: the gradients, products of keys for the chunks of a launch, and for some heads at a time
// products of what was learnt for these, the states before all chunks, their gradients behind those of the
// launch, for each step what was wrong, what was learnt and the gradient of that, and sums over a piece of the
// keys.
struct Params {
    groups: u32, blocks: u32, steps: u32, values: u32, shared_heads: u32,
    first_head: u32, first_chunk: u32, end_chunk: u32,
    q: u32, k: u32, v: u32, g: u32, beta: u32, state: u32, dy: u32, dnext: u32,
    dq: u32, dk: u32, dv: u32, dg: u32, dbeta: u32, dstate: u32, pairs: u32,
    slopes: u32, starts: u32, ends: u32, wrong: u32, learnt: u32, dlearnt: u32, sums: u32,
}
var<immediate> p: Params;

var<workgroup> tile: array<f32, TILE>;
fn four(at: u32) -> vec4<f32> {
    return vec4<f32>(tile[at], tile[at + 1u], tile[at + 2u], tile[at + 3u]);
}

fn chunks() -> u32 { return (p.steps + STEPS - 1u) / STEPS; }

// Where something is of which each head has one for each chunk of the launch.
fn chunk_of(head: u32, chunk: u32) -> u32 {
    return head * (p.end_chunk - p.first_chunk) + chunk - p.first_chunk;
}
