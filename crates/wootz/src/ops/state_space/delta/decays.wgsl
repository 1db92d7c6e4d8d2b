// What kernels share that need the gates of a chunk, and their products from its start and to its end.
var<workgroup> gate: array<f32, STEPS>;
var<workgroup> from_start: array<f32, STEPS>;
var<workgroup> to_end: array<f32, STEPS>;

// Four pairs of a thread: a step and one up to it.
fn later_of(thread: u32, i: u32) -> u32 { return thread / STEPS + 8u * i; }
fn earlier_of(thread: u32) -> u32 { return thread % STEPS; }

// The products of the gates behind the earlier step of pairs up to the later one; and those from the chunk's
// start and to its end. Gates are only ever multiplied, so that none is too small.
fn find_decays(thread: u32, step: u32, count: u32) -> vec4<f32> {
    if (thread < STEPS) {
        gate[thread] = 1.0;
        if (thread < count) { gate[thread] = g(p.g + step + thread); }
    }
    workgroupBarrier();
    let earlier = earlier_of(thread);
    var decays = vec4<f32>(0.0);
    var decay = 1.0;
    var next = earlier + 1u;
    for (var i = 0u; i < 4u; i++) {
        let later = later_of(thread, i);
        for (; next <= later; next++) { decay *= gate[next]; }
        if (earlier <= later && later < count) {
            decays[i] = decay;
            if (earlier == 0u) { from_start[later] = gate[0] * decay; }
            if (later == count - 1u) { to_end[earlier] = decay; }
        }
    }
    workgroupBarrier();
    return decays;
}
