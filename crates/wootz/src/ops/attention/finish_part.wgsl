// A part of the keys has been seen: keeps what it came to, and behind that of all parts what it was taken against and
// its total.
fn finish(row: u32, live: bool, head: u32, split: u32, most: f32, total: f32,
          sums: ptr<function, array<f32, SUMS_V>>, lane: u32, lid: u32) {
    if (!live) { return; }
    let part = row * p.splits + split;
    for (var i = 0u; i < SUMS_V; i++) {
        let column = lane + i * LANES;
        if (column < DV) { partials_set(part * DV + column, (*sums)[i]); }
    }
    if (lane == 0u) {
        let at = p.batch * p.heads * p.queries * p.splits * DV + part * 2u;
        partials_set(at, most);
        partials_set(at + 1u, total);
    }
}
