// A workgroup takes R queries of a head and goes through the keys: the gradient of the queries.

var<workgroup> bounds: vec2<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32,
        // MORE
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let blocks = (p.queries + R - 1u) / R;
    let kind = group / blocks;
    let first = (group % blocks) * R;
    let batch = kind / p.heads;
    let head = kind % p.heads;
    let key_head = batch * p.key_heads + head / (p.heads / p.key_heads);
    let r = lid / LANES;
    let lane = lid % LANES;
    let query = min(first + r, p.queries - 1u);
    let row = row_data[kind * p.queries + query];
    let live = first + r < p.queries && row.z != NOWHERE;
    let mask_at = mask_row(batch, head, query);
    if (lid == 0u) {
        let last = min(first + R, p.queries) - 1u;
        bounds = vec2<u32>(row.z, row_data[kind * p.queries + last].w);
    }
    let seen = workgroupUniformLoad(&bounds);

    hold_q(p.q_offset, kind * p.queries + first, (kind + 1u) * p.queries, lid);
    hold_dout(p.dout_offset, kind * p.queries + first, (kind + 1u) * p.queries, lid);
    var sums = none_k();
    let k_base = p.k_offset + key_head * p.keys * D;
    let v_base = p.v_offset + key_head * p.keys * DV;
    look_first(lid);
    for (var key = seen.x; key < seen.y; key += LINES) {
        if (MASKED) {
            let rows = min(R, p.queries - first);
            let keys = min(LINES, seen.y - key);
            let found = finds_seen(batch, head * p.queries + first, rows, key, keys, LINES, lid);
            if (!some_see(found, lid)) { continue; }
        }
        let products = products_k(k_base, key, seen.y, r, lane, lid, subgroup);
        let dp = products_v(v_base, key, seen.y, r, lane, lid, subgroup);
        for (var t = 0u; t < PER; t++) {
            let c = lane + t * LANES;
            var bits = ABSENT;
            if (key + c < seen.y) {
                let gradient = gradient_of(products[t], dp[t], row, mask_at, key + c);
                let ds = gradient.ds * slope_of(products[t] * p.scale) * p.scale;
                bits = kept(ds, gradient.seen);
            }
            tile_set(r, c, bits);
        }
        workgroupBarrier();
        add_k(&sums, k_base, key, seen.y, r, lane, lid, subgroup);
    }
    var own = columns_k(&sums, r, lane, subgroup);
    dq_rows(kind * p.queries + query, live, &own, lane, lid);
}
