
// A workgroup multiplies one row of `x` with eight rows of weights. Each has 32 threads, which take
// units of 32 weights in turns; their sums are added by halves.

const LANES = 32u;
const OUTPUTS = 8u;
var<workgroup> partial: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let group = wid.x + wid.y * groups.x;
    let blocks = (p.n + OUTPUTS - 1u) / OUTPUTS;
    let row = group / blocks;
    let column = (group % blocks) * OUTPUTS + lid / LANES;
    let lane = lid % LANES;
    // Groups past the end, and those after a bad index, still meet the barriers.
    let counts = group < p.groups && column < p.n && running();

    var sum = 0.0;
    if (counts) {
        let batch = row / p.m;
        let units = p.k / 32u;
        let first = (w_matrix(batch) * p.n + column) * units;
        let x_first = p.x_at + (x_matrix(batch) * p.m + row % p.m) * p.k;
        var weights: array<f32, 32>;
        for (var unit = lane; unit < units; unit += LANES) {
            weights_of(first + unit, &weights);
            for (var i = 0u; i < 32u; i++) {
                sum = fma(weights[i], x(x_first + unit * 32u + i), sum);
            }
        }
    }
    partial[lid] = sum;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        if (lane < half) { partial[lid] += partial[lid + half]; }
        workgroupBarrier();
    }
    if (counts && lane == 0u) { out_set(row * p.n + column, partial[lid]); }
}
