// Where element `i` of the output comes from: (outer place, offset, place in the window).
fn source(i: u32) -> u32 {
    let row = i / p.run;
    let offset = offsets(row % p.count);
    return p.x_offset + before(row / p.count) + offset + after(i % p.run);
}
