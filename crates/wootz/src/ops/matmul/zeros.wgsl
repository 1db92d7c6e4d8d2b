// A product with nothing to sum.
struct Params { words: u32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> c_data: array<u32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = (wid.x + wid.y * groups.x) * 256u + thread;
    if (i < p.words) { c_data[i] = 0u; }
}
