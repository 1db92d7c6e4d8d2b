// A workgroup takes R keys of a head and goes through the queries that see them, of one head after
// the other: the gradients of keys and values.

var<workgroup> first_seen: atomic<u32>;
var<workgroup> last_seen: atomic<u32>;
var<workgroup> bounds: vec2<u32>;
// What is known of the queries of a tile.
var<workgroup> tile_rows: array<vec4<u32>, LINES>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32,
        // MORE
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let blocks = (p.keys + R - 1u) / R;
    let key_head = group / blocks;
    let first = (group % blocks) * R;
    let batch = key_head / p.key_heads;
    let shared_by = p.heads / p.key_heads;
    let r = lid / LANES;
    let lane = lid % LANES;
    let key = first + r;

    // The queries that see any of the keys; they are the same in all heads.
    if (lid == 0u) {
        atomicStore(&first_seen, p.queries);
        atomicStore(&last_seen, 0u);
    }
    workgroupBarrier();
    for (var query = lid; query < p.queries; query += WIDTH) {
        let range = row_data[batch * p.heads * p.queries + query].zw;
        if (range.x < min(first + R, range.y) && range.y > first) {
            atomicMin(&first_seen, query);
            atomicMax(&last_seen, query + 1u);
        }
    }
    workgroupBarrier();
    if (lid == 0u) { bounds = vec2<u32>(atomicLoad(&first_seen), atomicLoad(&last_seen)); }
    let seen = workgroupUniformLoad(&bounds);

    hold_k(p.k_offset, key_head * p.keys + first, (key_head + 1u) * p.keys, lid);
    hold_v(p.v_offset, key_head * p.keys + first, (key_head + 1u) * p.keys, lid);
    var sums_k = none_q();
    var sums_v = none_dout();
    look_first(lid);
    for (var member = 0u; member < shared_by; member++) {
        let head = (key_head % p.key_heads) * shared_by + member;
        let kind = batch * p.heads + head;
        let q_base = p.q_offset + kind * p.queries * D;
        let dout_base = p.dout_offset + kind * p.queries * DV;
        for (var start = seen.x; start < seen.y; start += LINES) {
            if (MASKED) {
                let rows = min(LINES, seen.y - start);
                let keys = min(R, p.keys - first);
                let found = finds_seen(batch, head * p.queries + start, rows, first, keys, R, lid);
                if (!some_see(found, lid)) { continue; }
            }
            // There are barriers before they are read and when they have been.
            if (lid < min(LINES, seen.y - start)) {
                tile_rows[lid] = row_data[kind * p.queries + start + lid];
            }
            let products = products_q(q_base, start, seen.y, r, lane, lid, subgroup);
            let dp = products_dout(dout_base, start, seen.y, r, lane, lid, subgroup);
            for (var t = 0u; t < PER; t++) {
                let c = lane + t * LANES;
                let query = start + c;
                var bits = ABSENT;
                var p_bits = ABSENT;
                if (query < seen.y && key < p.keys) {
                    let mask_at = mask_row(batch, head, query);
                    let gradient = gradient_of(products[t], dp[t], tile_rows[c], mask_at, key);
                    let ds = gradient.ds * slope_of(products[t] * p.scale) * p.scale;
                    bits = kept(ds, gradient.seen);
                    p_bits = kept(gradient.p, gradient.seen);
                }
                tile_set(r, c, bits);
                p_tile_set(r, c, p_bits);
            }
            workgroupBarrier();
            add_q(&sums_k, q_base, start, seen.y, r, lane, lid, subgroup);
            add_dout(&sums_v, dout_base, start, seen.y, r, lane, lid, subgroup);
        }
    }
    var own_k = columns_q(&sums_k, r, lane, subgroup);
    var own_v = columns_dout(&sums_v, r, lane, subgroup);
    let live = key < p.keys && row_data[0].z != NOWHERE;
    dk_rows(key_head * p.keys + key, live, &own_k, lane, lid);
    dv_rows(key_head * p.keys + key, live, &own_v, lane, lid);
}
