// Codes that are floats, and scales of one byte: powers of two, or floats.

fn encode(group: u32) {
    let first = group * GROUP;
    var largest = 0.0;
    for (var i = 0u; i < GROUP; i++) { largest = max(largest, abs(weight(first + i))); }
    let most = select(6.0, 448.0, BITS == 8u);
    if (!NV) { largest = min(largest, LARGEST); }
    var byte = 127u;
    var scale = 1.0;
    if (NV) {
        byte = to_e4m3(largest / most);
        if (byte != 0u) { scale = e4m3_magnitude(byte); }
    } else {
        if (largest > 0.0) { byte = u32(clamp(rounded_up_log2(largest / most) + 127, 0, 255)); }
        scale = bitcast<f32>(select(byte << 23u, 0x400000u, byte == 0u));
    }
    scales_set(group, byte);
    for (var i = 0u; i < GROUP; i += 32u / BITS) {
        var word = 0u;
        for (var j = 0u; j < 32u / BITS; j++) {
            let value = weight(first + i + j) / scale;
            if (BITS == 8u) {
                word |= to_e4m3(value) << (8u * j);
            } else {
                word |= to_e2m1(value) << (4u * j);
            }
        }
        // The number of a weight times its bits may not fit a word.
        codes_data[(first + i) / (32u / BITS)] = word;
    }
}

// The nearest, of two the one nearer to zero. What becomes zero is positive.
fn to_e2m1(x: f32) -> u32 {
    let magnitude = abs(x);
    var code = 0u;
    code += select(0u, 1u, magnitude > 0.25);
    code += select(0u, 1u, magnitude > 0.75);
    code += select(0u, 1u, magnitude > 1.25);
    code += select(0u, 1u, magnitude > 1.75);
    code += select(0u, 1u, magnitude > 2.5);
    code += select(0u, 1u, magnitude > 3.5);
    code += select(0u, 1u, magnitude > 5.0);
    return select(code, code | 8u, x < 0.0 && code > 0u);
}

// The nearest, of two the even one; what is too large becomes the largest.
fn to_e4m3(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & 0x7fffffffu;
    var code = 0u;
    if (magnitude < (121u << 23u)) {
        code = u32(round(abs(x) * 512.0));
    } else {
        code = min(((magnitude + 0x7ffffu + ((magnitude >> 20u) & 1u)) >> 20u) - (120u << 3u), 0x7eu);
    }
    return code | ((bits >> 24u) & 0x80u);
}

// The logarithm to base 2, rounded to a float32 and then up: numbers a little above a power of two count
// as one. A step above it adds 1.44 units, and less than half of the distance from the exponent to the
// next number is lost, which below zero lies towards zero.
fn rounded_up_log2(x: f32) -> i32 {
    let bits = max(bitcast<u32>(x), 0x800000u);
    let exponent = i32(bits >> 23u) - 127;
    let steps = bits & 0x7fffffu;
    let magnitude = u32(abs(exponent));
    var distance = 0.0;
    if (magnitude > 0u) {
        var log = firstLeadingBit(magnitude);
        if (exponent < 0 && magnitude == (1u << log) && log > 0u) { log -= 1u; }
        distance = f32(1u << log);
    }
    let counts = steps > 0u && f32(steps) * 1.442695 > 0.5 * distance;
    return exponent + select(0, 1, counts);
}
