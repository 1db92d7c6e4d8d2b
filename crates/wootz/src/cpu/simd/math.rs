//! Elementwise mathematics that the compiler turns into SIMD.
//!
//! Every f32 function is a straight line of arithmetic, bit operations and selects, so that a plain
//! loop over slices vectorises inside `pulp::Arch::dispatch`. Products and sums are not contracted
//! but where `mul_add` says so: the result is the same bits on every machine. Cheap and hot functions stay in f32; the others go through f64,
//! where the exponent range and 29 spare bits remove the need for compensated sums. Subnormal
//! inputs and results are honoured. [`double`] holds the f64 functions, which are plain scalar code.

pub(crate) mod double;
#[cfg(test)]
mod tests;

use std::f32::consts as c32;
use std::f64::consts as c64;

/// Adding this to a small f32 rounds it to an integer and leaves that integer in the low bits.
const ROUND_32: f32 = 12_582_912.0;
/// The same for f64.
const ROUND_64: f64 = 6_755_399_441_055_744.0;
const EXPONENT_ONE: u64 = 1023 << 52;

/// e to the power `x`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn exp(x: f32) -> f32 {
    let (p, n) = exp_parts(clamp(x, -104.0, 89.0));
    scale(p, n)
}

/// e to the power `x` for `x` up to zero, or NaN: results below 8.3e-39 are zero. The one function
/// here with fused steps, because rows of softmax wait for it; these round alike everywhere too.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn exp_nonpositive(x: f32) -> f32 {
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    // The last bits of `t` are those of an exponent: at -88 and below they are 0, as is the power.
    const ROUND: f32 = ROUND_32 + 127.0;
    let kept = if x < -88.0 { -88.0 } else { x };
    let t = kept.mul_add(c32::LOG2_E, ROUND);
    let n = t - ROUND;
    let r = n.mul_add(-LN2_LO, n.mul_add(-LN2_HI, kept));
    let coefficients = [8.369025e-3, 4.1666202e-2, 0.16666518, 0.5, 1.0, 1.0];
    let p = coefficients.iter().fold(1.3950727e-3f32, |p, &c| p.mul_add(r, c));
    p * f32::from_bits(t.to_bits() << 23)
}

/// e to the power `x`, minus 1, without cancellation near zero.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn expm1(x: f32) -> f32 {
    let y = expm1_64(clamp(x, -104.0, 89.0) as f64) as f32;
    // Keeps the sign of a zero.
    if x.abs() < 1e-30 { x } else { y }
}

/// Natural logarithm.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn log(x: f32) -> f32 {
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    // The mantissa is taken in [sqrt(1/2), sqrt(2)), so that results near zero keep their bits.
    const HALF_SQRT: u32 = 0x3f35_04f3;
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x };
    let offset = if tiny { -23.0 } else { 0.0 };
    let bits = scaled.to_bits().wrapping_sub(HALF_SQRT);
    let k = ((bits as i32) >> 23) as f32 + offset;
    let f = f32::from_bits((bits & 0x007f_ffff).wrapping_add(HALF_SQRT)) - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let r = z * poly32(z, [0.6666666, 0.40000334, 0.2853731, 0.2358214]);
    let half = 0.5 * f * f;
    let y = k * LN2_HI - ((half - (s * (half + r) + k * LN2_LO)) - f);
    log_edges(x, y)
}

/// Logarithm to base 2.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn log2(x: f32) -> f32 {
    let (k, l) = log_parts(x as f64);
    log_edges(x, (k + l * c64::LOG2_E) as f32)
}

/// Logarithm to base 10.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn log10(x: f32) -> f32 {
    let (k, l) = log_parts(x as f64);
    log_edges(x, (k * c64::LOG10_2 + l * c64::LOG10_E) as f32)
}

/// log(1 + x), without cancellation near zero.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn log1p(x: f32) -> f32 {
    let y = log1p_64(x as f64) as f32;
    let y = if x == -1.0 { f32::NEG_INFINITY } else { y };
    let y = if x < -1.0 { f32::NAN } else { y };
    // Also keeps the sign of a zero.
    if x == 0.0 || x == f32::INFINITY || x.is_nan() { x } else { y }
}

