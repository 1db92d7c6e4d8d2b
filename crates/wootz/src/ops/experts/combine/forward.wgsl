// A thread has a span of a token's sum.
struct Params { size: u32, columns: u32, experts: u32, y_offset: u32, weights_offset: u32 }
var<immediate> p: Params;

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let at = ((wid.x + wid.y * groups.x) * WIDTH + lid) * SPAN;
    if (at >= p.size) { return; }
    let first = at / p.columns * p.experts;
    let column = at % p.columns;
    var sum = Span(0.0);
    for (var row = first; row < first + p.experts; row++) {
        sum += weights(p.weights_offset + row) * y_span(p.y_offset + row * p.columns + column);
    }
    out_span_set(at, sum);
}
