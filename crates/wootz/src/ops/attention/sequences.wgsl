// Several sequences lie one after the other: that of a query is the last that begins at or before it.
fn sequence(batch: u32, query: u32) -> vec3<u32> {
    var low = 0u;
    var high = p.sequences;
    while (low + 1u < high) {
        let middle = (low + high) / 2u;
        if (query_ends(p.length_offset + middle) <= i32(query)) { low = middle; } else { high = middle; }
    }
    let query_end = u32(clamp(query_ends(p.length_offset + low + 1u), 0i, i32(p.queries)));
    let first = u32(clamp(key_ends(p.key_ends_offset + low), 0i, i32(p.keys)));
    let end = u32(clamp(key_ends(p.key_ends_offset + low + 1u), i32(first), i32(p.keys)));
    return vec3<u32>(query_end, first, end);
}
