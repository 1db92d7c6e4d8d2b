// A product with a vector. A workgroup computes 256 / LANES outputs, LANES threads each, which take
// every LANES-th product and are then summed by halves.
struct Params {
    outputs: u32, k: u32,
    line: u32, along: u32, vector: u32,
    blocks: u32, groups: u32,
    matrix_offset: u32, vector_offset: u32,
    // BATCH
}
var<immediate> p: Params;

const OUTPUTS = 256u / LANES;
var<workgroup> partial: array<f32, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let batch = group / p.blocks;
    let first = (group % p.blocks) * OUTPUTS;
    var lane = thread % LANES;
    var output = thread / LANES;
    if (ACROSS) {
        lane = thread / OUTPUTS;
        output = thread % OUTPUTS;
    }

    var sum = 0.0;
    if (first + output < p.outputs) {
        var at = matrix_start(batch) + (first + output) * p.line + lane * p.along;
        var x_at = vector_start(batch) + lane * p.vector;
        for (var k = lane; k < p.k; k += LANES) {
            sum += matrix(at) * vector(x_at);
            at += LANES * p.along;
            x_at += LANES * p.vector;
        }
    }
    partial[lane * OUTPUTS + output] = sum;
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
        let second = select(0.0, partial[thread * 2u + 1u], both);
        c_pair(batch * p.outputs + place, partial[thread * 2u], second, both);
    }
}
