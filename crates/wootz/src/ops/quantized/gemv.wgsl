// A workgroup multiplies up to X rows of `x` with ROWS rows of weights: see `units.wgsl`. What the threads come
// to is added up in subgroups, and then between them.

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
        add_units(w_matrix(batch) * p.n + first, p.n - first, p.x_at + x_matrix(batch) * p.m * p.k, lid, &sums);
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