/// log(exp(a) + exp(b)), without overflow.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn logaddexp(a: f32, b: f32) -> f32 {
    let hi = if a > b { a } else { b };
    let lo = if a > b { b } else { a };
    let d = lo as f64 - hi as f64;
    let d = if d < -200.0 { -200.0 } else { d };
    // Equal infinities have no difference, but a sum.
    let d = if a == b { 0.0 } else { d };
    let y = (hi as f64 + log1p_64(exp_64(d))) as f32;
    if a.is_nan() || b.is_nan() { f32::NAN } else { y }
}

/// Hyperbolic tangent.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn tanh(x: f32) -> f32 {
    // From 9.02 on the result is 1 in f32; the limit also bounds the exponent.
    let a = x.abs();
    let (m, n) = expm1_parts(2.0 * if a > 9.1 { 9.1 } else { a });
    let s = power_of_two(n);
    let t = s * m + (s - 1.0);
    let w = t / (t + 2.0);
    // The same value with fewer roundings, where it is small.
    let h = 0.5 * t;
    (if a < 0.35 { h - h * w } else { w }).copysign(x)
}

/// Logistic function, 1 / (1 + exp(-x)), accurate for large negative `x` too.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    let r = (if x < 0.0 { e } else { 1.0 }) / (1.0 + e);
    // The same value with fewer roundings, where the quotient is small.
    if x < -1.0 { e - e * r } else { r }
}

/// Error function.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn erf(x: f32) -> f32 {
    let a = x.abs();
    let z = a * a;
    let p =
        [0.12837917, -0.37612635, 0.11283697, -2.68595e-2, 5.2012866e-3, -8.145601e-4, 8.3824e-5];
    let small = a + a * poly32(z, p);
    // Further out 1 - exp(q), where q approximates log(erfc); from 3.92 on the result is 1.
    let q = [
        1.746811e-4,
        -1.1295149,
        -0.6333469,
        -0.108280085,
        2.5119435e-2,
        -4.171069e-3,
        4.3446448e-4,
        -2.1095268e-5,
    ];
    let (e, n) = exp_parts(poly32(if a > 4.0 { 4.0 } else { a }, q));
    let large = 1.0 - e * power_of_two(n);
    (if a < 0.92 { small } else { large }).copysign(x)
}

/// The share of a normal distribution up to `x`, with as many digits where next to nothing is: half of
/// `erfc(-x / √2)`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn normal_cdf(x: f32) -> f32 {
    // From 14.2 on what is left is 0 in f32.
    let a = if x.abs() > 14.5 { 14.5 } else { x.abs() };
    // What is left beyond `a` is exp(-a²/2) times a function that a polynomial in 1 / (1 + a/4) follows.
    let t = 1.0 / (1.0 + 0.25 * a);
    let p = [
        0.099746334,
        0.09952145,
        0.09528791,
        0.07301256,
        0.08385193,
        0.017733416,
        0.022612456,
        0.055878315,
        -0.064536676,
        0.016892316,
    ];
    // The square is taken in two parts, because its rounding error would be one of the power's digits.
    let head = f32::from_bits(a.to_bits() & 0xffff_f000);
    let d = 0.5 * (a - head) * (a + head);
    let rest = 1.0 - d * (1.0 - d * (0.5 - d * (1.0 / 6.0)));
    let tail = exp(-0.5 * head * head) * rest * (t * poly32(t, p));
    let far = if x < 0.0 { tail } else { 1.0 - tail };
    // The same with fewer roundings, where it is not small.
    let p = [0.39894228, -0.06649036, 9.973323e-3, -1.18633e-3, 1.1348637e-4, -7.654209e-6];
    if a < 1.0 { 0.5 + x * poly32(x * x, p) } else { far }
}

/// Inverse error function, bit for bit as MLX computes it on a CPU, because random normals are
/// made from it: log(1 - a²) feeds one of two polynomials, each step fused as with `fmaf`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn erfinv(a: f32) -> f32 {
    let t = log_c(fused(a, -a, 1.0));
    let tail = [
        0.0,
        3.03697567e-10,
        2.93243101e-8,
        1.22150334e-6,
        2.84108955e-5,
        3.93552968e-4,
        3.02698812e-3,
        4.83185798e-3,
        -2.64646143e-1,
        8.40016484e-1,
    ];
    let centre = [
        5.43877832e-9,
        1.43285448e-7,
        1.22774793e-6,
        1.12963626e-7,
        -5.61530760e-5,
        -1.47697632e-4,
        2.31468678e-3,
        1.15392581e-2,
        -2.32015476e-1,
        8.86226892e-1,
    ];
    let far = t.abs() > 6.125;
    let mut p = if far { tail[0] } else { centre[0] };
    for i in 1..10 {
        p = fused(p, t, if far { tail[i] } else { centre[i] });
    }
    // At the ends of the domain the logarithm is infinite, and its product with 0 is not.
    a * if a.abs() == 1.0 { f32::INFINITY } else { p }
}

