// The gradient of the state: of what the first results saw of it, and of what is still there behind the last step.
struct Params {
    n: u32, steps: u32, channels: u32,
    x_offset: u32, weight_offset: u32, state_offset: u32, bias_offset: u32, dy_offset: u32, dnext_offset: u32,
}
var<immediate> p: Params;

fn slope(batch: u32, step: u32, channel: u32) -> f32 {
    let given = dy(p.dy_offset + (batch * p.steps + step) * p.channels + channel);
    if (!SILU) { return given; }
    var sum = bias(p.bias_offset + channel);
    for (var tap = 0u; tap < TAPS; tap++) {
        sum += weight(p.weight_offset + channel * TAPS + tap) * whole(batch, step + tap, channel);
    }
    let part = wz_sigmoid(sum);
    return given * (part + sum * part * (1.0 - part));
}

fn of_state(i: u32) -> f32 {
    let channel = i % p.channels;
    let row = i / p.channels;
    let batch = row / KEPT_STEPS;
    let step = row % KEPT_STEPS;
    var sum = 0.0;
    if (CONTINUED && step >= p.steps) {
        sum = dnext(p.dnext_offset + (batch * KEPT_STEPS + step - p.steps) * p.channels + channel);
    }
    for (var tap = 0u; tap <= step; tap++) {
        if (step - tap < p.steps) {
            sum += weight(p.weight_offset + channel * TAPS + tap) * slope(batch, step - tap, channel);
        }
    }
    return sum;
}
