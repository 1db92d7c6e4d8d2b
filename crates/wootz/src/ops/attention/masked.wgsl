// Tiles that a mask hides from all rows are not gone through. Before this stands `masked`.
const MASKED = true;
var<workgroup> any_seen: atomic<u32>;

// Comes before tiles.
fn look_first(lid: u32) {
    if (lid == 0u) { atomicStore(&any_seen, 0u); }
    workgroupBarrier();
}

// Whether a thread finds a key that the mask leaves to a row, of some rows of a batch, which are queries of one
// head after the other, and the first of `span` keys. Threads side by side look at keys side by side.
fn finds_seen(batch: u32, row: u32, rows: u32, key: u32, keys: u32, span: u32, lid: u32) -> bool {
    var found = false;
    for (var i = lid; i < rows * span && !found; i += WIDTH) {
        if (i % span >= keys) { continue; }
        let at = row + i / span;
        let mask_at = mask_row(batch, at / p.queries, at % p.queries);
        found = !masked(mask_at + (key + i % span) * p.mask_key);
    }
    return found;
}

// Whether any thread found something in a tile.
fn some_see(own: bool, lid: u32) -> bool {
    if (own) { atomicStore(&any_seen, 1u); }
    let found = workgroupUniformLoad(&any_seen) != 0u;
    // A tile that is gone through has barriers before the next is looked at.
    if (found && lid == 0u) { atomicStore(&any_seen, 0u); }
    return found;
}