/// Sine, for every finite `x`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn sin(x: f32) -> f32 {
    let (s, c, q) = sin_cos_quarter(x as f64);
    let y = if q & 1 == 0 { s } else { c };
    let y = flip(y, q << 62) as f32;
    // Keeps the sign of a zero and the bits of a subnormal.
    if x.abs() < 1e-30 { x } else { y }
}

/// Cosine, for every finite `x`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn cos(x: f32) -> f32 {
    let (s, c, q) = sin_cos_quarter(x as f64);
    let y = if q & 1 == 0 { c } else { s };
    flip(y, (q + 1) << 62) as f32
}

/// Tangent, for every finite `x`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn tan(x: f32) -> f32 {
    let (s, c, q) = sin_cos_quarter(x as f64);
    let odd = q & 1 == 1;
    let y = (if odd { -c } else { s }) / (if odd { s } else { c });
    if x.abs() < 1e-30 { x } else { y as f32 }
}

/// Inverse sine.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn arcsin(x: f32) -> f32 {
    let (a, y) = arcsin_parts(x);
    (if a > 0.5 { c64::FRAC_PI_2 - y } else { y } as f32).copysign(x)
}

/// Inverse cosine.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn arccos(x: f32) -> f32 {
    let (a, y) = arcsin_parts(x);
    let inner = c64::FRAC_PI_2 - y.copysign(x as f64);
    let outer = if x < 0.0 { c64::PI - y } else { y };
    (if a > 0.5 { outer } else { inner }) as f32
}

/// Inverse tangent.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn arctan(x: f32) -> f32 {
    let y = arctan_ratio(x.abs() as f64, 1.0) as f32;
    let y = if x.is_nan() { x } else { y };
    y.copysign(x)
}

/// Angle of the point (`x`, `y`), with the quadrants and signed zeros of C's `atan2`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn arctan2(y: f32, x: f32) -> f32 {
    // With infinity replaced by a huge number, the quotients come out as C defines them.
    let (a, b) = (y.abs() as f64, x.abs() as f64);
    let a = if a > 1e300 { 1e300 } else { a };
    let b = if b > 1e300 { 1e300 } else { b };
    let r = arctan_ratio(a, b);
    let r = if x.is_sign_negative() { c64::PI - r } else { r };
    let r = (r as f32).copysign(y);
    if x.is_nan() || y.is_nan() { f32::NAN } else { r }
}

/// Hyperbolic sine.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn sinh(x: f32) -> f32 {
    let a = x.abs();
    let t = expm1_64(if a > 100.0 { 100.0 } else { a } as f64);
    ((0.5 * (t + t / (t + 1.0))) as f32).copysign(x)
}

/// Hyperbolic cosine.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn cosh(x: f32) -> f32 {
    let a = x.abs();
    let e = exp_64(if a > 100.0 { 100.0 } else { a } as f64);
    (0.5 * (e + 1.0 / e)) as f32
}

/// Inverse hyperbolic sine.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn arcsinh(x: f32) -> f32 {
    let a = x.abs() as f64;
    let y = log1p_64(a + a * a / (1.0 + (a * a + 1.0).sqrt())) as f32;
    // Infinity and NaN pass, and so do zeros and subnormals.
    let keep = x.is_nan() || x.abs() == f32::INFINITY || x.abs() < 1e-30;
    if keep { x } else { y.copysign(x) }
}

/// Inverse hyperbolic cosine.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn arccosh(x: f32) -> f32 {
    let t = x as f64 - 1.0;
    let y = log1p_64(t + (t * (t + 2.0)).sqrt()) as f32;
    let y = if x < 1.0 { f32::NAN } else { y };
    if x < f32::INFINITY { y } else { x }
}

/// Inverse hyperbolic tangent.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn arctanh(x: f32) -> f32 {
    let a = x.abs();
    let d = a as f64;
    let y = (0.5 * log1p_64((d + d) / (1.0 - d))) as f32;
    let y = if a == 1.0 { f32::INFINITY } else { y };
    let y = if a <= 1.0 { y } else { f32::NAN };
    if a < 1e-30 { x } else { y.copysign(x) }
}

