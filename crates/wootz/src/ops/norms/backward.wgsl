// A workgroup takes a block of rows, one after the other: dx of each row, and the block's parts of
// the gradients of weight and bias, whose columns each belong to one thread.
struct Params {
    rows: u32, columns: u32, rows_per_block: u32, blocks: u32, eps: u32,
    x_offset: u32, weight_offset: u32, dy_offset: u32,
}
var<immediate> p: Params;

fn add_part(at: u32, first: bool, value: f32, undefined: bool) {
    var before = 0.0;
    if (!first) { before = partials_data[at]; }
    partials_set(at, undefined_or(before + value, undefined));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let block = wid.x + wid.y * groups.x;
    if (block >= p.blocks) { return; }
    let part = block * p.columns * (u32(WEIGHTED) + u32(BIASED));
    let first = block * p.rows_per_block;
    let last = min(first + p.rows_per_block, p.rows);
    for (var row = first; row < last; row++) {
        let base = row * p.columns;
        let shift = row_shift(p.x_offset + base, p.columns, lid);
        var moments = vec2<f32>(0.0);
        var products = vec2<f32>(0.0);
        for (var column = lid; column < p.columns; column += WIDTH) {
            let value = x(p.x_offset + base + column) - shift;
            let term = dy(p.dy_offset + base + column) * weight(p.weight_offset + column);
            moments += vec2<f32>(value, 1.0) * value;
            products += vec2<f32>(value, 1.0) * term;
        }
        moments = group_sum(moments, lid);
        products = group_sum(products, lid);
        let known = mean_and_scale(moments, shift, p.columns, p.eps);
        let undefined = is_undefined(moments.x);
        let mean = known.x;
        let r = known.y;
        var level = 0.0;
        if (CENTRED) {
            level = products.y / f32(p.columns);
            // An infinite gradient is in the products already, with its sign.
            if ((bitcast<u32>(products.y) & 0x7f800000u) != 0x7f800000u) {
                products.x -= (mean - shift) * products.y;
            }
        }
        let slope = products.x * r * r / f32(p.columns);
        for (var column = lid; column < p.columns; column += WIDTH) {
            let value = x(p.x_offset + base + column) - mean;
            let gradient = dy(p.dy_offset + base + column);
            let term = gradient * weight(p.weight_offset + column);
            if (WEIGHTED) {
                add_part(part + column, row == first, gradient * value * r, undefined);
            }
            if (BIASED) {
                add_part(part + u32(WEIGHTED) * p.columns + column, row == first, gradient, false);
            }
            let dx = r * (term - value * slope - level);
            out_set(base + column, undefined_or(dx, undefined));
        }
    }
}
