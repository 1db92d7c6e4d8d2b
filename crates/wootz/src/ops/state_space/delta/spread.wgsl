// A gradient from where the backward kernel left it; heads that share keys add up, in their order.
struct Params { n: u32, start: u32, shared_heads: u32, run: u32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> memory: array<f32>;

fn summed(i: u32) -> f32 {
    let first = p.start + (i / p.run) * p.shared_heads * p.run + i % p.run;
    var sum = 0.0;
    for (var head = 0u; head < p.shared_heads; head++) { sum += memory[first + head * p.run]; }
    return sum;
}