/// `x` to the power `y`, with the special cases of C's `powf`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn power(x: f32, y: f32) -> f32 {
    let a = x.abs();
    let (k, l) = log_parts(a as f64);
    let l = k + l * c64::LOG2_E;
    let l = if a == 0.0 { f64::NEG_INFINITY } else { l };
    let l = if a < f32::INFINITY { l } else { a as f64 };
    let e = l * y as f64;
    // 1 to any power, infinity included; the product above is NaN there.
    let e = if a == 1.0 && !y.is_nan() { 0.0 } else { e };
    let e = if e < -200.0 { -200.0 } else { e };
    let e = if e > 200.0 { 200.0 } else { e };
    let (s, m) = exp2_minus_one_parts(e);
    let r = (s + s * m) as f32;
    let half = y * 0.5;
    let whole = y.trunc() == y;
    let odd = whole && half.trunc() != half;
    let r = if odd { r.copysign(x) } else { r };
    let r = if x < 0.0 && a < f32::INFINITY && !whole { f32::NAN } else { r };
    if x == 1.0 || y == 0.0 { 1.0 } else { r }
}

/// Square root.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn sqrt(x: f32) -> f32 {
    x.sqrt()
}

/// Reciprocal of the square root.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// Largest integer not above `x`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn floor(x: f32) -> f32 {
    x.floor()
}

/// Smallest integer not below `x`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn ceil(x: f32) -> f32 {
    x.ceil()
}

/// Nearest integer, ties to even.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn round(x: f32) -> f32 {
    x.round_ties_even()
}

/// Integer part.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn trunc(x: f32) -> f32 {
    x.trunc()
}

/// Limits `x`, letting NaN through (unlike `max` and `min`).
#[cfg_attr(not(debug_assertions), inline(always))]
fn clamp(x: f32, lo: f32, hi: f32) -> f32 {
    let x = if x < lo { lo } else { x };
    if x > hi { hi } else { x }
}

/// Polynomial with the constant term first.
#[cfg_attr(not(debug_assertions), inline(always))]
fn poly32<const N: usize>(x: f32, c: [f32; N]) -> f32 {
    // Pairs of terms in powers of the square: half the latency of Horner's rule.
    let square = x * x;
    let mut y = if N % 2 == 1 { c[N - 1] } else { c[N - 2] + c[N - 1] * x };
    for i in (0..(N - 1) / 2).rev() {
        y = (c[2 * i] + c[2 * i + 1] * x) + y * square;
    }
    y
}

#[cfg_attr(not(debug_assertions), inline(always))]
fn poly64<const N: usize>(x: f64, c: [f64; N]) -> f64 {
    // Pairs of terms in powers of the square: half the latency of Horner's rule.
    let square = x * x;
    let mut y = if N % 2 == 1 { c[N - 1] } else { c[N - 2] + c[N - 1] * x };
    for i in (0..(N - 1) / 2).rev() {
        y = (c[2 * i] + c[2 * i + 1] * x) + y * square;
    }
    y
}

/// exp(x) as `p * 2^n` with `p` near 1, for |x| < 2^21.
#[cfg_attr(not(debug_assertions), inline(always))]
fn exp_parts(x: f32) -> (f32, i32) {
    let (m, n) = expm1_parts(x);
    (1.0 + m, n)
}

/// exp(x) as `(1 + m) * 2^n`, with m exact near zero.
#[cfg_attr(not(debug_assertions), inline(always))]
fn expm1_parts(x: f32) -> (f32, i32) {
    // The high part of ln 2 has few bits, so that its products with n are exact.
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    let t = x * c32::LOG2_E + ROUND_32;
    let n = t - ROUND_32;
    let r = (x - n * LN2_HI) - n * LN2_LO;
    let p = poly32(r, [0.5, 0.16666518, 4.1666202e-2, 8.369025e-3, 1.3950727e-3]);
    (r + r * r * p, t.to_bits().wrapping_sub(ROUND_32.to_bits()) as i32)
}

