// Sorts blocks of 256 elements: every thread counts the elements that come before its own.
struct Params { groups: u32, blocks: u32, length: u32, offset: u32 }
var<immediate> p: Params;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;
var<workgroup> keys: array<KEY, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let group = wid.x + wid.y * groups.x;
    let row = group / p.blocks;
    let start = (group % p.blocks) * 256u;
    let count = select(0u, min(256u, p.length - start), group < p.groups);
    if (lid < count) { keys[lid] = key(x(p.offset + row * p.length + start + lid)); }
    workgroupBarrier();
    if (lid < count) {
        let mine = keys[lid];
        var rank = 0u;
        for (var i = 0u; i < count; i++) {
            let other = keys[i];
            rank += select(0u, 1u, other < mine || (other == mine && i < lid));
        }
        order[row * p.length + start + rank] = start + lid;
    }
}
