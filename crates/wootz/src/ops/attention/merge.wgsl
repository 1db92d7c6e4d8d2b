// Joins the parts of the keys: `LANES_OF` threads take a row, of which they first weigh the parts.
const ROWS_OF = WIDTH / LANES_OF;
// What a part was taken against, then its weight; and its total.
var<workgroup> weights: array<f32, ROWS_OF * MOST_SPLITS>;
var<workgroup> totals: array<f32, ROWS_OF * MOST_SPLITS>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let row = (wid.x + wid.y * groups.x) * ROWS_OF + lid / LANES_OF;
    let lane = lid % LANES_OF;
    let own = lid / LANES_OF * MOST_SPLITS;
    let rows = p.batch * p.heads * p.queries;
    let live = row < rows && lengths_fit();
    if (live) {
        for (var split = lane; split < p.splits; split += LANES_OF) {
            let at = rows * p.splits * DV + (row * p.splits + split) * 2u;
            weights[own + split] = partials_data[at];
            totals[own + split] = partials_data[at + 1u];
        }
    }
    workgroupBarrier();
    if (!live) { return; }
    var most = LOWEST;
    for (var split = 0u; split < p.splits; split++) { most = max(most, weights[own + split]); }
    var total = 0.0;
    for (var split = 0u; split < p.splits; split++) {
        total += totals[own + split] * wz_exp(weights[own + split] - most);
    }
    let ending = ended(row / p.queries % p.heads, most, total);
    for (var column = lane; column < DV; column += LANES_OF) {
        var sum = 0.0;
        for (var split = 0u; split < p.splits; split++) {
            let shrink = wz_exp(weights[own + split] - most);
            sum += partials_data[(row * p.splits + split) * DV + column] * shrink;
        }
        out_set(row * DV + column, sum * ending.factor);
    }
    if (lane == 0u) { lse_set(row, ending.lse); }
}
