// One of the two sums of each feature, over all samples in their order.
struct Params { features: u32, samples: u32, part: u32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> partials: array<f32>;

fn summed(i: u32) -> f32 {
    var sum = 0.0;
    for (var sample = 0u; sample < p.samples; sample++) {
        sum += partials[(sample * 2u + p.part) * p.features + i];
    }
    return sum;
}
