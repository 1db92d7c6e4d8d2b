// Tiles that a mask hides from all rows are not gone through. Before this stands `masked`.
const MASKED = true;
var<workgroup> any_seen: atomic<u32>;

// Comes before tiles.
fn look_first(lid: u32) {
    if (lid == 0u) { atomicStore(&any_seen, 0u); }
    workgroupBarrier();
}

// Whether a row sees a key.
fn unmasked(range: vec2<u32>, mask_at: u32, key: u32) -> bool {
    return key >= range.x && key < range.y && !masked(mask_at + key * p.mask_key);
}

// Whether any thread's own rows see something of a tile.
fn some_see(own: bool, lid: u32) -> bool {
    if (own) { atomicStore(&any_seen, 1u); }
    let found = workgroupUniformLoad(&any_seen) != 0u;
    // A tile that is gone through has barriers before the next is looked at.
    if (found && lid == 0u) { atomicStore(&any_seen, 0u); }
    return found;
}
