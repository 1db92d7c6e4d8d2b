// A workgroup has a chunk of a head: the products of two kinds of its rows with those of a third, or of the
// second kind only. Before this stands where rows are, `one`, `two` and `right`, of `width()` columns, and
// where in the tile the first kind is, which may be the third.
const SIDE = STEPS * PITCH;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32, /* SUBGROUP */
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let head = group / p.blocks;
    let start = (p.first_chunk + group % p.blocks) * STEPS;
    let count = min(STEPS, p.steps - start);
    clear(thread);
    var sums = no_pairs();
    for (var first = 0u; first < width(); first += DEPTH) {
        for (var i = thread; i < STEPS * DEPTH; i += 256u) {
            let t = i / DEPTH;
            let column = i % DEPTH;
            var x = vec3<f32>(0.0);
            if (t < count && first + column < width()) {
                if (CORRECTS && ONE == 0u) { x.x = one(head, start + t, first + column); }
                x.y = two(head, start + t, first + column);
                x.z = right(head, start + t, first + column);
            }
            tile[t * PITCH + column] = x.x;
            tile[SIDE + t * PITCH + column] = x.y;
            tile[2u * SIDE + t * PITCH + column] = x.z;
        }
        workgroupBarrier();
        add_pairs(&sums, thread, subgroup);
        workgroupBarrier();
    }
    keep_pairs(&sums, pairs_at() + group * PAIRS, thread, subgroup);
}
