// LANES_OF threads take an element of the mask, and sum the gradients of the scores that it was added to: all of them, or a
// part, which is some rows and some keys. `kinds`, `rows`, `splits` and `split_keys` are the mask's shape here, and `groups`
// the parts of an element.
var<workgroup> lane_sums: array<f32, WIDTH>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let lane = lid % LANES_OF;
    let task = (wid.x + wid.y * groups.x) * (WIDTH / LANES_OF) + lid / LANES_OF;
    let i = task / p.groups;
    let part = task % p.groups;
    let live = i < p.kinds * p.rows * p.splits * p.split_keys && row_data[0].z != NOWHERE;
    // Along an axis of which the mask has one, all are summed.
    let one = vec4<bool>(p.kinds == 1u, p.rows == 1u, p.splits == 1u, p.split_keys == 1u);
    let own = vec4<u32>(i / p.split_keys / p.splits / p.rows, i / p.split_keys / p.splits % p.rows,
        i / p.split_keys % p.splits, i % p.split_keys);
    let summed = select(vec4<u32>(1u), vec4<u32>(p.batch, p.heads, p.queries, p.keys), one);
    // Rows are cut first, and keys where there are fewer rows than parts.
    let rows = summed.x * summed.y * summed.z;
    let row_parts = min(p.groups, rows);
    let key_parts = p.groups / row_parts;
    let rows_of_part = (rows + row_parts - 1u) / row_parts;
    let keys_of_part = (summed.w + key_parts - 1u) / key_parts;
    let first_row = min(part / key_parts * rows_of_part, rows);
    let first_key = min(part % key_parts * keys_of_part, summed.w);
    let own_rows = min(rows_of_part, rows - first_row);
    let own_keys = min(keys_of_part, summed.w - first_key);
    var sum = 0.0;
    for (var turn = lane; live && turn < own_rows * own_keys; turn += LANES_OF) {
        let at = first_row + turn / own_keys;
        let batch = own.x + at / summed.z / summed.y;
        let head = own.y + at / summed.z % summed.y;
        let query = own.z + at % summed.z;
        let key = own.w + first_key + turn % own_keys;
        let kind = batch * p.heads + head;
        let row = row_data[kind * p.queries + query];
        if (key < row.z || key >= row.w) { continue; }
        let key_head = batch * p.key_heads + head / (p.heads / p.key_heads);
        let q_at = p.q_offset + (kind * p.queries + query) * D;
        let dout_at = p.dout_offset + (kind * p.queries + query) * DV;
        let k_at = p.k_offset + (key_head * p.keys + key) * D;
        let v_at = p.v_offset + (key_head * p.keys + key) * DV;
        var product = 0.0;
        for (var e = 0u; e < D; e++) { product += q(q_at + e) * k(k_at + e); }
        var dp = 0.0;
        for (var e = 0u; e < DV; e++) { dp += dout(dout_at + e) * v(v_at + e); }
        sum += gradient_of(product, dp, row, mask_row(batch, head, query), key).ds;
    }
    lane_sums[lid] = sum;
    for (var half = LANES_OF / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) { lane_sums[lid] += lane_sums[lid + half]; }
    }
    if (lane == 0u && live) { part_set(i, part, lane_sums[lid]); }
}
