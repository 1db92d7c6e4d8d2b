// What the kernels of the gradient step by step share. A workgroup has a block of a head's rows. A row has
// LANES threads, each with every LANES-th key of it.
struct Params {
    heads: u32, steps: u32, values: u32, shared_heads: u32, chunk: u32,
    block: u32, first_chunk: u32, end_chunk: u32,
    q: u32, k: u32, v: u32, g: u32, beta: u32, state: u32, dy: u32, dnext: u32,
    dq: u32, dk: u32, dv: u32, dg: u32, dbeta: u32, dstate: u32,
    starts: u32, states: u32,
}
var<immediate> p: Params;

var<workgroup> one: array<f32, 256>;

// The state of this thread's row, at its keys.
var<private> s: array<f32, EACH>;
var<private> head: u32;
var<private> lane: u32;
var<private> row: u32;

fn key_at(t: u32) -> u32 { return (head / p.shared_heads * p.steps + t) * KEYS; }
fn gate(t: u32, key: u32) -> f32 {
    return g(p.g + (head * p.steps + t) * GATES + gate_of(key));
}
fn value(t: u32) -> f32 {
    if (row >= p.values) { return 0.0; }
    return v(p.v + (head * p.steps + t) * p.values + row);
}
// The block's state at the start of a chunk, and behind steps of the present one.
fn start_at(chunk: u32) -> u32 {
    return p.starts + (head * ((p.steps + p.chunk - 1u) / p.chunk) + chunk) * ROWS * KEYS;
}
fn state_at(i: u32) -> u32 { return p.states + (head * (p.chunk + 1u) + i) * ROWS * KEYS; }

fn keep(at: u32, thread: u32) {
    for (var e = 0u; e < EACH; e++) {
        let key = lane + e * LANES;
        if (key < KEYS) { memory[at + thread / LANES * KEYS + key] = s[e]; }
    }
}

// Lanes that have a key; the others add nothing.
const USED = min(LANES, KEYS);

fn sum_of_one(thread: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < USED; i++) { sum += one[thread - lane + i]; }
    return sum;
}

// What there is to learn about the value.
fn wrong_by(t: u32, known: f32) -> f32 {
    if (CORRECTS) { return value(t) - known; }
    return value(t);
}

// One step of the state.
fn advance(t: u32, thread: u32) {
    let at = p.k + key_at(t);
    var sum = 0.0;
    for (var e = 0u; e < EACH; e++) {
        let key = lane + e * LANES;
        if (key < KEYS) {
            s[e] *= gate(t, key);
            sum += s[e] * k(at + key);
        }
    }
    one[thread] = sum;
    workgroupBarrier();
    let change = wrong_by(t, sum_of_one(thread)) * beta(p.beta + head * p.steps + t);
    for (var e = 0u; e < EACH; e++) {
        let key = lane + e * LANES;
        if (key < KEYS) { s[e] += k(at + key) * change; }
    }
    workgroupBarrier();
}
