// 32 threads take a row, and a workgroup eight of them. Before this stands `product`, of SPAN elements.
struct Params { rows: u32, dims: u32, out_offset: u32, dout_offset: u32 }
var<immediate> p: Params;

var<workgroup> partial: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let row = (wid.x + wid.y * groups.x) * 8u + lid / 32u;
    let lane = lid % 32u;
    var sum = 0.0;
    if (row < p.rows) {
        for (var e = lane * SPAN; e < p.dims; e += 32u * SPAN) {
            let at = row * p.dims + e;
            sum += product(p.out_offset + at, p.dout_offset + at);
        }
    }
    partial[lid] = sum;
    workgroupBarrier();
    for (var half = 16u; half > 0u; half /= 2u) {
        if (lane < half) { partial[lid] += partial[lid + half]; }
        workgroupBarrier();
    }
    if (lane == 0u && row < p.rows) { d_set(row, partial[lid]); }
}
