// What kernels share that take COLS values of a head through chunks: its state or the gradient of
// that, a matrix of decayed products of the chunk's steps, what each step learns, and decays from
// the chunk's start and to its end.
var<workgroup> s: array<f32, KEYS * COLS>;
var<workgroup> m: array<f32, STEPS * STEPS>;
var<workgroup> u: array<f32, STEPS * COLS>;
var<workgroup> from_start: array<f32, STEPS>;
var<workgroup> to_end: array<f32, STEPS>;

const LINES = 256u / COLS;

fn find_decays(thread: u32, step: u32, count: u32) {
    if (thread < count) {
        from_start[thread] = gates(step, 0u, thread);
        to_end[thread] = gates(step, thread + 1u, count - 1u);
    }
}

// What a step takes for known of what was learnt at one before it.
fn find_known(thread: u32, step: u32, row: u32, count: u32) {
    for (var e = thread; e < STEPS * STEPS; e += 256u) {
        let t = e / STEPS;
        let j = e % STEPS;
        var known = 0.0;
        if (CORRECTS && j < t && t < count) {
            known = -gates(step, j + 1u, t) * of_keys(row + t * KEYS, row + j * KEYS);
        }
        m[e] = known;
    }
}

// What a step sees of what was learnt at one before it or by itself.
fn find_seen(thread: u32, step: u32, row: u32, count: u32) {
    for (var e = thread; e < STEPS * STEPS; e += 256u) {
        let t = e / STEPS;
        let j = e % STEPS;
        var seen = 0.0;
        if (j <= t && t < count) {
            seen = gates(step, j + 1u, t) * of_query(row + t * KEYS, row + j * KEYS);
        }
        m[e] = seen;
    }
}
