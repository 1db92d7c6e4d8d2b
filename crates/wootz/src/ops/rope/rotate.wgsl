// A thread takes a pair of features (or as many as make whole words), or features that are only
// copied, at one position: it finds cosine and sine once and rotates the pair in several heads.
struct Params {
    threads: u32, items: u32, copied: u32,
    heads: u32, length: u32, features: u32, half: u32,
    group_heads: u32, head_blocks: u32, heads_per_thread: u32,
    x_offset: u32, x_batch: u32, x_head: u32, x_row: u32,
    frequencies_offset: u32, axes: u32,
    positions_offset: u32, positions_batch: u32, positions_axis: u32,
    start: f32, scale: f32, amplitude: f32, sine_sign: f32,
}
var<immediate> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let id = (wid.x + wid.y * groups.x) * 64u + lid;
    if (id >= p.threads) { return; }
    let item = id % p.items;
    let row = (id / p.items) % p.length;
    let block = id / (p.items * p.length);
    let group = block / p.head_blocks;
    let end = (group + 1u) * p.group_heads;
    let first = group * p.group_heads + (block % p.head_blocks) * p.heads_per_thread;
    let last = min(first + p.heads_per_thread, end);

    let pairs = p.items - p.copied;
    let turns = turns_of(item, pairs, group, row);
    for (var head = first; head < last; head++) {
        let source = p.x_offset + (head / p.heads) * p.x_batch + (head % p.heads) * p.x_head
            + row * p.x_row;
        let to = (head * p.length + row) * p.features;
        move_item(item, pairs, source, to, turns);
    }
}
