// A thread walks through some steps with a channel's state, which it finds in the memory of the next one.
struct Params {
    threads: u32, steps: u32, channels: u32, first: u32, end: u32,
    x: u32, dt: u32, a: u32, b: u32, c: u32, d: u32,
}
var<immediate> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let thread = (wid.x + wid.y * groups.x) * 64u + lid;
    if (thread >= p.threads) { return; }
    let channel = thread % p.channels;
    var state: array<f32, SIZE>;
    var rates: array<f32, SIZE>;
    for (var n = 0u; n < SIZE; n++) {
        state[n] = 0.0;
        if (STATED) { state[n] = next_data[thread * SIZE + n]; }
        rates[n] = a(p.a + channel * SIZE + n);
    }
    for (var step = p.first; step < p.end; step++) {
        let row = thread / p.channels * p.steps + step;
        let at = row * p.channels + channel;
        let value = x(p.x + at);
        let length = dt(p.dt + at);
        let learnt = length * value;
        var sum = 0.0;
        for (var n = 0u; n < SIZE; n++) {
            let decay = wz_exp(length * rates[n]);
            state[n] = decay * state[n] + learnt * b(p.b + row * SIZE + n);
            sum += state[n] * c(p.c + row * SIZE + n);
        }
        if (SKIPS) { sum += d(p.d + channel) * value; }
        y_set(at, sum);
    }
    for (var n = 0u; n < SIZE; n++) { next_set(thread * SIZE + n, state[n]); }
}
