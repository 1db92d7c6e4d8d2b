// One workgroup per row: maximum and sum of powers in one pass, then the loss.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let row = wid.x + wid.y * groups.x;
    // The last groups of a grid may lie past the end; they still meet the barriers.
    let inside = row < p.rows;
    var label = NONE;
    if (inside) { label = column(row); }
    let columns = select(0u, p.columns, label != NONE);
    let base = p.logits_offset + row * p.columns;
    var online = Online(LOWEST, 0.0);
    var kinds = 0u;
    var sum = 0.0;
    for (var at = lid; at < columns; at += WIDTH) {
        let value = logits(base + at);
        kinds |= kind_of(value);
        online = with_element(online, value);
        if (SMOOTHED) { sum += value; }
    }
    online = over_group(online, lid);
    kinds = kinds_over_group(kinds, lid);
    if (SMOOTHED) { sum = sum_over_group(sum, lid); }
    if (lid != 0u || !inside || failed()) { return; }
    if (label == NONE) {
        loss_data[row] = 0.0;
        lse_data[row] = 0.0;
        return;
    }
    let lse = log_sum(online, kinds);
    var loss = lse - p.kept * logits(base + label);
    if (SMOOTHED) { loss -= p.even * sum; }
    loss_data[row] = select(loss, wz_nan(), wz_isnan(lse));
    lse_data[row] = lse;
}
