// The end of a group's range that is farther from zero is kept exactly, and zero is a code.

const HIGHEST = f32((1u << BITS) - 1u);

// Scale and bias.
fn parameters(lowest: f32, most: f32) -> vec2f {
    var scale = max((most - lowest) / HIGHEST, 1e-7);
    if (BITS == 1u) { return vec2f(scale, lowest); }
    var edge = lowest;
    if (abs(lowest) <= abs(most)) {
        scale = -scale;
        edge = most;
    }
    let zero = clamp(round(edge / scale), -1e38, 1e38);
    if (zero == 0.0) { return vec2f(scale, 0.0); }
    return vec2f(edge / zero, edge);
}

fn encode(group: u32) {
    let first = group * GROUP;
    var lowest = weight(first);
    var most = lowest;
    for (var i = 1u; i < GROUP; i++) {
        let value = weight(first + i);
        lowest = min(lowest, value);
        most = max(most, value);
    }
    if (BITS == 1u) { most = max(min(most, REACH), lowest); }
    var found = parameters(lowest, most);
    // What is so far apart that decoding would not be finite is brought together: see the CPU's kernel. Halves
    // do not overflow; of numbers of usual size nothing is halved.
    let half_range = 0.5 * most - 0.5 * lowest;
    let reach = abs(round((most - lowest) / found.x) * found.x);
    var half = 1.0;
    if (half_range > 0.5 * REACH || reach > REACH) {
        let factor = 0.375 * REACH / half_range;
        found = parameters(factor * lowest, factor * most);
        half = 0.5;
    }
    let scale = found.x;
    let bias = found.y;
    scales_set(group, scale);
    biases_set(group, bias);
    // The number of a weight times its bits may not fit a word.
    var at = group * (GROUP / 32u) * BITS;
    var word = 0u;
    var bit = 0u;
    for (var i = 0u; i < GROUP; i++) {
        let code = u32(clamp(round((half * weight(first + i) - half * bias) / (half * scale)), 0.0, HIGHEST));
        word |= code << bit;
        bit += BITS;
        if (bit >= 32u) {
            codes_data[at] = word;
            at += 1u;
            bit -= 32u;
            // What did not fit begins the next word.
            word = select(0u, code >> (BITS - bit), bit > 0u);
        }
    }
}
