// The kernels of the gradient by chunks have everything in one memory: the inputs, the gradients, and
// for some heads at a time the states before chunks, their gradients behind them, and for each step what
// was wrong, what was learnt, and the gradient of that.
struct Params {
    groups: u32, blocks: u32, steps: u32, values: u32, shared_heads: u32, first_head: u32,
    q: u32, k: u32, v: u32, g: u32, beta: u32, state: u32, dy: u32, dnext: u32,
    dq: u32, dk: u32, dv: u32, dg: u32, dbeta: u32, dstate: u32,
    starts: u32, ends: u32, wrong: u32, learnt: u32, dlearnt: u32,
}
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> memory: array<f32>;

fn q(i: u32) -> f32 { return memory[p.q + i]; }
fn k(i: u32) -> f32 { return memory[p.k + i]; }
fn v(i: u32) -> f32 { return memory[p.v + i]; }
fn g(i: u32) -> f32 { return memory[p.g + i]; }
fn beta(i: u32) -> f32 { return memory[p.beta + i]; }
fn state(i: u32) -> f32 { return memory[p.state + i]; }
fn first_head() -> u32 { return p.first_head; }

// Where a chunk's state is, counted in the heads that are kept: a row of values for each key.
fn state_at(head: u32, chunk: u32, key: u32) -> u32 {
    let chunks = (p.steps + STEPS - 1u) / STEPS;
    return ((head * chunks + chunk) * KEYS + key) * p.values;
}
fn keep_state(head: u32, chunk: u32, key: u32, value: u32, x: f32) {
    memory[p.starts + state_at(head, chunk, key) + value] = x;
}
fn keep_learnt(head: u32, step: u32, value: u32, wrong: f32, learnt: f32) {
    let at = (head * p.steps + step) * p.values + value;
    memory[p.wrong + at] = wrong;
    memory[p.learnt + at] = learnt;
}
fn y_set(i: u32, x: f32) {}
fn next_set(i: u32, x: f32) {}
