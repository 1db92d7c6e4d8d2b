// One workgroup per row: its moments, then the normalised row. With something added, the row is the sum, which is
// stored; what is added to it may be normalised before, too.
struct Params {
    rows: u32, columns: u32, eps: u32, x_offset: u32, weight_offset: u32, bias_offset: u32,
    added_offset: u32, first_weight_offset: u32, first_eps: u32,
}
var<immediate> p: Params;

// The factor of the norm before the sum.
var<private> first_scale: f32;

// The span at element `i`, and what is added to it.
fn value_at(step: u32, base: u32, column: u32) -> Span {
    if (!ADDED || KEPT > 0u) { return x_row(step, p.x_offset + base + column); }
    return with_added(step, base, column);
}

fn with_added(step: u32, base: u32, column: u32) -> Span {
    var value = x_row(step, p.x_offset + base + column);
    if (FIRST) {
        value = span_rounded(value * first_scale) * first_weight_span(p.first_weight_offset + column);
        value = span_rounded(value);
    }
    return span_rounded(value + added_span(p.added_offset + base + column));
}

// The mean of the first elements that are added to a row, as of those of the row itself.
fn added_shift(base: u32, lid: u32) -> f32 {
    if (!CENTRED) { return 0.0; }
    let column = span_column(0u, lid);
    var value = 0.0;
    if (column < p.columns) { value = span_sum(added_span(p.added_offset + base + column)); }
    return group_sum(vec2<f32>(value, 0.0), lid).x / f32(min(p.columns, WIDTH * SPAN));
}

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let row = wid.x + wid.y * groups.x;
    if (row >= p.rows) { return; }
    let base = row * p.columns;
    let steps = span_steps(p.columns);
    x_keep(p.x_offset + base, p.columns, lid);
    if (FIRST) {
        var squares = 0.0;
        for (var step = 0u; step < steps; step++) {
            let column = span_column(step, lid);
            if (column >= p.columns) { continue; }
            let value = x_row(step, p.x_offset + base + column);
            squares += span_sum(value * value);
        }
        squares = group_sum(vec2<f32>(squares, 0.0), lid).x;
        first_scale = inverse_root(squares, p.columns, p.first_eps);
    }
    if (ADDED) {
        for (var step = 0u; step < steps; step++) {
            let column = span_column(step, lid);
            if (column >= p.columns) { continue; }
            let value = with_added(step, base, column);
            if (KEPT > 0u) { x_kept[step] = value; }
            sum_span_set(base + column, value);
        }
    }
    if (ONLY_SUM) { return; }
    var shift = row_shift(p.x_offset + base, p.columns, lid);
    // Of rows that are not kept, what is added has a mean of its own.
    if (ADDED && KEPT == 0u) { shift += added_shift(base, lid); }
    var sums = vec2<f32>(0.0);
    for (var step = 0u; step < steps; step++) {
        let column = span_column(step, lid);
        if (column >= p.columns) { continue; }
        let value = value_at(step, base, column) - Span(shift);
        sums += vec2<f32>(span_sum(value * value), span_sum(value));
    }
    sums = group_sum(sums, lid);
    let known = mean_and_scale(sums, shift, p.columns, p.eps);
    let undefined = is_undefined(sums.x);
    for (var step = 0u; step < steps; step++) {
        let column = span_column(step, lid);
        if (column >= p.columns) { continue; }
        let centred = value_at(step, base, column) - Span(known.x);
        var value = centred * known.y;
        // As in MLX, the norm of root mean squares is rounded before it meets the weight.
        if (!CENTRED) { value = span_rounded(value); }
        value *= weight_span(p.weight_offset + column);
        if (CENTRED) { value += bias_span(p.bias_offset + column); }
        out_span_set(base + column, undefined_or(value, undefined));
    }
}
