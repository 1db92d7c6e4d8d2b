// Packed element types: widening from the lane of a word, and narrowing to bits.

fn wz_widen_float16(word: u32, lane: u32) -> f32 {
    let bits = word >> (lane * 16u);
    // Drivers may assume that no conversion gives NaN or infinity: these are made of bits.
    let special = ((bits & 0x8000u) << 16u) | 0x7f800000u | ((bits & 0x3ffu) << 13u);
    let finite = bitcast<u32>(unpack2x16float(bits).x);
    return bitcast<f32>(select(finite, special, (bits & 0x7c00u) == 0x7c00u));
}

// To nearest, ties to even, on the bits: pack2x16float leaves the rounding to the driver.
fn wz_narrow_float16(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) { return sign | 0x7e00u; }
    if (magnitude >= 0x477ff000u) { return sign | 0x7c00u; }
    if (magnitude < 0x38800000u) {
        // Subnormal result: shift the significand into place.
        let exponent = magnitude >> 23u;
        if (exponent < 102u) { return sign; }
        let significand = (magnitude & 0x7fffffu) | 0x800000u;
        let shift = 126u - exponent;
        let kept = significand >> shift;
        let rest = significand & ((1u << shift) - 1u);
        let half = 1u << (shift - 1u);
        let up = select(0u, 1u, rest > half || (rest == half && (kept & 1u) == 1u));
        return sign | (kept + up);
    }
    let rounded = magnitude + 0xfffu + ((magnitude >> 13u) & 1u);
    return sign | ((rounded - 0x38000000u) >> 13u);
}

fn wz_widen_bfloat16(word: u32, lane: u32) -> f32 {
    return bitcast<f32>((word >> (lane * 16u)) << 16u);
}

fn wz_narrow_bfloat16(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return 0x7fc0u; }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

// Rounded to what the type holds.
fn wz_round_float16(x: f32) -> f32 { return wz_widen_float16(wz_narrow_float16(x), 0u); }

// Without a choice between two results: lavapipe mixes that up with a later choice of functions that keep the
// sign and NaN of what was rounded, such as tanh. NaN stays NaN by its quiet bit.
fn wz_round_bfloat16(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let nan = (bits & 0x7fffffffu) > 0x7f800000u;
    let up = select(0x7fffu + ((bits >> 16u) & 1u), 0u, nan);
    return bitcast<f32>(((bits + up) & 0xffff0000u) | select(0u, 0x400000u, nan));
}

fn wz_widen_uint16(word: u32, lane: u32) -> u32 { return (word >> (lane * 16u)) & 0xffffu; }
fn wz_narrow_uint16(value: u32) -> u32 { return value & 0xffffu; }
fn wz_widen_int16(word: u32, lane: u32) -> i32 {
    return bitcast<i32>(word << (16u - lane * 16u)) >> 16u;
}
fn wz_narrow_int16(value: i32) -> u32 { return bitcast<u32>(value) & 0xffffu; }

fn wz_widen_uint8(word: u32, lane: u32) -> u32 { return (word >> (lane * 8u)) & 0xffu; }
fn wz_narrow_uint8(value: u32) -> u32 { return value & 0xffu; }
fn wz_widen_int8(word: u32, lane: u32) -> i32 {
    return bitcast<i32>(word << (24u - lane * 8u)) >> 24u;
}
fn wz_narrow_int8(value: i32) -> u32 { return bitcast<u32>(value) & 0xffu; }

fn wz_widen_bool(word: u32, lane: u32) -> u32 { return (word >> (lane * 8u)) & 0xffu; }
fn wz_narrow_bool(value: u32) -> u32 { return select(0u, 1u, value != 0u); }

// Floats to integers by truncation, decided on bits: what an integer does not hold, NaN included,
// is the smallest signed integer, and of unsigned ones 0 if too large, else the signed one's bits.
fn wz_f32_to_i32(value: f32) -> i32 {
    let far = (bitcast<u32>(value) & 0x7fffffffu) >= 0x4f000000u;
    return select(i32(value), bitcast<i32>(0x80000000u), far);
}

fn wz_f32_to_u32(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    if (bits < 0x4f000000u || bits > 0x7f800000u) { return bitcast<u32>(wz_f32_to_i32(value)); }
    return select(0u, u32(value), bits < 0x4f800000u);
}
