// A thread takes an element of the mask and sums the gradients of all scores that it was added to.
// `kinds`, `rows`, `splits` and `split_keys` are the mask's shape here.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let i = (wid.x + wid.y * groups.x) * 256u + lid;
    if (i >= p.kinds * p.rows * p.splits * p.split_keys || row_data[0].z == NOWHERE) { return; }
    // Along an axis of which the mask has one, all are summed.
    let one = vec4<bool>(p.kinds == 1u, p.rows == 1u, p.splits == 1u, p.split_keys == 1u);
    let own = vec4<u32>(i / p.split_keys / p.splits / p.rows, i / p.split_keys / p.splits % p.rows,
        i / p.split_keys % p.splits, i % p.split_keys);
    let lengths = vec4<u32>(p.batch, p.heads, p.queries, p.keys);
    let first = select(own, vec4<u32>(0u), one);
    let end = select(own + 1u, lengths, one);
    var sum = 0.0;
    for (var batch = first.x; batch < end.x; batch++) {
        for (var head = first.y; head < end.y; head++) {
            let kind = batch * p.heads + head;
            let key_head = batch * p.key_heads + head / (p.heads / p.key_heads);
            for (var query = first.z; query < end.z; query++) {
                let row = row_data[kind * p.queries + query];
                let q_at = p.q_offset + (kind * p.queries + query) * D;
                let dout_at = p.dout_offset + (kind * p.queries + query) * DV;
                for (var key = max(first.w, row.z); key < min(end.w, row.w); key++) {
                    let k_at = p.k_offset + (key_head * p.keys + key) * D;
                    let v_at = p.v_offset + (key_head * p.keys + key) * DV;
                    var product = 0.0;
                    for (var e = 0u; e < D; e++) { product += q(q_at + e) * k(k_at + e); }
                    var dp = 0.0;
                    for (var e = 0u; e < DV; e++) { dp += dout(dout_at + e) * v(v_at + e); }
                    sum += gradient_of(product, dp, row, mask_row(batch, head, query), key).ds;
                }
            }
        }
    }
    dmask_set(i, sum);
}
