// Codes of BITS bits one after the other, with a scale and a bias for each GROUP weights.

fn weights_of(unit: u32, weights: ptr<function, array<f32, 32>>) {
    let group = unit * 32u / GROUP;
    let scale = scales(p.scales_at + group);
    let bias = biases(p.biases_at + group);
    let first = p.w_at + unit * BITS;
    var low = w_data[first];
    var high = 0u;
    for (var i = 0u; i < 32u; i++) {
        let bit = i * BITS;
        // A code that begins in one word may end in the next.
        var code = w_data[first + bit / 32u] >> (bit % 32u);
        if (bit % 32u + BITS > 32u) { code |= w_data[first + bit / 32u + 1u] << (32u - bit % 32u); }
        (*weights)[i] = scale * f32(code & MASK) + bias;
    }
}
