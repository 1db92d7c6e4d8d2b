// A workgroup takes a tile of the mask and goes through the tiles of scores that it was added to: along an axis of which the
// mask has one, those are all. `groups` workgroups share them where they are many, each with a part of the sums. `kinds`,
// `rows`, `splits` and `split_keys` are the mask's shape here.

var<workgroup> bounds: vec2<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32,
        // MORE
) {
    // Tiles of all scores, of the mask, and those that are summed into one of the mask's.
    let all = vec4<u32>(p.batch, p.heads, (p.queries + R - 1u) / R, (p.keys + LINES - 1u) / LINES);
    let over = vec4<bool>(p.kinds == 1u, p.rows == 1u, p.splits == 1u, p.split_keys == 1u);
    let mask = select(all, vec4<u32>(1u), over);
    let summed = select(vec4<u32>(1u), all, over);
    let group = wid.x + wid.y * groups.x;
    let own = group / p.groups;
    let part = group % p.groups;
    if (own >= mask.x * mask.y * mask.z * mask.w) { return; }
    let tile_at = place(own, mask);
    let tiles = summed.x * summed.y * summed.z * summed.w;
    let of_part = (tiles + p.groups - 1u) / p.groups;
    let r = lid / LANES;
    let lane = lid % LANES;

    var sums: array<f32, PER>;
    for (var t = 0u; t < PER; t++) { sums[t] = 0.0; }
    var held = NOWHERE;
    look_first(lid);
    for (var i = part * of_part; i < min((part + 1u) * of_part, tiles); i++) {
        let at = tile_at + place(i, summed);
        let kind = at.x * p.heads + at.y;
        let first = at.z * R;
        let key = at.w * LINES;
        let rows = min(R, p.queries - first);
        let keys = min(LINES, p.keys - key);
        if (lid == 0u) {
            let row = kind * p.queries + first;
            bounds = vec2<u32>(row_data[row].z, row_data[row + rows - 1u].w);
        }
        let seen = workgroupUniformLoad(&bounds);
        if (key >= seen.y || seen.x >= key + keys) { continue; }
        let found = finds_seen(at.x, at.y * p.queries + first, rows, key, keys, LINES, lid);
        if (!some_see(found, lid)) { continue; }
        // Keys come first in the order of tiles, so that queries stay.
        if (held != kind * all.z + at.z) {
            held = kind * all.z + at.z;
            hold_q(p.q_offset, kind * p.queries + first, (kind + 1u) * p.queries, lid);
            hold_dout(p.dout_offset, kind * p.queries + first, (kind + 1u) * p.queries, lid);
            workgroupBarrier();
        }
        let key_head = at.x * p.key_heads + at.y / (p.heads / p.key_heads);
        let k_base = p.k_offset + key_head * p.keys * D;
        let v_base = p.v_offset + key_head * p.keys * DV;
        let products = products_k(k_base, key, seen.y, r, lane, lid, subgroup);
        let dp = products_v(v_base, key, seen.y, r, lane, lid, subgroup);
        let query = first + min(r, rows - 1u);
        let row = row_data[kind * p.queries + query];
        let mask_at = mask_row(at.x, at.y, query);
        for (var t = 0u; t < PER; t++) {
            let c = lane + t * LANES;
            if (r < rows && c < keys) {
                sums[t] += gradient_of(products[t], dp[t], row, mask_at, key + c).ds;
            }
        }
    }
    for (var t = 0u; t < PER; t++) { tile_set(r, lane + t * LANES, bitcast<u32>(sums[t])); }
    workgroupBarrier();
    if (row_data[0].z == NOWHERE) { return; }
    // What a thread sums of the tile: one score, or those of a row, of a column or all.
    let part_of_tile = vec2<u32>(select(1u, R, over.z), select(1u, LINES, over.w));
    let across = LINES / part_of_tile.y;
    for (var i = lid * SPAN; i < R / part_of_tile.x * across; i += WIDTH * SPAN) {
        let query = tile_at.z * R + i / across;
        let key = tile_at.w * LINES + i % across;
        if (query >= p.splits || key >= p.split_keys) { continue; }
        var of_mask: vec2<f32>;
        for (var s = 0u; s < SPAN; s++) { of_mask[s] = tile_sum(i / across, i % across + s, part_of_tile); }
        store(((tile_at.x * p.rows + tile_at.y) * p.splits + query) * p.split_keys + key, part, of_mask);
    }
}

// Where a tile lies in tiles of a shape.
fn place(i: u32, shape: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(i / shape.w / shape.z / shape.y, i / shape.w / shape.z % shape.y, i / shape.w % shape.z, i % shape.w);
}

// The sum of a part of the tile.
fn tile_sum(r: u32, c: u32, size: vec2<u32>) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < size.x; i++) {
        for (var j = 0u; j < size.y; j++) { sum += bitcast<f32>(tile_bits(r + i, c + j)); }
    }
    return sum;
}
