// A workgroup has a token. It takes two experts at a time, whose weights' gradients are summed together.
struct Params {
    tokens: u32, columns: u32, experts: u32,
    y_offset: u32, weights_offset: u32, dy_offset: u32,
}
var<immediate> p: Params;

// The product of the gradients with what an expert gave, which tells of its weight; stores the gradient of the latter.
fn expert_part(row: u32, column: u32, dy: Span) -> f32 {
    let at = row * p.columns + column;
    of_y_span_set(at, weights(p.weights_offset + row) * dy);
    return span_sum(y_span(p.y_offset + at) * dy);
}

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let token = wid.x + wid.y * groups.x;
    if (token >= p.tokens) { return; }
    let base = p.dy_offset + token * p.columns;
    let steps = span_steps(p.columns);
    dy_keep(base, p.columns, lid);
    let end = (token + 1u) * p.experts;
    for (var row = token * p.experts; row < end; row += 2u) {
        var dots = vec2<f32>(0.0);
        for (var step = 0u; step < steps; step++) {
            let column = span_column(step, lid);
            if (column >= p.columns) { continue; }
            let dy = dy_row(step, base + column);
            dots.x += expert_part(row, column, dy);
            if (row + 1u < end) { dots.y += expert_part(row + 1u, column, dy); }
        }
        dots = group_sum(dots, lid);
        if (lid == 0u) {
            of_weights_set(row, dots.x);
            if (row + 1u < end) { of_weights_set(row + 1u, dots.y); }
        }
    }
}
