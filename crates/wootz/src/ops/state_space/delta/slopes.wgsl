// A workgroup takes COLS values of a head back through the chunks of its steps: the gradient of the
// state, and of what is learnt in each chunk, which solves the transposed triangular system.
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let kept = group / p.blocks;
    let head = p.first_head + kept;
    let first = group % p.blocks * COLS;
    let col = thread % COLS;
    let line = thread / COLS;
    let inside = first + col < p.values;
    for (var i = thread; i < KEYS * COLS; i += 256u) {
        let at = first + i % COLS;
        s[i] = 0.0;
        if (at < p.values) { s[i] = memory[p.dnext + (head * p.values + at) * KEYS + i / COLS]; }
    }
    let chunks = (p.steps + STEPS - 1u) / STEPS;
    for (var c = 0u; c < chunks; c++) {
        let chunk = chunks - 1u - c;
        let start = chunk * STEPS;
        let count = min(STEPS, p.steps - start);
        let step = head * p.steps + start;
        let row = (head / p.shared_heads * p.steps + start) * KEYS;
        for (var i = thread; i < KEYS * COLS; i += 256u) {
            let at = first + i % COLS;
            if (at < p.values) { memory[p.ends + state_at(kept, chunk, i / COLS) + at] = s[i]; }
        }
        find_decays(thread, step, count);
        find_seen(thread, step, row, count);
        workgroupBarrier();
        for (var t = line; t < count; t += LINES) {
            var sum = 0.0;
            for (var key = 0u; key < KEYS; key++) {
                sum += to_end[t] * k(row + t * KEYS + key) * s[key * COLS + col];
            }
            if (inside) {
                for (var i = t; i < count; i++) {
                    sum += m[i * STEPS + t] * memory[p.dy + (step + i) * p.values + first + col];
                }
            }
            u[t * COLS + col] = sum;
        }
        workgroupBarrier();
        find_known(thread, step, row, count);
        workgroupBarrier();
        if (thread < COLS) {
            for (var i = 0u; i < count; i++) {
                let t = count - 1u - i;
                var sum = u[t * COLS + thread];
                if (CORRECTS) {
                    for (var j = t + 1u; j < count; j++) {
                        sum += m[j * STEPS + t] * u[j * COLS + thread];
                    }
                }
                let dwrong = sum * beta(step + t);
                u[t * COLS + thread] = dwrong;
                if (inside) {
                    memory[p.dlearnt + (kept * p.steps + start + t) * p.values + first + thread] = sum;
                    memory[p.dv + (step + t) * p.values + first + thread] = dwrong;
                }
            }
        }
        workgroupBarrier();
        for (var i = thread; i < KEYS * COLS; i += 256u) {
            let key = i / COLS;
            let at = first + i % COLS;
            var sum = s[i] * from_start[count - 1u];
            if (at < p.values) {
                for (var t = 0u; t < count; t++) {
                    let result = memory[p.dy + (step + t) * p.values + at];
                    sum += from_start[t] * q(row + t * KEYS + key) * result;
                    if (CORRECTS) {
                        sum -= from_start[t] * k(row + t * KEYS + key) * u[t * COLS + i % COLS];
                    }
                }
            }
            s[i] = sum;
        }
        workgroupBarrier();
    }
    for (var i = thread; i < KEYS * COLS; i += 256u) {
        let at = first + i % COLS;
        if (at < p.values) { memory[p.dstate + (head * p.values + at) * KEYS + i / COLS] = s[i]; }
    }
}
