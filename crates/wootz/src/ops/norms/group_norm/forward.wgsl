@compute @workgroup_size(WIDTH)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let number = wid.x + wid.y * groups.x;
    if (number >= p.all) { return; }
    let count = p.positions * (p.features / p.groups);
    let found = moments(number, count, lid);
    for (var i = lid; i < count; i += WIDTH) {
        let at = place(number, i);
        let normal = rounded((x(p.x + at) - found.x) * found.y);
        let scaled = rounded(normal * weight(p.weight + at % p.features));
        out_set(at, scaled + bias(p.bias + at % p.features));
    }
}
