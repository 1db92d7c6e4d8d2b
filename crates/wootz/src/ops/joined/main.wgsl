// Products of up to X rows of `x` with rows of several matrices, ROWS of them in a workgroup. What the threads
// come to is added up in subgroups, and then between them; PARTS are the matrices that a workgroup has rows of.

var<workgroup> partial: array<f32, PARTS * THREADS * SUMS>;

// Stores the sums of a subgroup, and begins anew.
fn keep(part: u32, subgroup: u32, lane: u32, sums: ptr<function, array<f32, SUMS>>) {
    for (var i = 0u; i < SUMS; i++) {
        let sum = added((*sums)[i]);
        if (lane == 0u) { partial[(part * THREADS + subgroup) * SUMS + i] = sum; }
        (*sums)[i] = 0.0;
    }
}

fn total(part: u32, subgroups: u32, i: u32) -> f32 {
    var sum = 0.0;
    for (var s = 0u; s < subgroups; s++) { sum += partial[(part * THREADS + s) * SUMS + i]; }
    return sum;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32/* BUILTINS */) {
    let group = wid.x + wid.y * groups.x;
    var first = 0u;
    var sums: array<f32, SUMS>;
    for (var i = 0u; i < SUMS; i++) { sums[i] = 0.0; }
    // ADD
    workgroupBarrier();
    let row = first + lid / X;
    let j = lid % X;
    if (group < p.groups && lid < SUMS && j < p.m) {
        // STORE
    }
}
