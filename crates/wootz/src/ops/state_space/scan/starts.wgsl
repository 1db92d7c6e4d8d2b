// A thread walks through some chunks of steps with a channel's state and keeps it before the next chunk, where it
// goes on in another launch. The first one also leaves the gradient of the last state where the walk back begins.
struct Params {
    threads: u32, steps: u32, channels: u32, chunks: u32, first: u32, end: u32,
    x: u32, dt: u32, a: u32, b: u32, state: u32, last: u32, starts: u32, slopes: u32,
}
var<immediate> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let thread = (wid.x + wid.y * groups.x) * 64u + lid;
    if (thread >= p.threads) { return; }
    let channel = thread % p.channels;
    var h: array<f32, SIZE>;
    var rates: array<f32, SIZE>;
    for (var n = 0u; n < SIZE; n++) {
        let start = p.starts + (p.first * SIZE + n) * p.threads + thread;
        rates[n] = a(p.a + channel * SIZE + n);
        if (p.first > 0u) {
            h[n] = memory[start];
        } else {
            h[n] = 0.0;
            if (STATED) { h[n] = state(p.state + thread * SIZE + n); }
            memory[start] = h[n];
            memory[p.slopes + thread * SIZE + n] = last(p.last + thread * SIZE + n);
        }
    }
    for (var chunk = p.first; chunk < p.end; chunk++) {
        if (chunk + 1u == p.chunks) { break; }
        for (var step = chunk * CHUNK; step < (chunk + 1u) * CHUNK; step++) {
            let row = thread / p.channels * p.steps + step;
            let at = row * p.channels + channel;
            let length = dt(p.dt + at);
            let learnt = length * x(p.x + at);
            for (var n = 0u; n < SIZE; n++) {
                h[n] = wz_exp(length * rates[n]) * h[n] + learnt * b(p.b + row * SIZE + n);
            }
        }
        for (var n = 0u; n < SIZE; n++) {
            memory[p.starts + ((chunk + 1u) * SIZE + n) * p.threads + thread] = h[n];
        }
    }
}
