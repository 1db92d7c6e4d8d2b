// A workgroup has a chunk of a head's steps: the gradients of its queries, keys, gates and rates, from
// the state before it, the gradient of the state behind it, and what was learnt.
const LANES = 256u / STEPS;

// Products of the gradients of what was wrong, and of the results, with what was learnt; both decayed.
var<workgroup> e: array<f32, STEPS * STEPS>;
var<workgroup> f: array<f32, STEPS * STEPS>;
// The gradients of decays between two steps, and from the start.
var<workgroup> ddecay: array<f32, STEPS * STEPS>;
var<workgroup> dstart: array<f32, STEPS>;
var<workgroup> one: array<f32, 256>;
var<workgroup> two: array<f32, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    // Here the blocks are chunks.
    let kept = group / p.blocks;
    let chunk = group % p.blocks;
    let head = p.first_head + kept;
    let start = chunk * STEPS;
    let count = min(STEPS, p.steps - start);
    let step = head * p.steps + start;
    let row = (head / p.shared_heads * p.steps + start) * KEYS;
    // Rows of values: of this head's arrays, and of what is kept.
    let values_at = step * p.values;
    let kept_at = (kept * p.steps + start) * p.values;

    for (var i = thread; i < STEPS * STEPS; i += 256u) {
        let t = i / STEPS;
        let j = i % STEPS;
        var of_wrong = 0.0;
        var of_result = 0.0;
        var slope = 0.0;
        if (j <= t && t < count) {
            let learnt = p.learnt + kept_at + j * p.values;
            for (var at = 0u; at < p.values; at++) {
                let x = memory[learnt + at];
                of_result += memory[p.dy + values_at + t * p.values + at] * x;
                if (CORRECTS) { of_wrong += memory[p.dv + values_at + t * p.values + at] * x; }
            }
            if (j < t) {
                slope = of_result * of_query(row + t * KEYS, row + j * KEYS);
                if (CORRECTS) {
                    slope -= of_wrong * of_keys(row + t * KEYS, row + j * KEYS);
                }
            } else {
                of_wrong = 0.0;
            }
            let decay = gates(step, j + 1u, t);
            of_wrong *= decay;
            of_result *= decay;
        }
        e[i] = of_wrong;
        f[i] = of_result;
        ddecay[i] = slope;
    }
    // The whole of the first state's decay acts on the state behind the chunk.
    var whole = 0.0;
    for (var i = thread; i < KEYS * p.values; i += 256u) {
        let at = state_at(kept, chunk, i / p.values) + i % p.values;
        whole += memory[p.starts + at] * memory[p.ends + at];
    }
    one[thread] = whole;
    workgroupBarrier();
    if (thread == 0u) {
        whole = 0.0;
        for (var i = 0u; i < 256u; i++) { whole += one[i]; }
        dstart[0] = whole;
    }
    workgroupBarrier();
    whole = dstart[0];
    workgroupBarrier();

    let t = thread / LANES;
    let lane = thread % LANES;
    var from_state = 0.0;
    var to_state = 0.0;
    if (t < count) {
        let from_start = gates(step, 0u, t);
        let to_end = gates(step, t + 1u, count - 1u);
        let rows = values_at + t * p.values;
        for (var key = lane; key < KEYS; key += LANES) {
            let at = state_at(kept, chunk, key);
            var of_result = 0.0;
            var of_wrong = 0.0;
            var of_learnt = 0.0;
            for (var i = 0u; i < p.values; i++) {
                let before = memory[p.starts + at + i];
                of_result += memory[p.dy + rows + i] * before;
                if (CORRECTS) { of_wrong += memory[p.dv + rows + i] * before; }
                of_learnt += memory[p.learnt + kept_at + t * p.values + i] * memory[p.ends + at + i];
            }
            let query = q(row + t * KEYS + key);
            let factor = k(row + t * KEYS + key);
            from_state += query * of_result;
            to_state += factor * of_learnt;
            var dquery = from_start * of_result;
            var dkey = to_end * of_learnt;
            if (CORRECTS) {
                from_state -= factor * of_wrong;
                dkey -= from_start * of_wrong;
            }
            for (var j = 0u; j <= t; j++) { dquery += f[t * STEPS + j] * k(row + j * KEYS + key); }
            for (var j = t; j < count; j++) { dkey += f[j * STEPS + t] * q(row + j * KEYS + key); }
            if (CORRECTS) {
                for (var j = 0u; j < t; j++) { dkey -= e[t * STEPS + j] * k(row + j * KEYS + key); }
                for (var j = t + 1u; j < count; j++) {
                    dkey -= e[j * STEPS + t] * k(row + j * KEYS + key);
                }
            }
            memory[p.dq + (step + t) * KEYS + key] = dquery;
            memory[p.dk + (step + t) * KEYS + key] = dkey;
        }
    }
    one[thread] = from_state;
    two[thread] = to_state;
    workgroupBarrier();
    if (thread < count) {
        var sum = 0.0;
        var end = 0.0;
        for (var i = 0u; i < LANES; i++) {
            sum += one[thread * LANES + i];
            end += two[thread * LANES + i];
        }
        if (thread == count - 1u) { sum += whole; }
        dstart[thread] = sum;
        if (thread < count - 1u) { ddecay[(count - 1u) * STEPS + thread] += end; }
        var dbeta = 0.0;
        for (var i = 0u; i < p.values; i++) {
            let at = kept_at + thread * p.values + i;
            dbeta += memory[p.dlearnt + at] * memory[p.wrong + at];
        }
        memory[p.dbeta + step + thread] = dbeta;
    }
    workgroupBarrier();
    // A gate is in all decays from a step before it to one that is not.
    if (thread < count) {
        var behind = 1.0;
        var sum = 0.0;
        for (var i = thread; i < count; i++) {
            if (i > thread) { behind *= g(step + i); }
            var before = 1.0;
            var of_step = 0.0;
            for (var back = 0u; back < thread; back++) {
                let j = thread - 1u - back;
                of_step += before * ddecay[i * STEPS + j];
                before *= g(step + j);
            }
            of_step += before * dstart[i];
            sum += behind * of_step;
        }
        memory[p.dg + step + thread] = sum;
    }
}
