// A part of the keys has been seen: keeps what it came to.
fn finish(row: u32, live: bool, head: u32, split: u32, most: f32, total: f32,
          sums: ptr<function, array<f32, SUMS_V>>, lane: u32, lid: u32) {
    if (!live) { return; }
    let at = (row * p.splits + split) * (DV + 2u);
    for (var i = 0u; i < SUMS_V; i++) {
        let column = lane + i * LANES;
        if (column < DV) { partials_set(at + column, (*sums)[i]); }
    }
    if (lane == 0u) {
        partials_set(at + DV, most);
        partials_set(at + DV + 1u, total);
    }
}
