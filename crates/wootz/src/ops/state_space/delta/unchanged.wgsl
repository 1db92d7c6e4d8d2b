// The gradient of the state behind no steps.
struct Params { n: u32, offset: u32, start: u32 }
var<immediate> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let i = (wid.x + wid.y * groups.x) * 256u + lid;
    if (i < p.n) { memory[p.start + i] = dnext(p.offset + i); }
}
