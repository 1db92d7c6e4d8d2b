// Merges neighbouring sorted runs: every element finds its place by searching the other run. Of a run
// only the `kept` largest elements are ever looked at, and only their places are right.
struct Params {
    total: u32, length: u32, offset: u32, width: u32, kept: u32, source: u32, target_: u32,
}
var<immediate> p: Params;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let i = (wid.x + wid.y * groups.x) * 256u + lid;
    if (i >= p.total) { return; }
    let row = i / p.length * p.length;
    let place = i - row;
    let run = place / p.width;
    let end = min(p.length - run * p.width, p.width) + run * p.width;
    if (end - place > p.kept) { return; }
    let index = order[p.source + i];
    let mine = key(x(p.offset + row + index));
    // Of equal elements those of the left run come first.
    let left = (run & 1u) == 0u;
    let sibling = min((run ^ 1u) * p.width, p.length);
    var high = sibling + min(p.width, p.length - sibling);
    let first_kept = high - min(high - sibling, p.kept);
    var low = first_kept;
    while (low < high) {
        let middle = low + (high - low) / 2u;
        let other = key(x(p.offset + row + order[p.source + row + middle]));
        if (other < mine || (other == mine && !left)) { low = middle + 1u; } else { high = middle; }
    }
    // So many of the other run are larger that this one is not among the largest.
    if (low == first_kept && first_kept != sibling) { return; }
    let first = run / 2u * 2u * p.width;
    let to = first + (place - run * p.width) + (low - sibling);
    order[p.target_ + row + to] = index;
}