/// `p * 2^n` for n in -252..=254, in two steps so that a subnormal result is rounded once.
#[cfg_attr(not(debug_assertions), inline(always))]
fn scale(p: f32, n: i32) -> f32 {
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// 2^n for n in -126..=127.
#[cfg_attr(not(debug_assertions), inline(always))]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// 2^x as `s + s * m` with s a power of two and m exact near zero, for |x| < 1000.
#[cfg_attr(not(debug_assertions), inline(always))]
fn exp2_minus_one_parts(x: f64) -> (f64, f64) {
    let t = x + ROUND_64;
    let f = x - (t - ROUND_64);
    let p = [
        0.693147180541747,
        0.24022651075857068,
        0.05550410962401983,
        0.009618036910843744,
        0.001333343087617829,
        0.00015467110257655779,
        1.531493243334909e-5,
    ];
    (f64::from_bits((t.to_bits() << 52).wrapping_add(EXPONENT_ONE)), f * poly64(f, p))
}

#[cfg_attr(not(debug_assertions), inline(always))]
fn exp_64(x: f64) -> f64 {
    let (s, m) = exp2_minus_one_parts(x * c64::LOG2_E);
    s + s * m
}

#[cfg_attr(not(debug_assertions), inline(always))]
fn expm1_64(x: f64) -> f64 {
    let (s, m) = exp2_minus_one_parts(x * c64::LOG2_E);
    s * m + (s - 1.0)
}

/// log(x) as `k * ln 2 + l`, for positive normal x.
#[cfg_attr(not(debug_assertions), inline(always))]
fn log_parts(x: f64) -> (f64, f64) {
    let (k, m) = split(x);
    (k, log_near_one(m - 1.0))
}

/// log(1 + x); meaningful for finite x > -1.
#[cfg_attr(not(debug_assertions), inline(always))]
fn log1p_64(x: f64) -> f64 {
    let (k, m) = split(1.0 + x);
    // Where nothing is split off, x itself is exact and 1 + x may not be.
    let f = if k == 0.0 { x } else { m - 1.0 };
    k * c64::LN_2 + log_near_one(f)
}

/// x as `2^k * m` with m in [sqrt(1/2), sqrt(2)), for positive normal x.
#[cfg_attr(not(debug_assertions), inline(always))]
fn split(x: f64) -> (f64, f64) {
    const HALF_SQRT: u64 = 0x3fe6_a09e_667f_3bcd;
    const INTEGER: u64 = 0x4330_0000_0000_0000;
    let bits = x.to_bits().wrapping_add(EXPONENT_ONE - HALF_SQRT);
    // An integer below 2^52 becomes an f64 through the mantissa of 2^52: AVX2 has no conversion.
    let k = f64::from_bits((bits >> 52) | INTEGER) - (f64::from_bits(INTEGER) + 1023.0);
    (k, f64::from_bits((bits & 0x000f_ffff_ffff_ffff) + HALF_SQRT))
}

#[cfg_attr(not(debug_assertions), inline(always))]
fn log_near_one(f: f64) -> f64 {
    let s = f / (2.0 + f);
    let p = [
        1.9999999999999465,
        0.6666666667969697,
        0.39999994859853855,
        0.28572169187180285,
        0.2217413184459852,
        0.19609699849840923,
    ];
    s * poly64(s * s, p)
}

/// What a logarithm gives for zero, negative numbers, infinity and NaN.
#[cfg_attr(not(debug_assertions), inline(always))]
fn log_edges(x: f32, y: f32) -> f32 {
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    let y = if x < 0.0 { f32::NAN } else { y };
    if x < f32::INFINITY { y } else { x }
}

/// Sine and cosine of what is left of `x` after taking off `q` quarter turns.
///
/// x * 2/pi is needed modulo 4 only, so the leading bits of 2/pi that make multiples of 4 are left
/// out: which ones depends on the size of x, hence the four sets. The first two parts have 26 bits
/// and give exact products with the 24 bits of an f32.
#[cfg_attr(not(debug_assertions), inline(always))]
fn sin_cos_quarter(x: f64) -> (f64, f64, u64) {
    const PARTS: [[u64; 3]; 4] = [
        [0x3fe4_5f30_6800_0000, 0x3e47_2722_0800_0000, 0x3c94_a7f0_9d5f_47d5],
        [0x3e47_2722_0800_0000, 0x3c94_a7f0_9000_0000, 0x3b0a_be8f_a9a6_ee07],
        [0x3c94_a7f0_9000_0000, 0x3b0a_be8f_a800_0000, 0x394a_6ee0_6db1_4acd],
        [0x3b0a_be8f_a800_0000, 0x394a_6ee0_6000_0000, 0x37bb_6295_993c_4390],
    ];
    // 2^51, 2^77 and 2^103.
    const FROM: [u64; 4] = [0, 1074 << 52, 1100 << 52, 1126 << 52];
    let a = x.abs();
    let mut c = PARTS[0];
    for i in 1..4 {
        let here = a >= f64::from_bits(FROM[i]);
        c[0] = if here { PARTS[i][0] } else { c[0] };
        c[1] = if here { PARTS[i][1] } else { c[1] };
        c[2] = if here { PARTS[i][2] } else { c[2] };
    }
    let p0 = x * f64::from_bits(c[0]);
    let p1 = x * f64::from_bits(c[1]);
    let t0 = p0 + ROUND_64;
    let t1 = p1 + ROUND_64;
    let f = (p0 - (t0 - ROUND_64)) + (p1 - (t1 - ROUND_64));
    let p2 = x * f64::from_bits(c[2]);
    let t2 = (f + p2) + ROUND_64;
    let f = (f - (t2 - ROUND_64)) + p2;
    let q = t0.to_bits().wrapping_add(t1.to_bits()).wrapping_add(t2.to_bits()) & 3;
    let z = f * f;
    let sin = [
        1.57079632679489,
        -0.645964097504311,
        0.07969262615580862,
        -0.0046817525921591194,
        0.00016042926825021373,
        -3.556391391509566e-6,
    ];
    let cos = [
        -1.2337005501249467,
        0.2536695072643464,
        -0.020863469031680185,
        0.0009191659012927741,
        -2.4857068461331764e-5,
    ];
    (f * poly64(z, sin), 1.0 + z * poly64(z, cos), q)
}

/// Changes the sign of `x` if the top bit of `sign` is set.
#[cfg_attr(not(debug_assertions), inline(always))]
fn flip(x: f64, sign: u64) -> f64 {
    f64::from_bits(x.to_bits() ^ (sign & (1 << 63)))
}

/// |x|, and arcsin(|x|) up to 1/2, above that pi/2 - arcsin(|x|).
#[cfg_attr(not(debug_assertions), inline(always))]
fn arcsin_parts(x: f32) -> (f64, f64) {
    let a = x.abs() as f64;
    let outer = a > 0.5;
    let half = 0.5 - 0.5 * a;
    let z = if outer { half } else { a * a };
    let s = if outer { 2.0 * half.sqrt() } else { a };
    let p = [
        0.9999999999845378,
        0.16666667435897842,
        0.07499937292486386,
        0.04466225228852152,
        0.030089739921691144,
        0.024725992302885073,
        0.007181883324116285,
        0.03499940462551798,
    ];
    (a, s * poly64(z, p))
}

/// arctan(a / b) for a, b >= 0; zero over zero is 0.
#[cfg_attr(not(debug_assertions), inline(always))]
fn arctan_ratio(a: f64, b: f64) -> f64 {
    let steep = a > b * 2.414213562373095;
    let flat = a <= b * 0.41421356237309503;
    let n = if steep { -b } else { a - b };
    let n = if flat { a } else { n };
    let d = if steep { a } else { a + b };
    let d = if flat { b } else { d };
    let d = if d == 0.0 { 1.0 } else { d };
    let base = if steep { c64::FRAC_PI_2 } else { c64::FRAC_PI_4 };
    let base = if flat { 0.0 } else { base };
    let t = n / d;
    let p = [
        0.9999999999992955,
        -0.33333333279807936,
        0.19999993321527954,
        -0.14285395896935904,
        0.11103612142829816,
        -0.08993877491690212,
        0.06979804067755273,
        -0.03774835113246039,
    ];
    base + t * poly64(t * t, p)
}

/// `a * b + c` rounded once: the product of two f32 is exact in f64.
#[cfg_attr(not(debug_assertions), inline(always))]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    (a as f64 * b as f64 + c as f64) as f32
}

