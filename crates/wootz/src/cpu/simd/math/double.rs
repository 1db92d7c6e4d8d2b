//! The functions of `math` on f64, by the standard library and, for the error function and the
//! inverse hyperbolics, by `libm`: plain scalar code.

use std::f64::consts as c64;

macro_rules! standard {
    ($($name:ident => $method:ident, $what:literal;)*) => {$(
        #[doc = $what]
        #[cfg_attr(not(debug_assertions), inline(always))]
        pub(crate) fn $name(x: f64) -> f64 {
            x.$method()
        }
    )*};
}

standard! {
    exp => exp, "e to the power `x`.";
    exp_nonpositive => exp, "e to the power `x`, which is not above zero.";
    expm1 => exp_m1, "e to the power `x`, minus 1.";
    log => ln, "Natural logarithm.";
    log_c => ln, "Natural logarithm.";
    log2 => log2, "Logarithm to base 2.";
    log10 => log10, "Logarithm to base 10.";
    log1p => ln_1p, "log(1 + x).";
    log1p_c => ln_1p, "log(1 + x).";
    tanh => tanh, "Hyperbolic tangent.";
    sinh => sinh, "Hyperbolic sine.";
    cosh => cosh, "Hyperbolic cosine.";
    sin => sin, "Sine.";
    cos => cos, "Cosine.";
    tan => tan, "Tangent.";
    arcsin => asin, "Inverse sine.";
    arccos => acos, "Inverse cosine.";
    arctan => atan, "Inverse tangent.";
    sqrt => sqrt, "Square root.";
    floor => floor, "Largest integer not above `x`.";
    ceil => ceil, "Smallest integer not below `x`.";
    round => round_ties_even, "Nearest integer, ties to even.";
    trunc => trunc, "Integer part.";
}

// The standard library's inverse hyperbolics lose digits at the ends of their domains.

/// Inverse hyperbolic sine.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn arcsinh(x: f64) -> f64 {
    libm::asinh(x)
}

/// Inverse hyperbolic cosine.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn arccosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

/// Inverse hyperbolic tangent.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn arctanh(x: f64) -> f64 {
    libm::atanh(x)
}

/// Reciprocal of the square root.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn rsqrt(x: f64) -> f64 {
    1.0 / x.sqrt()
}

/// Logistic function.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn sigmoid(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// Error function.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn erf(x: f64) -> f64 {
    libm::erf(x)
}

/// The share of a normal distribution up to `x`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * c64::FRAC_1_SQRT_2)
}

/// Inverse error function, to the precision of f64 (MLX stops at that of f32).
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn erfinv(a: f64) -> f64 {
    if a.is_nan() || a.abs() >= 1.0 || a == 0.0 {
        return if a.abs() == 1.0 {
            a * f64::INFINITY
        } else if a == 0.0 {
            a
        } else {
            f64::NAN
        };
    }
    // Winitzki's closed form, good to three digits, then Halley steps that triple them.
    let w = (-a * a).ln_1p();
    let u = 2.0 / (c64::PI * 0.147) + 0.5 * w;
    let mut x = ((u * u - w / 0.147).sqrt() - u).max(0.0).sqrt();
    // For tiny a the difference above is all rounding.
    if a.abs() < 1e-4 {
        x = 0.5 * c64::PI.sqrt() * a.abs();
    }
    for _ in 0..3 {
        // The complement keeps the digits of results near 1.
        let miss = if x > 0.5 { (1.0 - a.abs()) - libm::erfc(x) } else { libm::erf(x) - a.abs() };
        let step = miss / (c64::FRAC_2_SQRT_PI * (-x * x).exp());
        x -= step / (1.0 + x * step);
    }
    x.copysign(a)
}

/// `x` to the power `y`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn power(x: f64, y: f64) -> f64 {
    x.powf(y)
}

/// Angle of the point (`x`, `y`).
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn arctan2(y: f64, x: f64) -> f64 {
    y.atan2(x)
}

/// log(exp(a) + exp(b)).
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn logaddexp(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    let hi = a.max(b);
    if hi.is_infinite() { hi } else { hi + (-(a - b).abs()).exp().ln_1p() }
}
