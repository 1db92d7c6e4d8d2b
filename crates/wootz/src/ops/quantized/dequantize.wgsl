// A thread decodes 32 weights; then all store what the workgroup decoded, side by side.

struct Params { w_at: u32, scales_at: u32, biases_at: u32, count: u32 }
var<immediate> p: Params;

const WIDTH = 64u;
// One more than a unit keeps threads on different banks.
const PITCH = 33u;
var<workgroup> values: array<f32, WIDTH * PITCH>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let first = (wid.x + wid.y * groups.x) * WIDTH;
    if ((first + lid) * 32u < p.count) {
        var weights: array<f32, 32>;
        row_weights(0u, p.count, first + lid, &weights);
        for (var i = 0u; i < 32u; i++) { values[lid * PITCH + i] = weights[i]; }
    }
    workgroupBarrier();
    let count = min(WIDTH * 32u, p.count - min(first * 32u, p.count));
    for (var word = lid; word < count / PER_WORD; word += WIDTH) {
        let element = word * PER_WORD;
        let at = element / 32u * PITCH + element % 32u;
        out_data[first * 32u / PER_WORD + word] = STORED;
    }
}
