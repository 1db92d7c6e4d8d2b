// Results of a sequence, and the state behind it.
struct Params {
    n: u32, steps: u32, channels: u32,
    x_offset: u32, weight_offset: u32, state_offset: u32, bias_offset: u32,
}
var<immediate> p: Params;

// Element `i` of the result.
fn convolved(i: u32) -> f32 {
    let channel = i % p.channels;
    let row = i / p.channels;
    var sum = 0.0;
    for (var tap = 0u; tap < TAPS; tap++) {
        let factor = weight(p.weight_offset + channel * TAPS + tap);
        sum += factor * whole(row / p.steps, row % p.steps + tap, channel);
    }
    sum += bias(p.bias_offset + channel);
    if (SILU) { return sum * wz_sigmoid(sum); }
    return sum;
}

// Element `i` of the state behind the last step.
fn kept(i: u32) -> f32 {
    let row = i / p.channels;
    // Without a state this is not called, but must be right.
    let kept_steps = max(KEPT_STEPS, 1u);
    return whole(row / kept_steps, p.steps + row % kept_steps, i % p.channels);
}
