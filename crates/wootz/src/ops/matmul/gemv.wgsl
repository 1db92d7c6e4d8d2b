// A product with a vector. An output has 64 partial sums, each of every 64th product, which are
// then added by halves. A workgroup computes 256 / LANES outputs, LANES threads each, which share
// the partial sums; how many they are does not change the order of any sum.
struct Params {
    outputs: u32, k: u32,
    line: u32, along: u32, vector: u32,
    blocks: u32, groups: u32,
    matrix_offset: u32, vector_offset: u32,
    // MORE
}
var<immediate> p: Params;

const OUTPUTS = 256u / LANES;
const SUMS = 64u;
const EACH = SUMS / LANES;
var<workgroup> partial: array<f32, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups || !running()) { return; }
    let batch = group / p.blocks;
    let first = (group % p.blocks) * OUTPUTS;
    var lane = thread % LANES;
    var output = thread / LANES;
    if (ACROSS) {
        lane = thread / OUTPUTS;
        output = thread % OUTPUTS;
    }

    // Sum i of a thread is partial sum lane + i * LANES of its output.
    var sums: array<f32, EACH>;
    for (var i = 0u; i < EACH; i++) { sums[i] = 0.0; }
    if (first + output < p.outputs) {
        var at = matrix_start(batch) + (first + output) * p.line + lane * p.along;
        var x_at = vector_start(batch) + lane * p.vector;
        var k = lane;
        for (; k < p.k - p.k % SUMS; k += SUMS) {
            for (var i = 0u; i < EACH; i++) {
                sums[i] = fma(matrix(at), vector(x_at), sums[i]);
                at += LANES * p.along;
                x_at += LANES * p.vector;
            }
        }
        for (var i = 0u; i < EACH; i++) {
            if (k < p.k) { sums[i] = fma(matrix(at), vector(x_at), sums[i]); }
            k += LANES;
            at += LANES * p.along;
            x_at += LANES * p.vector;
        }
    }
    for (var half = EACH / 2u; half > 0u; half /= 2u) {
        for (var i = 0u; i < half; i++) { sums[i] += sums[i + half]; }
    }
    partial[lane * OUTPUTS + output] = sums[0];
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        if (lane < half) {
            partial[lane * OUTPUTS + output] += partial[(lane + half) * OUTPUTS + output];
        }
        workgroupBarrier();
    }

    let place = first + thread * 2u;
    if (thread * 2u < OUTPUTS && place < p.outputs) {
        let both = place + 1u < p.outputs && thread * 2u + 1u < OUTPUTS;
        let value = finished(batch, place, partial[thread * 2u]);
        var second = 0.0;
        if (both) { second = finished(batch, place + 1u, partial[thread * 2u + 1u]); }
        out_pair(out_start(batch) + place, value, second, both);
    }
}
