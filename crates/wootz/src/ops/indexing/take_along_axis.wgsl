// Where element `i` of the output comes from. Indices have been checked.
fn source(i: u32) -> u32 {
    let along = place(indices(p.indices_offset + i), p.length).x;
    let outer = i / (p.count * p.inner);
    return p.other_offset + (outer * p.length + along) * p.inner + i % p.inner;
}
