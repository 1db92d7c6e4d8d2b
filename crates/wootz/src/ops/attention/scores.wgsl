// Scores. Before this stands `hidden`, which knows about the mask.

fn mask_row(batch: u32, head: u32, query: u32) -> u32 {
    return p.mask_offset + batch * p.mask_batch + head * p.mask_head + query * p.mask_query;
}

// The bits of a score made of a product.
fn score_bits(product: f32, range: vec2<u32>, mask_at: u32, key: u32) -> u32 {
    if (key < range.x || key >= range.y) { return HIDDEN; }
    return hidden(softened(product * p.scale), mask_at + key * p.mask_key);
}

fn softened(x: f32) -> f32 {
    if (p.softcap == 0.0) { return x; }
    return p.softcap * wz_tanh(x / p.softcap);
}

fn slope_of(x: f32) -> f32 {
    if (p.softcap == 0.0) { return 1.0; }
    let t = wz_tanh(x / p.softcap);
    return 1.0 - t * t;
}
