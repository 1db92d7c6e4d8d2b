// One workgroup per row of two arrays of logits: both maxima and sums of powers, and the sum of
// e^(p - largest) · (p - q), in one pass.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let row = wid.x + wid.y * groups.x;
    // The last groups of a grid may lie past the end; they still meet the barriers.
    var counted = false;
    if (row < p.rows) { counted = counts(row); }
    let columns = select(0u, p.columns, counted);
    var targets_online = Online(LOWEST, 0.0);
    var predictions_online = Online(LOWEST, 0.0);
    var kinds = vec2u(0u);
    var cross = 0.0;
    // Whether something that has a chance is said to have none.
    var impossible = 0u;
    for (var at = lid; at < columns; at += WIDTH) {
        let a = targets(p.targets_offset + row * p.columns + at);
        let b = predictions(p.predictions_offset + row * p.columns + at);
        kinds |= vec2u(kind_of(a), kind_of(b));
        predictions_online = with_element(predictions_online, b);
        if (is_number(a)) {
            let scale = factors(targets_online.most, a);
            if (is_number(b)) {
                cross = cross * scale.x + scale.y * (a - b);
            } else {
                cross = cross * scale.x;
                impossible = 1u;
            }
            targets_online = with_element(targets_online, a);
        }
    }
    let most = targets_online.most;
    targets_online = over_group(targets_online, lid);
    predictions_online = over_group(predictions_online, lid);
    cross = sum_over_group(cross * wz_exp(most - targets_online.most), lid);
    kinds.x = kinds_over_group(kinds.x, lid);
    kinds.y = kinds_over_group(kinds.y, lid);
    impossible = kinds_over_group(impossible, lid);
    if (lid != 0u || row >= p.rows) { return; }
    if (!counted) {
        targets_lse_data[row] = 0.0;
        predictions_lse_data[row] = 0.0;
        divergence_data[row] = 0.0;
        return;
    }
    let targets_lse = log_sum(targets_online, kinds.x);
    let predictions_lse = log_sum(predictions_online, kinds.y);
    targets_lse_data[row] = targets_lse;
    predictions_lse_data[row] = predictions_lse;
    var divergence = cross / targets_online.sum - targets_lse + predictions_lse;
    if (impossible != 0u) { divergence = wz_inf(); }
    // Without distributions there is no divergence.
    if (!is_number(targets_lse) || !is_number(predictions_lse)) { divergence = wz_nan(); }
    divergence_data[row] = divergence;
}
