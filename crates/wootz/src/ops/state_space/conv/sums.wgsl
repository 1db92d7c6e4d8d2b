// Gradients that are sums over rows: the blocks' parts, in their order. Those of a channel's taps are side by side.
struct Params { n: u32, start: u32, taps: u32, channels: u32, blocks: u32, stride: u32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> memory: array<f32>;

fn summed(i: u32) -> f32 {
    let place = p.start + i % p.taps * p.channels + i / p.taps;
    var sum = 0.0;
    for (var block = 0u; block < p.blocks; block++) { sum += memory[place + block * p.stride]; }
    return sum;
}
