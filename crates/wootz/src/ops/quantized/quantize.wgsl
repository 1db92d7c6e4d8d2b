// A thread encodes a group.

struct Params { w_at: u32, groups: u32 }
var<immediate> p: Params;

// NaN counts as zero, and an infinity as the largest finite float16. Asked of the bits: see fast math.
fn weight(i: u32) -> f32 {
    let value = w(p.w_at + i);
    let bits = bitcast<u32>(value);
    let magnitude = bits & 0x7fffffffu;
    if (magnitude < 0x7f800000u) { return value; }
    return select(bitcast<f32>((bits & 0x80000000u) | 0x477fe000u), 0.0, magnitude > 0x7f800000u);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let group = (wid.x + wid.y * groups.x) * 64u + lid;
    if (group < p.groups) { encode(group); }
}

