// A workgroup takes COLS values of a head through some chunks of its steps. Within a chunk what is
// learnt solves a triangular system; products of gates decay what lies between two steps.
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32, /* SUBGROUP */
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let kept = group / p.blocks;
    let head = p.first_head + kept;
    let key_head = head / p.shared_heads;
    let first = group % p.blocks * COLS;
    let value = first + thread % COLS;
    let inside = value < p.values && has_rows(thread);
    clear(thread);
    for (var i = thread; i < WHOLE_KEYS * COLS; i += 256u) {
        let at = first + i % COLS;
        s[i] = 0.0;
        if (at < p.values && i / COLS < KEYS) { s[i] = given((head * p.values + at) * KEYS + i / COLS); }
    }
    for (var chunk = p.first_chunk; chunk < p.end_chunk; chunk++) {
        let start = chunk * STEPS;
        let count = min(STEPS, p.steps - start);
        let step = head * p.steps + start;
        let row = (key_head * p.steps + start) * KEYS;
        let pairs = p.pairs + chunk_of(key_head, chunk) * PAIRS;
        find_rates(thread, step, count);
        let decays = find_decays(thread, step, count);
        let left = from_start[count - 1u];
        if (KEEPS) {
            for (var i = thread; i < KEYS * COLS; i += 256u) {
                let at = first + i % COLS;
                if (at < p.values) { keep_state(kept, chunk, i / COLS, at, s[i]); }
            }
        }
        let looked = look(row, count, thread, subgroup);
        for (var i = 0u; i < OWN; i++) {
            let t = row_of(thread, i);
            var wrong = 0.0;
            if (inside && t < count) {
                wrong = v(p.v + (step + t) * p.values + value);
                if (CORRECTS) { wrong -= from_start[t] * looked.known.x[i]; }
            }
            if (has_rows(thread)) { u[t * COLS + thread % COLS] = wrong; }
        }
        if (CORRECTS) {
            relate(true, pairs, decays, count, thread);
            solve(count, thread, subgroup);
        }
        for (var i = 0u; i < OWN; i++) {
            let t = row_of(thread, i);
            var learnt = 0.0;
            if (inside && t < count) {
                let wrong = u[t * COLS + thread % COLS];
                learnt = wrong * rate[t];
                if (KEEPS) { keep_learnt((kept * p.steps + start + t) * p.values + value, wrong, learnt); }
            }
            if (has_rows(thread)) { u[t * COLS + thread % COLS] = learnt; }
        }
        workgroupBarrier();
        if (RESULTS) {
            relate(false, pairs, decays, count, thread);
            let own = related(count, thread, subgroup);
            for (var i = 0u; i < OWN; i++) {
                let t = row_of(thread, i);
                if (inside && t < count) {
                    y_set((step + t) * p.values + value, from_start[t] * looked.seen.x[i] + own.x[i]);
                }
            }
        }
        for (var i = 0u; i < OWN; i++) {
            let t = row_of(thread, i);
            if (inside && t < count) { u[t * COLS + thread % COLS] *= to_end[t]; }
        }
        workgroupBarrier();
        absorb(left, false, row, count, thread, subgroup);
    }
    for (var i = thread; i < KEYS * COLS; i += 256u) {
        let at = first + i % COLS;
        if (at < p.values) { leave((head * p.values + at) * KEYS + i / COLS, s[i]); }
    }
}
