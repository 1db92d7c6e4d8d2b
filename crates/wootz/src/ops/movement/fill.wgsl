struct Params { words: u32, offset: u32, high: u32 }
var<immediate> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let i = (wid.x + wid.y * groups.x) * 256u + lid;
    if (i < p.words) { out_data[i] = WORD; }
}
