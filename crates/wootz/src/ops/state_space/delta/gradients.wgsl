// A workgroup has STEPS keys of a chunk of a head's steps: the gradients of its queries and keys, from the
// state before it, the gradient of the state behind it, what was learnt and the gradient of what was wrong.
// It leaves sums over its keys, for the gradients of gates.
const PARTS = (KEYS + STEPS - 1u) / STEPS;
const SIDE = STEPS * PITCH;

// Products of the results' gradients with what was learnt, and of those of what was wrong with its sign
// changed, which are the same for both of two steps; both decayed.
var<workgroup> of_results: array<f32, STEPS * M_PITCH>;
var<workgroup> of_wrongs: array<f32, STEPS * M_PITCH>;

// A thread has two steps of two keys.
fn step_of(thread: u32, i: u32) -> u32 { return thread / 16u + i / 2u * 16u; }
fn key_of(thread: u32, i: u32) -> u32 { return thread % 16u + i % 2u * 16u; }

// What the rows of a chunk make of states: results' gradients and those of what was wrong of the one before,
// what was learnt of the gradient of the one behind.
struct Through { of_results: vec4<f32>, of_wrongs: vec4<f32>, of_learnt: vec4<f32> }

fn stage_keys(of_queries: bool, row: u32, count: u32, start: u32, thread: u32) {
    for (var i = thread; i < STEPS * STEPS; i += 256u) {
        let t = i / STEPS;
        let key = i % STEPS;
        var x = 0.0;
        if (t < count && start + key < KEYS) {
            let source = row + t * KEYS + start + key;
            if (of_queries) { x = q(p.q + source); } else { x = k(p.k + source); }
        }
        tile[t * M_PITCH + key] = x;
    }
    workgroupBarrier();
}

fn four_of_keys(thread: u32) -> vec4<f32> {
    var x: vec4<f32>;
    for (var i = 0u; i < 4u; i++) { x[i] = tile[step_of(thread, i) * M_PITCH + key_of(thread, i)]; }
    return x;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32, /* SUBGROUP */
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let first = group % PARTS * STEPS;
    let own = p.blocks / PARTS;
    let chunk = p.first_chunk + group / PARTS % own;
    let kept = group / p.blocks;
    let head = p.first_head + kept;
    let start = chunk * STEPS;
    let count = min(STEPS, p.steps - start);
    let step = head * p.steps + start;
    let row = (head / p.shared_heads * p.steps + start) * KEYS;
    clear(thread);
    let decays = find_decays(thread, step, count);
    let pairs = p.slopes + chunk_of(kept, chunk) * PAIRS;
    let earlier = earlier_of(thread);
    for (var i = 0u; i < 4u; i++) {
        let later = later_of(thread, i);
        let at = later * STEPS + earlier;
        var of_result = 0.0;
        var of_wrong = 0.0;
        if (earlier <= later && later < count) {
            of_result = decays[i] * memory[pairs + SECOND + at];
            if (CORRECTS && earlier < later) { of_wrong = -decays[i] * memory[pairs + at]; }
        }
        of_results[later * M_PITCH + earlier] = of_result;
        if (earlier <= later) {
            of_wrongs[later * M_PITCH + earlier] = of_wrong;
            of_wrongs[earlier * M_PITCH + later] = of_wrong;
        }
    }
    // The whole of the first state's decay acts on the state behind the chunk.
    var whole = 0.0;
    var sums = nothing_through();
    for (var value = 0u; value < p.values; value += DEPTH) {
        for (var i = thread; i < STEPS * DEPTH; i += 256u) {
            let t = i / DEPTH;
            let at = value + i % DEPTH;
            let to = t * PITCH + i % DEPTH;
            var result = 0.0;
            var wrong = 0.0;
            var learnt = 0.0;
            if (t < count && at < p.values) {
                result = dy(p.dy + (step + t) * p.values + at);
                if (CORRECTS) { wrong = memory[p.dv + (step + t) * p.values + at]; }
                learnt = memory[p.learnt + (kept * p.steps + start + t) * p.values + at];
            }
            tile[to] = result;
            tile[SIDE + to] = wrong;
            tile[2u * SIDE + to] = learnt;
            var before = 0.0;
            var behind = 0.0;
            if (first + t < KEYS && at < p.values) {
                before = memory[p.starts + state_at(kept, chunk, first + t) + at];
                behind = memory[p.ends + end_at(kept, chunk, first + t) + at];
            }
            tile[3u * SIDE + to] = before;
            tile[4u * SIDE + to] = behind;
            whole += before * behind;
        }
        workgroupBarrier();
        add_through(&sums, thread, subgroup);
        workgroupBarrier();
    }
    let through = through_of(&sums, thread, subgroup);

    stage_keys(false, row, count, first, thread);
    var products = no_products();
    add_keys(&products, count, thread, subgroup);
    let factors = four_of_keys(thread);
    workgroupBarrier();
    stage_keys(true, row, count, first, thread);
    add_queries(&products, count, thread, subgroup);
    let queries = four_of_keys(thread);
    workgroupBarrier();
    let dqueries = dqueries_of(&products, thread, subgroup);
    let dkeys = dkeys_of(&products, thread, subgroup);
    var starts = queries * through.of_results;
    if (CORRECTS) { starts -= factors * through.of_wrongs; }
    let ends = factors * through.of_learnt;
    for (var i = 0u; i < 4u; i++) {
        let t = step_of(thread, i);
        let key = first + key_of(thread, i);
        if (t < count && key < KEYS) {
            let to = (step + t) * KEYS + key;
            memory[p.dq + to] = from_start[t] * through.of_results[i] + dqueries[i];
            var dkey = to_end[t] * through.of_learnt[i] + dkeys[i];
            if (CORRECTS) { dkey -= from_start[t] * through.of_wrongs[i]; }
            memory[p.dk + to] = dkey;
        }
    }
    // Sums over the keys: of each step 16 threads have two, for it and the step 16 behind it.
    let place = thread / 16u * 17u + thread % 16u;
    tile[place] = starts.x + starts.y;
    tile[16u * 17u + place] = starts.z + starts.w;
    tile[32u * 17u + place] = ends.x + ends.y;
    tile[48u * 17u + place] = ends.z + ends.w;
    workgroupBarrier();
    let to = p.sums + group * 3u * STEPS;
    if (thread < 2u * STEPS) {
        var sum = 0.0;
        for (var i = 0u; i < 16u; i++) { sum += tile[thread * 17u + i]; }
        memory[to + thread] = sum;
    }
    workgroupBarrier();
    tile[thread] = whole;
    workgroupBarrier();
    if (thread < STEPS) {
        var sum = 0.0;
        for (var i = 0u; i < 8u; i++) { sum += tile[thread * 8u + i]; }
        memory[to + 2u * STEPS + thread] = sum;
    }
}
