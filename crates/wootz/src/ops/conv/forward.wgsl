// An element of the output: the products of its window with the weights, in the order of these.
fn value(i: u32) -> f32 {
    let outputs = p.groups * p.outputs;
    let output = i % outputs;
    var rest = i / outputs;
    let at2 = rest % p.output2;
    rest /= p.output2;
    let at1 = rest % p.output1;
    rest /= p.output1;
    let at0 = rest % p.output0;
    let batch = rest / p.output0;
    let first = output / p.outputs * p.channels;
    var weight = p.w_offset + output * kernel0() * p.kernel1 * p.kernel2 * p.channels;
    var sum = 0.0;
    for (var tap0 = 0u; tap0 < kernel0(); tap0++) {
        let from0 = along0(at0, tap0);
        for (var tap1 = 0u; tap1 < p.kernel1; tap1++) {
            let from1 = along1(at1, tap1);
            for (var tap2 = 0u; tap2 < p.kernel2; tap2++) {
                let number = element(batch, vec3<u32>(from0, from1, along2(at2, tap2)));
                for (var channel = 0u; channel < p.channels; channel++) {
                    sum += input(number, first + channel) * w(weight + channel);
                }
                weight += p.channels;
            }
        }
    }
    return sum;
}
