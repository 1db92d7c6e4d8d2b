// What the backward knows of each query, in one place: the bits of its log-sum-exp and of its sum of
// products, and the keys it sees by its position. Where lengths are wrong, none is the first key.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let row = (wid.x + wid.y * groups.x) * 256u + lid;
    if (row >= p.batch * p.heads * p.queries) { return; }
    let batch = row / p.queries / p.heads;
    if (row % (p.heads * p.queries) == 0u) { report_length(batch); }
    let range = select(vec2<u32>(NOWHERE, 0u), sees(batch, row % p.queries), lengths_fit());
    let lse_bits = bitcast<u32>(lse(p.lse_offset + row));
    let d_bits = bitcast<u32>(d(p.d_offset + row));
    row_data[row] = vec4<u32>(lse_bits, d_bits, range.x, range.y);
}
