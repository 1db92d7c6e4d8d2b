// A workgroup has a head. For each block of its rows it walks forward, keeping the states at the
// starts of chunks, and then backward through the chunks, whose states it finds again. A row has
// LANES threads, each with every LANES-th key of it; sums over rows have a thread for each key.
struct Params {
    heads: u32, steps: u32, values: u32, shared_heads: u32, chunk: u32,
    q: u32, k: u32, v: u32, g: u32, beta: u32, state: u32, dy: u32, dnext: u32,
    dq: u32, dk: u32, dv: u32, dg: u32, dbeta: u32, dstate: u32,
    starts: u32, states: u32,
}
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> memory: array<f32>;

var<workgroup> slope: array<f32, ROWS * KEYS>;
var<workgroup> one: array<f32, 256>;
var<workgroup> two: array<f32, 256>;
var<workgroup> seen: array<f32, ROWS>;
var<workgroup> learnt: array<f32, ROWS>;
var<workgroup> dknown: array<f32, ROWS>;
var<workgroup> dbetas: array<f32, ROWS>;

// The state of this thread's row, at its keys.
var<private> s: array<f32, EACH>;
var<private> head: u32;
var<private> lane: u32;
var<private> row: u32;

fn key_at(t: u32) -> u32 { return (head / p.shared_heads * p.steps + t) * KEYS; }
fn gate(t: u32, key: u32) -> f32 {
    return memory[p.g + (head * p.steps + t) * GATES + gate_of(key)];
}
fn value(t: u32) -> f32 {
    if (row >= p.values) { return 0.0; }
    return memory[p.v + (head * p.steps + t) * p.values + row];
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
            sum += s[e] * memory[at + key];
        }
    }
    one[thread] = sum;
    workgroupBarrier();
    let change = wrong_by(t, sum_of_one(thread)) * memory[p.beta + head * p.steps + t];
    for (var e = 0u; e < EACH; e++) {
        let key = lane + e * LANES;
        if (key < KEYS) { s[e] += memory[at + key] * change; }
    }
    workgroupBarrier();
}

// One step of the gradients; `i` is its place in the chunk.
fn back(t: u32, i: u32, block: u32, thread: u32) {
    let step = head * p.steps + t;
    let at = key_at(t);
    let r = thread / LANES;
    let before = state_at(i);
    let after = state_at(i + 1u);
    var dy = 0.0;
    if (row < p.values) { dy = memory[p.dy + step * p.values + row]; }
    // Through the result, and to what was learnt.
    var dlearnt = 0.0;
    var known = 0.0;
    for (var e = 0u; e < EACH; e++) {
        let key = lane + e * LANES;
        if (key < KEYS) {
            let place = r * KEYS + key;
            let factor = memory[p.k + at + key];
            slope[place] += dy * memory[p.q + at + key];
            dlearnt += slope[place] * factor;
            known += memory[before + place] * gate(t, key) * factor;
        }
    }
    one[thread] = dlearnt;
    two[thread] = known;
    workgroupBarrier();
    if (lane == 0u) {
        dlearnt = sum_of_one(thread);
        known = 0.0;
        for (var j = 0u; j < USED; j++) { known += two[thread + j]; }
        let rate = memory[p.beta + step];
        let wrong = wrong_by(t, known);
        seen[r] = dy;
        learnt[r] = wrong * rate;
        dknown[r] = select(0.0, -dlearnt * rate, CORRECTS);
        dbetas[r] = dlearnt * wrong;
        if (row < p.values) { memory[p.dv + step * p.values + row] = dlearnt * rate; }
    }
    workgroupBarrier();
    // Through what was known, and what was forgotten: a thread for each key.
    var dgates = 0.0;
    for (var key = thread; key < KEYS; key += 256u) {
        let factor = memory[p.k + at + key];
        let g = gate(t, key);
        var dquery = 0.0;
        var dkey = 0.0;
        var dgate = 0.0;
        for (var j = 0u; j < ROWS; j++) {
            let place = j * KEYS + key;
            let old = memory[before + place];
            dquery += seen[j] * memory[after + place];
            dkey += learnt[j] * slope[place] + dknown[j] * old * g;
            let ddecayed = slope[place] + dknown[j] * factor;
            dgate += ddecayed * old;
            slope[place] = ddecayed * g;
        }
        // Blocks of rows add up, in their order.
        if (block > 0u) {
            dquery += memory[p.dq + step * KEYS + key];
            dkey += memory[p.dk + step * KEYS + key];
        }
        memory[p.dq + step * KEYS + key] = dquery;
        memory[p.dk + step * KEYS + key] = dkey;
        if (GATES == KEYS) {
            if (block > 0u) { dgate += memory[p.dg + step * GATES + key]; }
            memory[p.dg + step * GATES + key] = dgate;
        }
        dgates += dgate;
    }
    one[thread] = dgates;
    workgroupBarrier();
    if (thread == 0u) {
        var dbeta = 0.0;
        for (var j = 0u; j < ROWS; j++) { dbeta += dbetas[j]; }
        if (block > 0u) { dbeta += memory[p.dbeta + step]; }
        memory[p.dbeta + step] = dbeta;
        if (GATES != KEYS) {
            dgates = 0.0;
            for (var j = 0u; j < min(256u, KEYS); j++) { dgates += one[j]; }
            if (block > 0u) { dgates += memory[p.dg + step]; }
            memory[p.dg + step] = dgates;
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.heads) { return; }
    head = group;
    lane = thread % LANES;
    let chunks = (p.steps + p.chunk - 1u) / p.chunk;
    for (var block = 0u; block < p.values; block += ROWS) {
        row = block + thread / LANES;
        let row_at = (head * p.values + row) * KEYS;
        for (var e = 0u; e < EACH; e++) {
            let key = lane + e * LANES;
            s[e] = 0.0;
            if (key < KEYS) {
                var end = 0.0;
                if (row < p.values) {
                    s[e] = memory[p.state + row_at + key];
                    end = memory[p.dnext + row_at + key];
                }
                slope[thread / LANES * KEYS + key] = end;
            }
        }
        for (var t = 0u; t < p.steps; t++) {
            if (t % p.chunk == 0u) { keep(start_at(t / p.chunk), thread); }
            advance(t, thread);
        }
        for (var c = 0u; c < chunks; c++) {
            let chunk = chunks - 1u - c;
            let start = chunk * p.chunk;
            let count = min(p.chunk, p.steps - start);
            for (var e = 0u; e < EACH; e++) {
                let key = lane + e * LANES;
                if (key < KEYS) { s[e] = memory[start_at(chunk) + thread / LANES * KEYS + key]; }
            }
            for (var i = 0u; i < count; i++) {
                keep(state_at(i), thread);
                advance(start + i, thread);
            }
            keep(state_at(count), thread);
            // Sums over rows read what other threads kept.
            storageBarrier();
            workgroupBarrier();
            for (var i = 0u; i < count; i++) {
                back(start + count - 1u - i, count - 1u - i, block, thread);
            }
            // The next chunk writes where this one was read.
            storageBarrier();
            workgroupBarrier();
        }
        for (var e = 0u; e < EACH; e++) {
            let key = lane + e * LANES;
            if (row < p.values && key < KEYS) {
                memory[p.dstate + row_at + key] = slope[thread / LANES * KEYS + key];
            }
        }
        workgroupBarrier();
    }
}
