// A workgroup walks through some steps with a block of a head's rows. A row has LANES threads, each
// with every LANES-th key of it.
struct Params {
    groups: u32, blocks: u32, steps: u32, values: u32, shared_heads: u32,
    first: u32, end: u32,
    q: u32, k: u32, v: u32, g: u32, beta: u32, state: u32,
}
var<immediate> p: Params;

var<workgroup> known: array<f32, 256>;
var<workgroup> seen: array<f32, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let head = group / p.blocks;
    let row = (group % p.blocks) * ROWS + thread / LANES;
    let lane = thread % LANES;
    let first = thread - lane;
    let inside = row < p.values;
    let state_start = (head * p.values + row) * KEYS;
    let key_start = head / p.shared_heads * p.steps * KEYS;

    var s: array<f32, EACH>;
    for (var e = 0u; e < EACH; e++) {
        let key = lane + e * LANES;
        s[e] = 0.0;
        if (inside && key < KEYS) { s[e] = state(p.state + state_start + key); }
    }
    for (var t = p.first; t < p.end; t++) {
        let at = key_start + t * KEYS;
        let step = head * p.steps + t;
        var sum = 0.0;
        for (var e = 0u; e < EACH; e++) {
            let key = lane + e * LANES;
            if (key < KEYS) {
                s[e] *= g(p.g + step * GATES + gate_of(key));
                sum += s[e] * k(p.k + at + key);
            }
        }
        known[thread] = sum;
        workgroupBarrier();
        sum = 0.0;
        for (var i = 0u; i < LANES; i++) { sum += known[first + i]; }
        var value = 0.0;
        if (inside) { value = v(p.v + step * p.values + row); }
        if (CORRECTS) { value -= sum; }
        let learnt = value * beta(p.beta + step);
        sum = 0.0;
        for (var e = 0u; e < EACH; e++) {
            let key = lane + e * LANES;
            if (key < KEYS) {
                s[e] += k(p.k + at + key) * learnt;
                sum += s[e] * q(p.q + at + key);
            }
        }
        seen[thread] = sum;
        workgroupBarrier();
        if (inside && lane == 0u) {
            sum = 0.0;
            for (var i = 0u; i < LANES; i++) { sum += seen[first + i]; }
            y_set(step * p.values + row, sum);
        }
    }
    for (var e = 0u; e < EACH; e++) {
        let key = lane + e * LANES;
        if (inside && key < KEYS) { next_set(state_start + key, s[e]); }
    }
}
