// A workgroup walks back through the chunks with a block of channels, a thread for each. The states of a chunk are
// made again from that before it. Gradients go to the scratch memory; those of b and c are sums over the channels,
// which the threads add up for the block.
struct Params {
    groups: u32, blocks: u32, threads: u32, steps: u32, channels: u32, chunks: u32,
    first: u32, end: u32, x: u32, dt: u32, a: u32, b: u32, c: u32, dy: u32,
    starts: u32, states: u32, slopes: u32, dx: u32, ddt: u32, da: u32, db: u32, dc: u32,
}
var<immediate> p: Params;

var<workgroup> of_b: array<f32, WIDTH * AT_ONCE>;
var<workgroup> of_c: array<f32, WIDTH * AT_ONCE>;

// The sum of what the block's threads have, in their order. Eight a turn: lavapipe ends the loops of a thread after
// 65,535 turns of all of them together.
fn summed_b(i: u32) -> f32 {
    var sum = 0.0;
    for (var lane = i * WIDTH; lane < (i + 1u) * WIDTH; lane += 8u) {
        sum += of_b[lane];
        sum += of_b[lane + 1u];
        sum += of_b[lane + 2u];
        sum += of_b[lane + 3u];
        sum += of_b[lane + 4u];
        sum += of_b[lane + 5u];
        sum += of_b[lane + 6u];
        sum += of_b[lane + 7u];
    }
    return sum;
}

fn summed_c(i: u32) -> f32 {
    var sum = 0.0;
    for (var lane = i * WIDTH; lane < (i + 1u) * WIDTH; lane += 8u) {
        sum += of_c[lane];
        sum += of_c[lane + 1u];
        sum += of_c[lane + 2u];
        sum += of_c[lane + 3u];
        sum += of_c[lane + 4u];
        sum += of_c[lane + 5u];
        sum += of_c[lane + 6u];
        sum += of_c[lane + 7u];
    }
    return sum;
}

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let group = wid.x + wid.y * groups.x;
    if (group >= p.groups) { return; }
    let batch = group / p.blocks;
    let channel = (group % p.blocks) * WIDTH + lid;
    let inside = channel < p.channels;
    let thread = batch * p.channels + min(channel, p.channels - 1u);
    var rates: array<f32, SIZE>;
    var slopes: array<f32, SIZE>;
    var of_rates: array<f32, SIZE>;
    for (var n = 0u; n < SIZE; n++) {
        rates[n] = a(p.a + thread % p.channels * SIZE + n);
        slopes[n] = 0.0;
        if (inside) { slopes[n] = memory[p.slopes + thread * SIZE + n]; }
        of_rates[n] = 0.0;
        if (inside && p.first > 0u) { of_rates[n] = memory[p.da + thread * SIZE + n]; }
    }
    for (var turn = p.first; turn < p.end; turn++) {
        let chunk = p.chunks - 1u - turn;
        let first = chunk * CHUNK;
        let count = min(CHUNK, p.steps - first);
        if (inside) {
            for (var n = 0u; n < SIZE; n++) {
                var h = memory[p.starts + (chunk * SIZE + n) * p.threads + thread];
                for (var step = 0u; step < count; step++) {
                    memory[p.states + (step * SIZE + n) * p.threads + thread] = h;
                    let row = batch * p.steps + first + step;
                    let at = row * p.channels + channel;
                    let length = dt(p.dt + at);
                    h = wz_exp(length * rates[n]) * h + length * x(p.x + at) * b(p.b + row * SIZE + n);
                }
                memory[p.states + (count * SIZE + n) * p.threads + thread] = h;
            }
        }
        for (var back = 0u; back < count; back++) {
            let step = count - 1u - back;
            let row = batch * p.steps + first + step;
            let at = row * p.channels + channel;
            var length = 0.0;
            var value = 0.0;
            var result = 0.0;
            if (inside) {
                length = dt(p.dt + at);
                value = x(p.x + at);
                result = dy(p.dy + at);
            }
            var of_learnt = 0.0;
            var of_length = 0.0;
            for (var base = 0u; base < SIZE; base += AT_ONCE) {
                for (var i = 0u; i < AT_ONCE; i++) {
                    let n = base + i;
                    if (n >= SIZE) { break; }
                    of_b[i * WIDTH + lid] = 0.0;
                    of_c[i * WIDTH + lid] = 0.0;
                    if (!inside) { continue; }
                    let before = memory[p.states + (step * SIZE + n) * p.threads + thread];
                    let behind = memory[p.states + ((step + 1u) * SIZE + n) * p.threads + thread];
                    let own = slopes[n] + result * c(p.c + row * SIZE + n);
                    of_c[i * WIDTH + lid] = result * behind;
                    of_b[i * WIDTH + lid] = own * (length * value);
                    of_learnt += own * b(p.b + row * SIZE + n);
                    slopes[n] = own * wz_exp(length * rates[n]);
                    let of_exponent = slopes[n] * before;
                    of_length += of_exponent * rates[n];
                    of_rates[n] += of_exponent * length;
                }
                workgroupBarrier();
                if (lid < AT_ONCE && base + lid < SIZE) {
                    let to = (group * p.steps + first + step) * SIZE + base + lid;
                    memory[p.db + to] = summed_b(lid);
                    memory[p.dc + to] = summed_c(lid);
                }
                workgroupBarrier();
            }
            if (inside) {
                memory[p.dx + at] = of_learnt * length;
                memory[p.ddt + at] = of_length + of_learnt * value;
            }
        }
    }
    if (inside) {
        for (var n = 0u; n < SIZE; n++) {
            memory[p.slopes + thread * SIZE + n] = slopes[n];
            memory[p.da + thread * SIZE + n] = of_rates[n];
        }
    }
}
