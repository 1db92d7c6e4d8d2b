// A workgroup takes a block of rows, one after the other: dx of each row, with what is added to it, and the block's parts of
// the gradients of weight and bias, whose columns each belong to one thread.
struct Params {
    rows: u32, columns: u32, rows_per_block: u32, blocks: u32, eps: u32,
    x_offset: u32, weight_offset: u32, dy_offset: u32, direct_offset: u32,
}
var<immediate> p: Params;

// The block's parts so far, where rows are kept; else they are in memory.
var<private> dw_kept: array<Span, max(KEPT, 1u)>;
var<private> db_kept: array<Span, max(KEPT, 1u)>;

fn store_part(at: u32, value: Span) {
    for (var lane = 0u; lane < SPAN; lane++) { partials_set(at + lane, span_lane(value, lane)); }
}

fn stored_part(at: u32, first: bool) -> Span {
    if (first) { return Span(0.0); }
    return span_of(partials_data[at], partials_data[at + SPAN - 1u]);
}

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let block = wid.x + wid.y * groups.x;
    if (block >= p.blocks) { return; }
    let part = block * p.columns * (u32(WEIGHTED) + u32(BIASED));
    let bias_part = part + u32(WEIGHTED) * p.columns;
    let first = block * p.rows_per_block;
    let last = min(first + p.rows_per_block, p.rows);
    let steps = span_steps(p.columns);
    for (var step = 0u; step < KEPT; step++) {
        dw_kept[step] = Span(0.0);
        db_kept[step] = Span(0.0);
    }
    var any_undefined = false;
    for (var row = first; row < last; row++) {
        let base = row * p.columns;
        x_keep(p.x_offset + base, p.columns, lid);
        dy_keep(p.dy_offset + base, p.columns, lid);
        let shift = row_shift(p.x_offset + base, p.columns, lid);
        var moments = vec2<f32>(0.0);
        var products = vec2<f32>(0.0);
        for (var step = 0u; step < steps; step++) {
            let column = span_column(step, lid);
            if (column >= p.columns) { continue; }
            let value = x_row(step, p.x_offset + base + column) - Span(shift);
            let dy = dy_row(step, p.dy_offset + base + column);
            let term = dy * weight_span(p.weight_offset + column);
            moments += vec2<f32>(span_sum(value * value), span_sum(value));
            products += vec2<f32>(span_sum(value * term), span_sum(term));
        }
        moments = group_sum(moments, lid);
        products = group_sum(products, lid);
        let known = mean_and_scale(moments, shift, p.columns, p.eps);
        let undefined = is_undefined(moments.x);
        any_undefined = any_undefined || undefined;
        let mean = known.x;
        let r = known.y;
        var level = 0.0;
        let infinite = (bitcast<u32>(products.y) & 0x7f800000u) == 0x7f800000u;
        if (CENTRED) {
            level = products.y / f32(p.columns);
            // An infinite gradient is in the products already, with its sign.
            if (!infinite) { products.x -= (mean - shift) * products.y; }
        }
        let slope = products.x * r * r / f32(count_of(p.columns));
        for (var step = 0u; step < steps; step++) {
            let column = span_column(step, lid);
            if (column >= p.columns) { continue; }
            let value = x_row(step, p.x_offset + base + column) - Span(mean);
            let dy = dy_row(step, p.dy_offset + base + column);
            let term = dy * weight_span(p.weight_offset + column);
            if (KEPT > 0u) {
                dw_kept[step] += dy * value * r;
                db_kept[step] += dy;
            } else {
                if (WEIGHTED) {
                    let sum = stored_part(part + column, row == first) + dy * value * r;
                    store_part(part + column, undefined_or(sum, undefined));
                }
                if (BIASED) {
                    store_part(bias_part + column, stored_part(bias_part + column, row == first) + dy);
                }
            }
            var dx = r * (term - value * slope - Span(level));
            // What is its own mean has no gradient; fast math would leave a rounding error of it.
            let single = CENTRED && p.columns == 1u;
            if (single) { dx = Span(0.0); }
            if (DIRECT) { dx += direct_span(p.direct_offset + base + column); }
            out_span_set(base + column, undefined_or(dx, undefined || (single && infinite)));
        }
    }
    for (var step = 0u; step < KEPT; step++) {
        let column = span_column(step, lid);
        if (column >= p.columns) { continue; }
        if (WEIGHTED) { store_part(part + column, undefined_or(dw_kept[step], any_undefined)); }
        if (BIASED) { store_part(bias_part + column, db_kept[step]); }
    }
}
