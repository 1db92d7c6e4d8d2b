// A thread walks through a block of rows with one span of channels. The last steps and the gradients of the last sums are
// at hand, so that each is read once; where a sequence ends or the block does, those behind are read, too.
struct Params {
    threads: u32, spans: u32, steps: u32, channels: u32, rows: u32, per_block: u32,
    x_offset: u32, weight_offset: u32, state_offset: u32, bias_offset: u32, dy_offset: u32, dnext_offset: u32,
}
var<immediate> p: Params;

fn whole_span(batch: u32, step: u32, channel: u32) -> Span {
    if (step < KEPT_STEPS) {
        return state_span(p.state_offset + (batch * KEPT_STEPS + step) * p.channels + channel);
    }
    return x_span(p.x_offset + (batch * p.steps + step - KEPT_STEPS) * p.channels + channel);
}

fn keep_sum(place: u32, value: Span) {
    for (var lane = 0u; lane < SPAN; lane++) { memory[place + lane] = span_lane(value, lane); }
}

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let thread = (wid.x + wid.y * groups.x) * WIDTH + lid;
    if (thread >= p.threads) { return; }
    let channel = thread % p.spans * SPAN;
    let block = thread / p.spans;
    var factors: array<Span, TAPS>;
    var of_weights: array<Span, TAPS>;
    var seen: array<Span, TAPS>;
    var slopes: array<Span, TAPS>;
    for (var tap = 0u; tap < TAPS; tap++) {
        let place = p.weight_offset + channel * TAPS + tap;
        factors[tap] = span_of(weight(place), weight(place + (SPAN - 1u) * TAPS));
        of_weights[tap] = Span(0.0);
    }
    var of_bias = Span(0.0);
    var row = block * p.per_block;
    let end = min(row + p.per_block, p.rows);
    while (row < end) {
        let batch = row / p.steps;
        let first = row % p.steps;
        let last = min(p.steps, first + end - row);
        for (var tap = 0u; tap < TAPS; tap++) {
            slopes[tap] = Span(0.0);
            seen[tap] = Span(0.0);
            // The first is pushed out by the first step.
            if (tap > 0u) { seen[tap] = whole_span(batch, first + tap - 1u, channel); }
        }
        for (var step = first; step < last + KEPT_STEPS; step++) {
            for (var tap = KEPT_STEPS; tap > 0u; tap--) { slopes[tap] = slopes[tap - 1u]; }
            var slope = Span(0.0);
            if (step < p.steps) {
                for (var tap = 0u; tap < KEPT_STEPS; tap++) { seen[tap] = seen[tap + 1u]; }
                seen[KEPT_STEPS] = whole_span(batch, step + KEPT_STEPS, channel);
                slope = dy_span(p.dy_offset + (batch * p.steps + step) * p.channels + channel);
                if (SILU) {
                    var sum = bias_span(p.bias_offset + channel);
                    for (var tap = 0u; tap < TAPS; tap++) { sum += factors[tap] * seen[tap]; }
                    let part = span_sigmoid(sum);
                    slope *= part + sum * part * (Span(1.0) - part);
                }
                if (step < last) {
                    for (var tap = 0u; tap < TAPS; tap++) { of_weights[tap] += slope * seen[tap]; }
                    of_bias += slope;
                }
            }
            slopes[0] = slope;
            if (step < first + KEPT_STEPS) { continue; }
            var sum = Span(0.0);
            if (CONTINUED && step >= p.steps) {
                let place = (batch * KEPT_STEPS + step - p.steps) * p.channels + channel;
                sum = dnext_span(p.dnext_offset + place);
            }
            for (var tap = 0u; tap < TAPS; tap++) {
                // Behind the last result there is none that saw the step.
                if (step - tap < p.steps) { sum += factors[tap] * slopes[tap]; }
            }
            out_span_set((batch * p.steps + step - KEPT_STEPS) * p.channels + channel, sum);
        }
        row += last - first;
    }
    let place = block * SUMS * p.channels + channel;
    for (var tap = 0u; tap < TAPS; tap++) {
        keep_sum(place + tap * p.channels, of_weights[tap]);
    }
    if (SUMS > TAPS) { keep_sum(place + TAPS * p.channels, of_bias); }
}
