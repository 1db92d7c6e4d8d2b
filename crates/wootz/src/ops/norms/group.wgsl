// What the row kernels share: a sum over the workgroup, by halves.
var<workgroup> partial: array<vec2<f32>, WIDTH>;

fn group_sum(value: vec2<f32>, lid: u32) -> vec2<f32> {
    // The last sum may still be being read.
    workgroupBarrier();
    partial[lid] = value;
    workgroupBarrier();
    for (var left = WIDTH; left > 1u; left = (left + 1u) / 2u) {
        let half = (left + 1u) / 2u;
        if (lid < left - half) { partial[lid] += partial[lid + half]; }
        workgroupBarrier();
    }
    return partial[0];
}

fn inverse_root(squares: f32, columns: u32, eps: u32) -> f32 {
    return inverseSqrt(squares / f32(columns) + bitcast<f32>(eps));
}