/// Logarithm with the rounding of the C library that MLX calls on Linux, which is not always the
/// nearest float: 16 sets of constants, chosen by selects, and a cubic in f64 (published by Arm as
/// "optimized routines").
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn log_c(x: f32) -> f32 {
    const INVERSE: [f64; 16] = [
        1.398907162146528,
        1.3403141896637998,
        1.286432210124115,
        1.2367150214269895,
        1.1906977166711752,
        1.1479821020556429,
        1.1082251448272158,
        1.0711297413057381,
        1.036437278977283,
        1.0,
        0.9492859795739057,
        0.8951049428609004,
        0.8476821620351103,
        0.8050314851692001,
        0.7664671008843108,
        0.731428603316328,
    ];
    const LOG: [f64; 16] = [
        -0.33569133332882284,
        -0.2929040563774074,
        -0.2518726580937369,
        -0.21245868807117255,
        -0.17453945183745634,
        -0.1380057072319758,
        -0.10275976698545139,
        -0.06871392447020525,
        -0.0357891387398228,
        0.0,
        0.05204517742929496,
        0.11081431298787942,
        0.1652495223695143,
        0.21687389031699977,
        0.2659635028121397,
        0.3127556664073557,
    ];
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x }.to_bits();
    let bits = scaled.wrapping_sub(0x3f33_0000);
    let i = bits >> 19;
    let k = ((bits as i32) >> 23) as f64 - if tiny { 23.0 } else { 0.0 };
    let z = f32::from_bits(scaled.wrapping_sub(bits & 0xff80_0000)) as f64;
    let r = z * pick(i, INVERSE) - 1.0;
    let base = pick(i, LOG) + k * c64::LN_2;
    let square = r * r;
    let y = 0.333456765744066 * r + -0.4999997485802103;
    let y = -0.25089342214237154 * square + y;
    log_edges(x, (y * square + (base + r)) as f32)
}

