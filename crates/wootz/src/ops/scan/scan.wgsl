// One workgroup for each line. Chunks of 256 elements are scanned in workgroup memory, and what is
// combined so far is carried from chunk to chunk.

var<workgroup> lanes: array<Acc, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3u,
    @builtin(num_workgroups) groups: vec3u,
    @builtin(local_invocation_index) lid: u32,
) {
    let line = wid.x + wid.y * groups.x;
    if (line >= p.lines) {
        return;
    }
    let base = (line / p.inner) * p.length * p.inner + line % p.inner;
    var carry: Acc;
    for (var at = 0u; at < p.length; at += 256u) {
        let k = at + lid;
        let live = k < p.length;
        let place = base + select(k, p.length - 1u - k, REVERSE) * p.inner;
        if (live) {
            lanes[lid] = x(p.offset + place);
        }
        for (var step = 1u; step < 256u; step = step << 1u) {
            workgroupBarrier();
            let joins = live && lid >= step;
            var joined: Acc;
            if (joins) {
                joined = combine(lanes[lid - step], lanes[lid]);
            }
            workgroupBarrier();
            if (joins) {
                lanes[lid] = joined;
            }
        }
        workgroupBarrier();
        if (live) {
            var value: Acc;
            if (INCLUSIVE || lid > 0u) {
                value = lanes[select(lid - 1u, lid, INCLUSIVE)];
                if (at > 0u) {
                    value = combine(carry, value);
                }
            } else {
                value = carry;
            }
            if (!INCLUSIVE && k == 0u) {
                value = first();
            }
            y_set(place, value);
        }
        if (at + 256u < p.length) {
            let last = lanes[255];
            if (at > 0u) {
                carry = combine(carry, last);
            } else {
                carry = last;
            }
        }
        workgroupBarrier();
    }
}
