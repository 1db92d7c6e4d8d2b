// The given state in the memory of the next one.
struct Params { n: u32, state: u32 }
var<immediate> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let i = (wid.x + wid.y * groups.x) * 64u + lid;
    if (i < p.n) { next_set(i, state(p.state + i)); }
}