/// log(1 + x) with the rounding of the C library that MLX calls on Linux, which works in single
/// precision (published by Sun as part of "fdlibm").
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn log1p_c(x: f32) -> f32 {
    const LN2_HI: f32 = 6.9313812256e-1;
    const LN2_LO: f32 = 9.0580006145e-6;
    let word = x.to_bits();
    // Where 1 + x is split, c is what it lost.
    let u = if x < 9.007_199e15 { 1.0 + x } else { x };
    let exponent = (u.to_bits() >> 23) as i32 - 127;
    let lost = if exponent > 0 { 1.0 - (u - x) } else { x - (u - 1.0) };
    let c = if x < 9.007_199e15 { lost / u } else { 0.0 };
    let mantissa = u.to_bits() & 0x007f_ffff;
    let low = mantissa < 0x0035_04f7;
    let k = (exponent + if low { 0 } else { 1 }) as f32;
    let m = f32::from_bits(mantissa | if low { 0x3f80_0000 } else { 0x3f00_0000 });
    let distance = if low { mantissa } else { (0x0080_0000 - mantissa) >> 2 };
    let near = word < 0x3ed4_13d7 || (x < 0.0 && word <= 0xbe95_f61f);
    let (f, k, c) =
        (if near { x } else { m - 1.0 }, if near { 0.0 } else { k }, if near { 0.0 } else { c });
    let half = 0.5 * f * f;
    let s = f / (2.0 + f);
    let z = s * s;
    let r = 1.8183572590e-1 + z * (1.5313838422e-1 + z * 1.4798198640e-1);
    let r = 2.8571429849e-1 + z * (2.2222198546e-1 + z * r);
    let r = z * (6.6666668653e-1 + z * (4.0000000596e-1 + z * r));
    let product = s * (half + r);
    let split = k * LN2_HI - ((half - (product + (k * LN2_LO + c))) - f);
    let y = if k == 0.0 { f - (half - product) } else { split };
    // Next to a power of two, the polynomial is two terms.
    let short = half * (1.0 - 0.666_666_7 * f);
    let split = k * LN2_HI - ((short - (k * LN2_LO + c)) - f);
    let short = if k == 0.0 { f - short } else { split };
    let short = if f == 0.0 { k * LN2_HI + (c + k * LN2_LO) } else { short };
    let y = if !near && distance == 0 { short } else { y };
    let y = if x.abs() < 1.862_645_1e-9 { x - x * x * 0.5 } else { y };
    let y = if x == -1.0 { f32::NEG_INFINITY } else { y };
    let y = if x < -1.0 { f32::NAN } else { y };
    // Also keeps the sign of a zero.
    if x == 0.0 || x == f32::INFINITY || x.is_nan() { x } else { y }
}

/// `table[i % 16]` as a tree of selects: a load at a computed address would not vectorise.
#[cfg_attr(not(debug_assertions), inline(always))]
fn pick(i: u32, mut table: [f64; 16]) -> f64 {
    for bit in [8, 4, 2, 1] {
        for j in 0..bit {
            table[j] = if i & bit as u32 != 0 { table[j + bit] } else { table[j] };
        }
    }
    table[0]
}
