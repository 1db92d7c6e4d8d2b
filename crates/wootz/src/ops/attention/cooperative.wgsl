// What the products of matrices need. Compilers need not agree on what a matrix made of nothing holds.
var<workgroup> nothing: array<f32, 64>;

// Whether a line had an element that is no finite number.
var<workgroup> unfinished: atomic<u32>;

// Whether the sums of a row are to shrink.
var<workgroup> shrunk: atomic<u32>;

fn clear(lid: u32) {
    if (lid < 64u) { nothing[lid] = 0.0; }
    if (lid == 0u) {
        atomicStore(&unfinished, 0u);
        atomicStore(&shrunk, 0u);
    }
}

// An element that takes part in products; zero for one that is marked instead.
fn finite(value: f32) -> f32 {
    if ((bitcast<u32>(value) & 0x7fffffffu) < 0x7f800000u) { return value; }
    atomicStore(&unfinished, 1u);
    return 0.0;
}

// What an element that is not finite makes of a sum when it has a weight: a bit if it becomes infinite,
// one if it does below zero, and both for NaN. Asked of bits: see fast math.
fn mark(weight: u32, value: u32) -> vec2<u32> {
    if ((value & 0x7fffffffu) < 0x7f800000u) { return vec2<u32>(0u); }
    let never = (value & 0x7fffffffu) > 0x7f800000u || (weight & 0x7fffffffu) == 0u
        || (weight & 0x7fffffffu) > 0x7f800000u;
    let below = ((weight ^ value) >> 31u) == 1u;
    return vec2<u32>(u32(never || !below), u32(never || below));
}

// A sum with what was marked.
fn marked(sum: f32, marks: vec2<u32>) -> f32 {
    let plus = (marks.x & 1u) == 1u;
    let minus = (marks.y & 1u) == 1u;
    let bits = bitcast<u32>(sum);
    if (!plus && !minus) { return sum; }
    let other = (bits & 0x7fffffffu) > 0x7f800000u || (bits == 0x7f800000u && minus)
        || (bits == 0xff800000u && plus);
    if ((plus && minus) || other) { return wz_nan(); }
    return select(-wz_inf(), wz_inf(), plus);
}
