// LANES_OF threads take an element of the mask and sum its `groups` parts, which lie behind the rows.
var<workgroup> lane_sums: array<f32, WIDTH>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let lane = lid % LANES_OF;
    let i = (wid.x + wid.y * groups.x) * (WIDTH / LANES_OF) + lid / LANES_OF;
    let live = i < p.kinds && row_data[0].z != NOWHERE;
    let first = p.batch * p.heads * p.queries + i * p.groups;
    var sum = 0.0;
    for (var part = lane; live && part < p.groups; part += LANES_OF) {
        sum += bitcast<f32>(row_data[first + part].x);
    }
    lane_sums[lid] = sum;
    for (var half = LANES_OF / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) { lane_sums[lid] += lane_sums[lid + half]; }
    }
    if (lane == 0u && live) { dmask_set(i, lane_sums[lid]); }
}
