// A thread decodes 32 weights; then all store what the workgroup decoded, side by side.

struct Params { w_at: u32, scales_at: u32, biases_at: u32, units: u32 }
var<immediate> p: Params;

const WIDTH = 64u;
// One more than a unit keeps threads on different banks.
const PITCH = 33u;
var<workgroup> values: array<f32, WIDTH * PITCH>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let first = (wid.x + wid.y * groups.x) * WIDTH;
    if (first + lid < p.units) {
        var weights: array<f32, 32>;
        weights_of(first + lid, &weights);
        for (var i = 0u; i < 32u; i++) { values[lid * PITCH + i] = weights[i]; }
    }
    workgroupBarrier();
    let units = min(WIDTH, p.units - min(first, p.units));
    for (var word = lid; word < units * 32u / PER_WORD; word += WIDTH) {
        let element = word * PER_WORD;
        let at = element / 32u * PITCH + element % 32u;
        out_data[first * 32u / PER_WORD + word] = STORED;
    }
}
