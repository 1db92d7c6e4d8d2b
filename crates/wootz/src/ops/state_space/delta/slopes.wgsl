// A workgroup takes COLS values of a head back through some chunks of its steps: the gradient of the
// state, and of what is learnt in each chunk, which solves the transposed triangular system.
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
    for (var behind = p.end_chunk; behind > p.first_chunk; behind--) {
        let chunk = behind - 1u;
        let start = chunk * STEPS;
        let count = min(STEPS, p.steps - start);
        let step = head * p.steps + start;
        let row = (key_head * p.steps + start) * KEYS;
        let pairs = p.pairs + chunk_of(key_head, chunk) * PAIRS;
        find_rates(thread, step, count);
        let decays = find_decays(thread, step, count);
        let left = from_start[count - 1u];
        for (var i = thread; i < KEYS * COLS; i += 256u) {
            let at = first + i % COLS;
            if (at < p.values) { memory[p.ends + end_at(kept, chunk, i / COLS) + at] = s[i]; }
        }
        let looked = look(row, count, thread, subgroup);
        var results: Rows;
        for (var i = 0u; i < OWN; i++) {
            let t = row_of(thread, i);
            if (inside && t < count) { results.x[i] = dy(p.dy + (step + t) * p.values + value); }
            if (has_rows(thread)) { u[t * COLS + thread % COLS] = results.x[i]; }
        }
        relate(false, pairs, decays, count, thread);
        let own = related(count, thread, subgroup);
        for (var i = 0u; i < OWN; i++) {
            let t = row_of(thread, i);
            if (inside && t < count) {
                u[t * COLS + thread % COLS] = to_end[t] * looked.known.x[i] + own.x[i];
            }
        }
        if (CORRECTS) {
            relate(true, pairs, decays, count, thread);
            solve(count, thread, subgroup);
        }
        for (var i = 0u; i < OWN; i++) {
            let t = row_of(thread, i);
            var dwrong = 0.0;
            if (inside && t < count) {
                let dlearnt = u[t * COLS + thread % COLS];
                dwrong = dlearnt * rate[t];
                memory[p.dlearnt + (kept * p.steps + start + t) * p.values + value] = dlearnt;
                memory[p.dv + (step + t) * p.values + value] = dwrong;
                dwrong *= -from_start[t];
            }
            if (has_rows(thread)) { u[t * COLS + thread % COLS] = dwrong; }
        }
        workgroupBarrier();
        if (CORRECTS) { absorb(left, false, row, count, thread, subgroup); }
        for (var i = 0u; i < OWN; i++) {
            let t = row_of(thread, i);
            if (inside && t < count) { u[t * COLS + thread % COLS] = from_start[t] * results.x[i]; }
        }
        workgroupBarrier();
        absorb(select(left, 1.0, CORRECTS), true, row, count, thread, subgroup);
    }
    for (var i = thread; i < KEYS * COLS; i += 256u) {
        let at = first + i % COLS;
        if (at < p.values) { leave((head * p.values + at) * KEYS + i / COLS, s[i]); }
    }
}
