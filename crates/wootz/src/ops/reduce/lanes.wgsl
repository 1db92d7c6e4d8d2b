// One block of the reduced elements of eight outputs, with 32 lanes for each: lane l combines the
// elements l, l + 32, … of the block in order, then a tree combines the lanes. Nothing but the
// mapping of threads to outputs and lanes depends on the layout, so it does not change results.

var<workgroup> lanes: array<Acc, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3u,
    @builtin(num_workgroups) groups: vec3u,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = wid.x + wid.y * groups.x;
    let lane = select(lid & 31u, lid >> 3u, COLUMN);
    let column = select(lid >> 5u, lid & 7u, COLUMN);
    let across = (p.outputs + 7u) / 8u;
    let block = group / across;
    let output = (group % across) * 8u + column;
    let live = block < p.blocks && output < p.outputs;
    let start = block * p.block_length;
    let end = select(start, min(start + p.block_length, p.length), live);
    let at = column * 32u + lane;
    if (start + lane < end) {
        let base = kept_place(output);
        var acc = element(base + reduced_place(start + lane), start + lane);
        for (var i = start + lane + 32u; i < end; i += 32u) {
            acc = combine(acc, element(base + reduced_place(i), i));
        }
        lanes[at] = acc;
    }
    for (var step = 16u; step > 0u; step = step >> 1u) {
        workgroupBarrier();
        if (lane < step && start + lane + step < end) {
            lanes[at] = combine(lanes[at], lanes[at + step]);
        }
    }
    if (lane == 0u && live) {
        store(block * p.outputs + output, lanes[at]);
    }
}
