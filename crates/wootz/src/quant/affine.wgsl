// Codes of BITS bits one after the other, with a scale and a bias for each GROUP weights.

fn weights_of(unit: u32, weights: ptr<function, array<f32, 32>>) {
    let group = unit / (GROUP / 32u);
    let scale = scales(p.scales_at + group);
    let bias = biases(p.biases_at + group);
    var at = p.w_at + unit * BITS;
    var word = w_data[at];
    var bit = 0u;
    for (var i = 0u; i < 32u; i++) {
        var code = word >> bit;
        bit += BITS;
        if (bit >= 32u && i < 31u) {
            // The rest of a code is at the beginning of the next word.
            bit -= 32u;
            at += 1u;
            word = w_data[at];
            if (bit > 0u) { code |= word << (BITS - bit); }
        }
        (*weights)[i] = product(scale * f32(code & ((1u << BITS) - 1u))) + bias;
    }
}
