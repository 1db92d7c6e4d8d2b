// One thread for each line, element after element: `t` is the place of an element, `u` that of the
// one before it in the scan.

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3u,
    @builtin(num_workgroups) groups: vec3u,
    @builtin(local_invocation_index) lid: u32,
) {
    let line = (wid.x + wid.y * groups.x) * 64u + lid;
    if (line >= p.lines) {
        return;
    }
    let base = (line / p.inner) * p.length * p.inner + line % p.inner;
    var running = Wide();
    for (var k = 0u; k < p.length; k++) {
        let t = base + select(k, p.length - 1u - k, REVERSE) * p.inner;
        let u = select(base + select(k - 1u, p.length - k, REVERSE) * p.inner, t, k == 0u);
        let begins = k == 0u;
        let ends = k + 1u == p.length;
        BODY
    }
}
