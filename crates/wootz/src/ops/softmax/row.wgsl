// One workgroup per row: maximum, sum of powers, result.

struct Params { rows: u32, columns: u32, x_offset: u32 }
var<immediate> p: Params;

const LOWEST = -3.4028235e38;

var<workgroup> partial: array<f32, WIDTH>;
var<workgroup> undefined: atomic<u32>;

// Computed once where the row is kept.
fn power(step: u32, i: u32, highest: f32) -> Span {
    if (KEPT > 0u) { return x_kept[step]; }
    return span_exp(x_span(i) - Span(highest));
}

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let row = wid.x + wid.y * groups.x;
    let base = p.x_offset + row * p.columns;
    let out_base = row * p.columns;
    // The last groups of a grid may lie past the end; they still meet the barriers.
    let columns = select(0u, p.columns, row < p.rows);
    let steps = span_steps(p.columns);
    if (lid == 0u) { atomicStore(&undefined, 0u); }
    x_keep(base, columns, lid);

    var highest = LOWEST;
    var strange = 0u;
    for (var step = 0u; step < steps; step++) {
        let column = span_column(step, lid);
        if (column >= columns) { continue; }
        let values = x_row(step, base + column);
        for (var lane = 0u; lane < SPAN; lane++) {
            let value = span_lane(values, lane);
            // NaN or +infinity make the whole row NaN. Asked of the bits: see fast math.
            let bits = bitcast<u32>(value);
            if ((bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u) { strange = 1u; }
            else { highest = max(highest, value); }
        }
    }
    partial[lid] = highest;
    workgroupBarrier();
    if (strange == 1u) { atomicStore(&undefined, 1u); }
    for (var half = WIDTH / 2u; half > 0u; half = half / 2u) {
        if (lid < half) { partial[lid] = max(partial[lid], partial[lid + half]); }
        workgroupBarrier();
    }
    highest = partial[0];
    workgroupBarrier();

    var sum = 0.0;
    for (var step = 0u; step < steps; step++) {
        let column = span_column(step, lid);
        if (column >= columns) { continue; }
        let powers = span_exp(x_row(step, base + column) - Span(highest));
        if (KEPT > 0u) { x_kept[step] = powers; }
        sum += span_sum(powers);
    }
    partial[lid] = sum;
    workgroupBarrier();
    for (var half = WIDTH / 2u; half > 0u; half = half / 2u) {
        if (lid < half) { partial[lid] = partial[lid] + partial[lid + half]; }
        workgroupBarrier();
    }
    sum = partial[0];
    // A row of nothing but -infinity has no maximum, and no softmax.
    let bad = atomicLoad(&undefined) == 1u || sum == 0.0;
    for (var step = 0u; step < steps; step++) {
        let column = span_column(step, lid);
        if (column >= columns) { continue; }
        let values = power(step, base + column, highest) / sum;
        out_span_set(out_base + column, select(values, Span(wz_nan()), bad));
    }
}
