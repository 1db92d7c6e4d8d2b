// The largest element and the sum of powers relative to it, over the threads of a workgroup that go
// through a row. What is not finite is told apart on its bits, because of fast math.
const WIDTH = 256u;
const LOWEST = -3.4028235e38;
const IS_NAN = 1u;
const IS_INFINITE = 2u;

struct Online { most: f32, sum: f32 }

var<workgroup> parts: array<Online, WIDTH>;
var<workgroup> sums: array<f32, WIDTH>;
var<workgroup> kinds_found: atomic<u32>;

fn kind_of(value: f32) -> u32 {
    return select(0u, IS_NAN, wz_isnan(value))
        | select(0u, IS_INFINITE, bitcast<u32>(value) == 0x7f800000u);
}

fn is_number(value: f32) -> bool {
    return (bitcast<u32>(value) & 0x7f800000u) != 0x7f800000u;
}

// The factors of sums relative to `a` and to `b` where they become relative to the larger one.
fn factors(a: f32, b: f32) -> vec2f {
    let smaller = wz_exp(-abs(a - b));
    return select(vec2f(smaller, 1.0), vec2f(1.0, smaller), a >= b);
}

// With one more element; minus infinity adds nothing.
fn with_element(online: Online, value: f32) -> Online {
    if (!is_number(value)) { return online; }
    let scale = factors(online.most, value);
    return Online(max(online.most, value), online.sum * scale.x + scale.y);
}

fn over_group(online: Online, lid: u32) -> Online {
    // The last result may still be being read.
    workgroupBarrier();
    parts[lid] = online;
    workgroupBarrier();
    for (var half = WIDTH / 2u; half > 0u; half = half / 2u) {
        if (lid < half) {
            let a = parts[lid];
            let b = parts[lid + half];
            let scale = factors(a.most, b.most);
            parts[lid] = Online(max(a.most, b.most), a.sum * scale.x + b.sum * scale.y);
        }
        workgroupBarrier();
    }
    return parts[0];
}

fn kinds_over_group(kinds: u32, lid: u32) -> u32 {
    if (lid == 0u) { atomicStore(&kinds_found, 0u); }
    workgroupBarrier();
    atomicOr(&kinds_found, kinds);
    workgroupBarrier();
    let found = atomicLoad(&kinds_found);
    workgroupBarrier();
    return found;
}

fn sum_over_group(sum: f32, lid: u32) -> f32 {
    workgroupBarrier();
    sums[lid] = sum;
    workgroupBarrier();
    for (var half = WIDTH / 2u; half > 0u; half = half / 2u) {
        if (lid < half) { sums[lid] += sums[lid + half]; }
        workgroupBarrier();
    }
    return sums[0];
}

fn log_sum(online: Online, kinds: u32) -> f32 {
    if ((kinds & IS_NAN) != 0u) { return wz_nan(); }
    if ((kinds & IS_INFINITE) != 0u) { return wz_inf(); }
    if (online.sum == 0.0) { return -wz_inf(); }
    return online.most + wz_log(online.sum);
}
