// Joins the parts of the keys: a thread takes an element of the output.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let i = (wid.x + wid.y * groups.x) * 256u + lid;
    let row = i / DV;
    if (row >= p.batch * p.heads * p.queries || !lengths_fit()) { return; }
    let column = i % DV;
    let first = row * p.splits * (DV + 2u);
    var most = LOWEST;
    for (var split = 0u; split < p.splits; split++) {
        most = max(most, partials_data[first + split * (DV + 2u) + DV]);
    }
    var total = 0.0;
    var sum = 0.0;
    for (var split = 0u; split < p.splits; split++) {
        let at = first + split * (DV + 2u);
        let shrink = wz_exp(partials_data[at + DV] - most);
        total += partials_data[at + DV + 1u] * shrink;
        sum += partials_data[at + column] * shrink;
    }
    let ending = ended(row / p.queries % p.heads, most, total);
    out_set(i, sum * ending.factor);
    if (column == 0u) { lse_set(row, ending.lse); }
}
