// The end of a group's range that is farther from zero is kept exactly, and zero is a code.

fn encode(group: u32) {
    let first = group * GROUP;
    var lowest = weight(first);
    var most = lowest;
    for (var i = 1u; i < GROUP; i++) {
        let value = weight(first + i);
        lowest = min(lowest, value);
        most = max(most, value);
    }
    let highest = f32((1u << BITS) - 1u);
    var scale = max((most - lowest) / highest, 1e-7);
    var bias = lowest;
    if (BITS > 1u) {
        var edge = lowest;
        if (abs(lowest) <= abs(most)) {
            scale = -scale;
            edge = most;
        }
        let zero = round(edge / scale);
        bias = 0.0;
        if (zero != 0.0) {
            scale = edge / zero;
            bias = edge;
        }
    }
    scales_set(group, scale);
    biases_set(group, bias);
    var at = group * GROUP * BITS / 32u;
    var word = 0u;
    var bit = 0u;
    for (var i = 0u; i < GROUP; i++) {
        let code = u32(clamp(round((weight(first + i) - bias) / scale), 0.0, highest));
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
