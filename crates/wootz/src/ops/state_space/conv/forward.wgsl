// Steps of a sequence behind those of its state.
struct Params {
    n: u32, steps: u32, channels: u32, kept: u32,
    x_offset: u32, weight_offset: u32, state_offset: u32, bias_offset: u32,
}
var<immediate> p: Params;

fn whole(batch: u32, step: u32, channel: u32) -> f32 {
    if (step < p.kept) {
        return state(p.state_offset + (batch * p.kept + step) * p.channels + channel);
    }
    return x(p.x_offset + (batch * p.steps + step - p.kept) * p.channels + channel);
}

// Element `i` of the result.
fn convolved(i: u32) -> f32 {
    let channel = i % p.channels;
    let row = i / p.channels;
    var sum = 0.0;
    for (var tap = 0u; tap <= p.kept; tap++) {
        let factor = weight(p.weight_offset + channel * (p.kept + 1u) + tap);
        sum += factor * whole(row / p.steps, row % p.steps + tap, channel);
    }
    sum += bias(p.bias_offset + channel);
    if (SILU) { return sum * wz_sigmoid(sum); }
    return sum;
}

// Element `i` of the state behind the last step.
fn kept(i: u32) -> f32 {
    let row = i / p.channels;
    return whole(row / p.kept, p.steps + row % p.kept, i % p.channels);
}
