// A workgroup takes COLS values of a head back through the chunks of its steps: the gradient of the
// state, and of what is learnt in each chunk, which solves the transposed triangular system.
var<workgroup> s: array<f32, KEYS * COLS>;
var<workgroup> m: array<f32, STEPS * STEPS>;
var<workgroup> u: array<f32, STEPS * COLS>;
var<workgroup> from_start: array<f32, STEPS>;
var<workgroup> to_end: array<f32, STEPS>;

const LINES = 256u / COLS;

fn gates(step: u32, first: u32, last: u32) -> f32 {
    var product = 1.0;
    for (var i = first; i <= last; i++) { product *= g(step + i); }
    return product;
}

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
        if (thread < count) {
            from_start[thread] = gates(step, 0u, thread);
            to_end[thread] = gates(step, thread + 1u, count - 1u);
        }
        for (var e = thread; e < STEPS * STEPS; e += 256u) {
            let t = e / STEPS;
            let j = e % STEPS;
            var seen = 0.0;
            if (j <= t && t < count) {
                for (var key = 0u; key < KEYS; key++) {
                    seen += q(row + t * KEYS + key) * k(row + j * KEYS + key);
                }
                seen *= gates(step, j + 1u, t);
            }
            m[e] = seen;
        }
        workgroupBarrier();
        for (var t = line; t < count; t += LINES) {
            var sum = 0.0;
            for (var key = 0u; key < KEYS; key++) {
                sum += k(row + t * KEYS + key) * s[key * COLS + col];
            }
            sum *= to_end[t];
            if (inside) {
                for (var i = t; i < count; i++) {
                    sum += m[i * STEPS + t] * memory[p.dy + (step + i) * p.values + first + col];
                }
            }
            u[t * COLS + col] = sum;
        }
        workgroupBarrier();
        for (var e = thread; e < STEPS * STEPS; e += 256u) {
            let t = e / STEPS;
            let j = e % STEPS;
            var known = 0.0;
            if (CORRECTS && j < t && t < count) {
                for (var key = 0u; key < KEYS; key++) {
                    known += k(row + t * KEYS + key) * k(row + j * KEYS + key);
                }
                known *= -gates(step, j + 1u, t);
            }
            m[e] = known;
        }
        workgroupBarrier();
        if (thread < COLS) {
            for (var i = 0u; i < count; i++) {
                let t = count - 1u - i;
                var sum = u[t * COLS + thread];
                for (var j = t + 1u; j < count; j++) {
                    sum += m[j * STEPS + t] * u[j * COLS + thread];
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
                    var term = q(row + t * KEYS + key) * memory[p.dy + (step + t) * p.values + at];
                    if (CORRECTS) { term -= k(row + t * KEYS + key) * u[t * COLS + i % COLS]; }
                    sum += from_start[t] * term;
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
