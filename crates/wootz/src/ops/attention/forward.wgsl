// A workgroup takes R rows, which are queries of a head or of the heads that share keys, and goes
// through the keys tile by tile with an online softmax. A thread holds some columns of one row.

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32,
        // MORE
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let split = group % p.splits;
    let blocks = (p.rows + R - 1u) / R;
    let kind = group / p.splits / blocks;
    let first = (group / p.splits % blocks) * R;
    let batch = kind / p.kinds;
    if (lid == 0u) { report_length(batch); }
    let fits = lengths_fit();
    let before = (kind % p.kinds) * p.rows;
    let key_head = batch * p.key_heads + before / p.queries / (p.heads / p.key_heads);
    let r = lid / LANES;
    let lane = lid % LANES;
    let live = fits && first + r < p.rows;
    let row = before + min(first + r, p.rows - 1u);
    let query = row % p.queries;
    let head = row / p.queries;
    let range = sees(batch, query);
    let mask_at = mask_row(batch, head, query);

    // The keys that any row sees: rows of several heads see what all queries do.
    var query_first = first;
    var query_last = min(first + R, p.rows) - 1u;
    if (p.rows != p.queries) {
        query_first = 0u;
        query_last = p.queries - 1u;
    }
    let begin = max(sees(batch, query_first).x, split * p.split_keys);
    let end = select(begin, min(sees(batch, query_last).y, (split + 1u) * p.split_keys), fits);

    hold_q(p.q_offset, kind * p.rows + first, (kind + 1u) * p.rows, lid);
    var most = LOWEST;
    var total = 0.0;
    var sums = none_v();
    let k_base = k_start() + key_head * p.keys * D;
    let v_base = v_start() + key_head * p.keys * DV;
    look_first(lid);
    for (var key = begin; key < end; key += LINES) {
        if (MASKED) {
            let rows = min(R, p.rows - first);
            let keys = min(LINES, end - key);
            let found = finds_seen(batch, before + first, rows, key, keys, LINES, lid);
            if (!some_see(found, lid)) { continue; }
        }
        let products = products_k(k_base, key, end, r, lane, lid, subgroup);
        for (var t = 0u; t < PER; t++) {
            let c = lane + t * LANES;
            var bits = HIDDEN;
            if (key + c < end) { bits = score_bits(products[t], range, mask_at, key + c); }
            tile_set(r, c, bits);
        }
        workgroupBarrier();
        var top = most;
        for (var c = 0u; c < LINES; c++) {
            let bits = tile_bits(r, c);
            if (!strange(bits)) { top = max(top, bitcast<f32>(bits)); }
        }
        top = raised(most, top);
        workgroupBarrier();
        for (var t = 0u; t < PER; t++) {
            let c = lane + t * LANES;
            let bits = tile_bits(r, c);
            tile_set(r, c, select(bitcast<u32>(power_of(bits, top)), ABSENT, bits == HIDDEN));
        }
        workgroupBarrier();
        // Before the first score there is nothing to shrink. Scores may be as low as the sentinel: the total tells.
        let shrink = select(wz_exp(most - top), 1.0, wz_iszero(total));
        most = top;
        total *= shrink;
        shrink_v(&sums, shrink, r, lane, lid, subgroup);
        for (var c = 0u; c < LINES; c++) { total += bitcast<f32>(tile_bits(r, c)); }
        add_v(&sums, v_base, key, end, r, lane, lid, subgroup);
    }
    var own = columns_v(&sums, r, lane, subgroup);
    finish(batch * p.heads * p.queries + row, live, head, split, most, total, &own, lane, lid);
}
