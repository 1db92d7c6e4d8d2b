// Few elements: one thread combines all of an output's, in order.

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3u,
    @builtin(num_workgroups) groups: vec3u,
    @builtin(local_invocation_index) lid: u32,
) {
    let output = (wid.x + wid.y * groups.x) * 64u + lid;
    if (output >= p.outputs) {
        return;
    }
    if (p.length == 0u) {
        store(output, identity());
        return;
    }
    let base = kept_place(output);
    var acc = element(base + reduced_place(0u), 0u);
    for (var i = 1u; i < p.length; i++) {
        acc = combine(acc, element(base + reduced_place(i), i));
    }
    store(output, acc);
}
