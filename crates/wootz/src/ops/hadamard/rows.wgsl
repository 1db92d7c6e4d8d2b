// One workgroup per span of whole rows, which lie in its memory while they are added and subtracted.

struct Params { size: u32, power: u32, span: u32, x_offset: u32, scale: f32 }
var<immediate> p: Params;

const WIDTH = 256u;

var<workgroup> values: array<f32, 4096>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let start = (wid.x + wid.y * groups.x) * p.span;
    // The last group may have fewer rows, and groups of a grid may lie past the end.
    let count = min(p.span, p.size - min(start, p.size));
    for (var i = lid; i < count; i += WIDTH) {
        values[i] = x(p.x_offset + start + i);
    }
    for (var half = 1u; half < p.power; half = half * 2u) {
        workgroupBarrier();
        for (var pair = lid; pair < count / 2u; pair += WIDTH) {
            let first = (pair / half) * 2u * half + pair % half;
            let a = values[first];
            let b = values[first + half];
            values[first] = a + b;
            values[first + half] = a - b;
        }
    }
    workgroupBarrier();
    if (ORDER > 1u) {
        // Sums of equal places in a row's parts, with signs.
        for (var column = lid; column < count / ORDER; column += WIDTH) {
            let first = (column / p.power) * p.power * ORDER + column % p.power;
            var parts: array<f32, ORDER>;
            for (var i = 0u; i < ORDER; i++) { parts[i] = values[first + i * p.power]; }
            for (var row = 0u; row < ORDER; row++) {
                let signs = signs_of(row);
                var sum = 0.0;
                for (var i = 0u; i < ORDER; i++) {
                    sum += select(parts[i], -parts[i], ((signs >> i) & 1u) == 1u);
                }
                values[first + row * p.power] = sum;
            }
        }
        workgroupBarrier();
    }
    for (var i = lid; i < count; i += WIDTH) {
        out_set(start + i, values[i] * p.scale);
    }
}
