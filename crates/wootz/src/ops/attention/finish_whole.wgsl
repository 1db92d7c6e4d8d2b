// All keys have been seen: divides by the total, sinks included.
fn finish(row: u32, live: bool, head: u32, split: u32, most: f32, total: f32,
          sums: ptr<function, array<f32, SUMS_V>>, lane: u32, lid: u32) {
    let ending = ended(head, most, total);
    for (var i = 0u; i < SUMS_V; i++) { (*sums)[i] *= ending.factor; }
    out_rows(row, live, sums, lane, lid);
    if (live && lane == 0u) { lse_set(row, ending.lse); }
}
