// An element of the weights' gradient: what it met at every output, times that output's gradient.
fn value(i: u32) -> f32 {
    let outputs = p.groups * p.outputs;
    let output = i % outputs;
    var rest = i / outputs;
    let channel = output / p.outputs * p.channels + rest % p.channels;
    rest /= p.channels;
    let tap2 = rest % p.kernel2;
    rest /= p.kernel2;
    let tap1 = rest % p.kernel1;
    let tap0 = rest / p.kernel1;
    var dy = p.w_offset + output;
    var sum = 0.0;
    for (var batch = 0u; batch < p.batch; batch++) {
        for (var at0 = 0u; at0 < p.output0; at0++) {
            let from0 = along0(at0, tap0);
            for (var at1 = 0u; at1 < p.output1; at1++) {
                let from1 = along1(at1, tap1);
                for (var at2 = 0u; at2 < p.output2; at2++) {
                    let number = element(batch, vec3<u32>(from0, from1, along2(at2, tap2)));
                    sum += input(number, channel) * w(dy);
                    dy += outputs;
                }
            }
        }
    }
    return sum;
}
