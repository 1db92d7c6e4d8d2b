// A workgroup multiplies up to X rows of `x` with ROWS rows of weights. Threads take units of 32 weights in
// turns, so that a subgroup reads neighbouring words, each once for all rows of `x`. What the threads come to
// is added up in subgroups, and then between them.

const SUMS = ROWS * X;
var<workgroup> partial: array<f32, THREADS * SUMS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32/* BUILTINS */) {
    let group = wid.x + wid.y * groups.x;
    let blocks = (p.n + ROWS - 1u) / ROWS;
    let batch = group / blocks;
    let first = (group % blocks) * ROWS;
    // Groups past the end, and those after a bad index, still meet the barriers.
    let counts = group < p.groups && running();

    var sums: array<f32, SUMS>;
    for (var i = 0u; i < SUMS; i++) { sums[i] = 0.0; }
    if (counts) {
        let units = p.k / 32u;
        let w_first = (w_matrix(batch) * p.n + first) * units;
        let x_first = p.x_at + x_matrix(batch) * p.m * p.k;
        var weights: array<f32, 32>;
        var held: array<f32, 32>;
        for (var unit = lid; unit < units; unit += THREADS) {
            if (X == 1u) {
                for (var i = 0u; i < 32u; i++) { held[i] = x(x_first + unit * 32u + i); }
            }
            for (var row = 0u; row < ROWS; row++) {
                if (first + row < p.n) {
                    weights_of(w_first + row * units + unit, &weights);
                    if (X == 1u) {
                        for (var i = 0u; i < 32u; i++) {
                            sums[row] = fma(weights[i], held[i], sums[row]);
                        }
                    } else {
                        for (var j = 0u; j < min(X, p.m); j++) {
                            let at = x_first + j * p.k + unit * 32u;
                            var sum = sums[row * X + j];
                            for (var i = 0u; i < 32u; i++) { sum = fma(weights[i], x(at + i), sum); }
                            sums[row * X + j] = sum;
                        }
                    }
                }
            }
        }
    }
    for (var i = 0u; i < SUMS; i++) {
        let sum = added(sums[i]);
        if (LANE == 0u) { partial[SUBGROUP * SUMS + i] = sum; }
    }
    workgroupBarrier();
    let row = first + lid / X;
    if (counts && lid < SUMS && row < p.n && lid % X < p.m) {
        var sum = 0.0;
        for (var i = 0u; i < SUBGROUPS; i++) { sum += partial[i * SUMS + lid]; }
        out_set((batch * p.m + lid % X) * p.n + row, sum);
    }
}
