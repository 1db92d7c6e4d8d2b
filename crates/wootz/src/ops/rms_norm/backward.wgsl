// A workgroup takes a block of rows, one after the other: dx of each row, and the block's part of
// dw, whose columns each belong to one thread.
struct Params {
    rows: u32, columns: u32, rows_per_block: u32, blocks: u32, eps: u32,
    x_offset: u32, weight_offset: u32, dy_offset: u32,
}
var<immediate> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let block = wid.x + wid.y * groups.x;
    if (block >= p.blocks) { return; }
    let first = block * p.rows_per_block;
    let last = min(first + p.rows_per_block, p.rows);
    for (var row = first; row < last; row++) {
        let base = row * p.columns;
        var sums = vec2<f32>(0.0);
        for (var column = lid; column < p.columns; column += WIDTH) {
            let value = x(p.x_offset + base + column);
            let term = dy(p.dy_offset + base + column) * weight(p.weight_offset + column);
            sums += vec2<f32>(value, term) * value;
        }
        sums = group_sum(sums, lid);
        let r = inverse_root(sums.x, p.columns, p.eps);
        let slope = sums.y * r * r / f32(p.columns);
        for (var column = lid; column < p.columns; column += WIDTH) {
            let value = x(p.x_offset + base + column);
            let gradient = dy(p.dy_offset + base + column);
            let at = block * p.columns + column;
            var before = 0.0;
            if (row > first) { before = partials_data[at]; }
            partials_set(at, before + gradient * value * r);
            out_set(base + column, r * (gradient * weight(p.weight_offset + column) - value * slope));
        }
    }
}
