// A workgroup has a chunk of a head's steps: the gradients of its rates and gates. Those of what lies between
// two steps are products of others, of which a gate is in all from a step before it to one that is not.
const PARTS = (KEYS + STEPS - 1u) / STEPS;
const LANES = 256u / STEPS;
var<workgroup> lanes: array<f32, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let kept = group / p.blocks;
    let chunk = p.first_chunk + group % p.blocks;
    let head = p.first_head + kept;
    let start = chunk * STEPS;
    let count = min(STEPS, p.steps - start);
    let step = head * p.steps + start;
    if (thread < count) { gate[thread] = g(p.g + step + thread); }
    let of_keys = p.pairs + chunk_of(head / p.shared_heads, chunk) * PAIRS;
    let of_values = p.slopes + group * PAIRS;
    let earlier = earlier_of(thread);
    for (var i = 0u; i < 4u; i++) {
        let later = later_of(thread, i);
        let at = later * STEPS + earlier;
        var slope = 0.0;
        if (earlier < later && later < count) {
            slope = memory[of_values + SECOND + at] * memory[of_keys + SECOND + at];
            if (CORRECTS) { slope -= memory[of_values + at] * memory[of_keys + at]; }
        }
        tile[later * M_PITCH + earlier] = slope;
    }
    workgroupBarrier();
    // Decays from the start, and to the end.
    let sums = p.sums + group * PARTS * 3u * STEPS;
    if (thread < count) {
        var of_start = 0.0;
        var of_end = 0.0;
        for (var part = 0u; part < PARTS; part++) {
            of_start += memory[sums + part * 3u * STEPS + thread];
            of_end += memory[sums + (part * 3u + 1u) * STEPS + thread];
        }
        if (thread == count - 1u) {
            for (var part = 0u; part < PARTS; part++) {
                for (var i = 0u; i < STEPS; i++) { of_start += memory[sums + (part * 3u + 2u) * STEPS + i]; }
            }
        } else {
            tile[(count - 1u) * M_PITCH + thread] += of_end;
        }
        from_start[thread] = of_start;
    }
    let t = thread / LANES;
    let lane = thread % LANES;
    var sum = 0.0;
    if (t < count) {
        for (var value = lane; value < p.values; value += LANES) {
            let at = (kept * p.steps + start + t) * p.values + value;
            sum += memory[p.dlearnt + at] * memory[p.wrong + at];
        }
    }
    lanes[thread] = sum;
    workgroupBarrier();
    if (thread < count) {
        sum = 0.0;
        for (var i = 0u; i < LANES; i++) { sum += lanes[thread * LANES + i]; }
        memory[p.dbeta + step + thread] = sum;
        var behind = 1.0;
        var slope = 0.0;
        for (var i = thread; i < count; i++) {
            if (i > thread) { behind *= gate[i]; }
            var before = 1.0;
            var of_step = 0.0;
            for (var back = 0u; back < thread; back++) {
                let j = thread - 1u - back;
                of_step += before * tile[i * M_PITCH + j];
                before *= gate[j];
            }
            of_step += before * from_start[i];
            slope += behind * of_step;
        }
        memory[p.dg + step + thread] = slope;
    }
}
