// Walks forward through some chunks, keeping the states at their starts. The state stands where its gradient
// will in between.
@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.heads) { return; }
    head = group;
    lane = thread % LANES;
    row = p.block + thread / LANES;
    let row_at = (head * p.values + row) * KEYS;
    for (var e = 0u; e < EACH; e++) {
        let key = lane + e * LANES;
        s[e] = 0.0;
        if (row < p.values && key < KEYS) {
            if (p.first_chunk == 0u) {
                s[e] = state(p.state + row_at + key);
            } else {
                s[e] = memory[p.dstate + row_at + key];
            }
        }
    }
    for (var t = p.first_chunk * p.chunk; t < min(p.steps, p.end_chunk * p.chunk); t++) {
        if (t % p.chunk == 0u) { keep(start_at(t / p.chunk), thread); }
        advance(t, thread);
    }
    for (var e = 0u; e < EACH; e++) {
        let key = lane + e * LANES;
        if (row < p.values && key < KEYS) { memory[p.dstate + row_at + key] = s[e]; }
    }
}
