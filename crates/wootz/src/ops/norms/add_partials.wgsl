// A gradient that is a sum over rows: the blocks' parts, in their order.
struct Params { columns: u32, blocks: u32, stride: u32, first: u32 }
var<immediate> p: Params;

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let column = (wid.x + wid.y * groups.x) * WIDTH + lid;
    if (column >= p.columns) { return; }
    var sum = 0.0;
    for (var block = 0u; block < p.blocks; block++) {
        sum += partials_data[block * p.stride + p.first + column];
    }
    sum_set(column, sum);
}
