// A workgroup takes COLS values of a head through the chunks of its steps. Within a chunk what is
// learnt solves a triangular system; products of gates decay what lies between two steps.
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let head = first_head() + group / p.blocks;
    let first = group % p.blocks * COLS;
    let col = thread % COLS;
    let line = thread / COLS;
    let inside = first + col < p.values;
    for (var i = thread; i < KEYS * COLS; i += 256u) {
        let at = first + i % COLS;
        s[i] = 0.0;
        if (at < p.values) { s[i] = state((head * p.values + at) * KEYS + i / COLS); }
    }
    for (var start = 0u; start < p.steps; start += STEPS) {
        let count = min(STEPS, p.steps - start);
        let step = head * p.steps + start;
        let row = (head / p.shared_heads * p.steps + start) * KEYS;
        if (KEEPS) {
            for (var i = thread; i < KEYS * COLS; i += 256u) {
                let at = first + i % COLS;
                if (at < p.values) { keep_state(group / p.blocks, start / STEPS, i / COLS, at, s[i]); }
            }
        }
        find_decays(thread, step, count);
        find_known(thread, step, row, count);
        workgroupBarrier();
        for (var t = line; t < count; t += LINES) {
            var wrong = 0.0;
            if (inside) { wrong = v((step + t) * p.values + first + col); }
            if (CORRECTS) {
                var known = 0.0;
                for (var key = 0u; key < KEYS; key++) {
                    known += k(row + t * KEYS + key) * s[key * COLS + col];
                }
                wrong -= from_start[t] * known;
            }
            u[t * COLS + col] = wrong;
        }
        workgroupBarrier();
        if (thread < COLS) {
            for (var t = 0u; t < count; t++) {
                var wrong = u[t * COLS + thread];
                if (CORRECTS) {
                    for (var j = 0u; j < t; j++) { wrong += m[t * STEPS + j] * u[j * COLS + thread]; }
                }
                let learnt = wrong * beta(step + t);
                u[t * COLS + thread] = learnt;
                if (KEEPS && inside) {
                    keep_learnt(group / p.blocks, start + t, first + thread, wrong, learnt);
                }
            }
        }
        workgroupBarrier();
        if (RESULTS) {
            find_seen(thread, step, row, count);
            workgroupBarrier();
            for (var t = line; t < count; t += LINES) {
                var seen = 0.0;
                for (var key = 0u; key < KEYS; key++) {
                    seen += q(row + t * KEYS + key) * s[key * COLS + col];
                }
                seen *= from_start[t];
                for (var j = 0u; j <= t; j++) { seen += m[t * STEPS + j] * u[j * COLS + col]; }
                if (inside) { y_set((step + t) * p.values + first + col, seen); }
            }
            workgroupBarrier();
        }
        for (var i = thread; i < KEYS * COLS; i += 256u) {
            var sum = s[i] * from_start[count - 1u];
            for (var j = 0u; j < count; j++) {
                sum += to_end[j] * k(row + j * KEYS + i / COLS) * u[j * COLS + i % COLS];
            }
            s[i] = sum;
        }
        workgroupBarrier();
    }
    if (RESULTS) {
        for (var i = thread; i < KEYS * COLS; i += 256u) {
            let at = first + i % COLS;
            if (at < p.values) { next_set((head * p.values + at) * KEYS + i / COLS, s[i]); }
        }
    }
}
