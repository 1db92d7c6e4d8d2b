//! Functions of one array: signs, exponentials, logarithms, roots.

use super::{Vjp, unary_rows};
use crate::ops::*;

unary_rows! {
    /// Elementwise magnitude; that of the smallest integer wraps.
    pub abs { accepts: Any, output: Real, range: 0.5..3.0,
        example: [-1.5f32, 2.0] => f32 [1.5, 2.0],
        float: |x| x.abs(),
        int: |x| Integer::magnitude(x),
        complex: |x| x.modulus(),
        wgsl: { complex: "wz_z_abs(a)", float: "abs(a)", signed: "abs(a)", unsigned: "a" },
        vjp: Vjp::Rule(|x, y, g| {
            if x[0].dtype().is_complex() {
                // The direction as a quotient, which has a gradient of its own; that of zero is zero.
                return Ok(vec![multiply(g, divide(&x[0], where_(y, y, 1)?)?)?]);
            }
            Ok(vec![multiply(g, sign(&x[0])?)?])
        }) }
    /// Elementwise error function.
    pub erf { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32, 9.0] => f32 [0.0, 1.0],
        float: |x| Real::erf(x),
        wgsl: { float: "wz_erf(a)" },
        vjp: Vjp::Rule(|x, _, g| {
            let bell = exp(negative(square(&x[0])?)?)?;
            Ok(vec![multiply(g, multiply(bell, std::f64::consts::FRAC_2_SQRT_PI)?)?])
        }) }
    /// Elementwise inverse of [`erf`]; infinite at ±1 and NaN beyond.
    pub erfinv { accepts: AsFloat, output: Same, range: -0.9..0.9,
        example: [0.0f32, 1.0] => f32 [0.0, f32::INFINITY],
        float: |x| Real::erfinv(x),
        wgsl: { float: "wz_c_erfinv(a)" },
        vjp: Vjp::Rule(|_, y, g| {
            let slope = multiply(exp(square(y)?)?, 1.0 / std::f64::consts::FRAC_2_SQRT_PI)?;
            Ok(vec![multiply(g, slope)?])
        }) }
    /// Elementwise `e^x`.
    pub exp { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32, f32::NEG_INFINITY] => f32 [1.0, 0.0],
        float: |x| Real::exp(x),
        complex: |x| Complex::exp(x),
        wgsl: { complex: "wz_z_exp(a)", float: "wz_exp(a)" },
        vjp: Vjp::Rule(|_, y, g| Ok(vec![multiply(g, y)?])) }
    /// Elementwise `e^x - 1`, accurate near zero.
    pub expm1 { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32, 1e-10] => f32 [0.0, 1e-10],
        float: |x| Real::expm1(x),
        wgsl: { float: "wz_expm1(a)" },
        vjp: Vjp::Rule(|_, y, g| Ok(vec![multiply(g, add(y, 1)?)?])) }
    /// Elementwise natural logarithm.
    pub log { accepts: AsFloat, output: Same, range: 0.1..5.0,
        example: [1.0f32, 0.0] => f32 [0.0, f32::NEG_INFINITY],
        float: |x| Real::log(x),
        complex: |x| Complex::log(x),
        wgsl: { complex: "wz_z_log(a)", float: "wz_log(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![divide(g, &x[0])?])) }
    /// Elementwise logarithm to base 10.
    pub log10 { accepts: AsFloat, output: Same, range: 0.1..5.0,
        example: [1.0f32, 1000.0] => f32 [0.0, 3.0],
        float: |x| Real::log10(x),
        complex: |x| Complex::log(x) * std::f32::consts::LOG10_E,
        wgsl: { complex: "(wz_z_log(a) * 0.4342944819)", float: "wz_log10(a)" },
        vjp: Vjp::Rule(|x, _, g| {
            Ok(vec![multiply(divide(g, &x[0])?, std::f64::consts::LOG10_E)?])
        }) }
    /// Elementwise `log(1 + x)`, accurate near zero.
    pub log1p { accepts: AsFloat, output: Same, range: -0.8..5.0,
        example: [0.0f32, 1e-10] => f32 [0.0, 1e-10],
        float: |x| Real::log1p(x),
        complex: |x| Complex::log1p(x),
        wgsl: { complex: "wz_z_log1p(a)", float: "wz_log1p(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![divide(g, add(&x[0], 1)?)?])) }
    /// Elementwise logarithm to base 2.
    pub log2 { accepts: AsFloat, output: Same, range: 0.1..5.0,
        example: [1.0f32, 8.0] => f32 [0.0, 3.0],
        float: |x| Real::log2(x),
        complex: |x| Complex::log(x) * std::f32::consts::LOG2_E,
        wgsl: { complex: "(wz_z_log(a) * 1.4426950408889634)", float: "wz_log2(a)" },
        vjp: Vjp::Rule(|x, _, g| {
            Ok(vec![multiply(divide(g, &x[0])?, std::f64::consts::LOG2_E)?])
        }) }
    /// Elementwise `-x`; unsigned integers wrap, bools are refused.
    pub negative { accepts: Numeric, output: Same, range: -3.0..3.0,
        example: [1.5f32, -2.0] => f32 [-1.5, 2.0],
        float: |x| -x,
        int: |x| x.wrapping_neg(),
        complex: |x| -x,
        wgsl: { complex: "-a", float: "-a", signed: "-a", unsigned: "(~a + $T(1))" },
        vjp: Vjp::Rule(|_, _, g| Ok(vec![negative(g)?])) }
    /// The share of a normal distribution up to `x`: what `(1 + erf(x / √2)) / 2` loses below 0, this keeps.
    pub(crate) normal_cdf { accepts: AsFloat, output: Same, range: -6.0..3.0,
        float: |x| Real::normal_cdf(x),
        wgsl: { float: "wz_normal_cdf(a)" },
        vjp: Vjp::Rule(|x, _, g| {
            let bell = exp(multiply(square(&x[0])?, -0.5)?)?;
            let scale = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2 / 2.0;
            Ok(vec![multiply(g, multiply(bell, scale)?)?])
        }) }
    /// Elementwise `1 / x`.
    pub reciprocal { accepts: AsFloat, output: Same, range: 0.5..3.0,
        example: [2.0f32, -4.0] => f32 [0.5, -0.25],
        float: |x| 1.0 / x,
        complex: |x| Complex::over(num_complex::Complex32::new(1.0, 0.0), x),
        wgsl: { complex: "wz_z_div(vec2f(1.0, 0.0), a)", float: "(1.0 / a)" },
        vjp: Vjp::Rule(|_, y, g| Ok(vec![negative(multiply(g, square(y)?)?)?])) }
    /// Elementwise `1 / √x`.
    pub rsqrt { accepts: AsFloat, output: Same, range: 0.5..3.0,
        example: [4.0f32, 0.25] => f32 [0.5, 2.0],
        float: |x| Real::rsqrt(x),
        complex: |x| Complex::over(num_complex::Complex32::new(1.0, 0.0), Complex::sqrt(x)),
        wgsl: { complex: "wz_z_div(vec2f(1.0, 0.0), wz_z_sqrt(a))", float: "(1.0 / sqrt(a))" },
        vjp: Vjp::Rule(|x, y, g| {
            Ok(vec![multiply(g, multiply(divide(y, &x[0])?, -0.5)?)?])
        }) }
    /// Elementwise logistic function, `1 / (1 + e^-x)`.
    pub sigmoid { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32, f32::INFINITY] => f32 [0.5, 1.0],
        float: |x| Real::sigmoid(x),
        wgsl: { float: "wz_sigmoid(a)" },
        vjp: Vjp::Rule(|_, y, g| Ok(vec![multiply(g, multiply(y, subtract(1, y)?)?)?])) }
    /// Elementwise sign: -1, 0 or 1; 0 for NaN.
    pub sign { accepts: Any, output: Same, range: -3.0..3.0,
        example: [-1.5f32, 0.0, 3.0] => f32 [-1.0, 0.0, 1.0],
        float: |x| Real::sign(x),
        int: |x| Integer::sign(x),
        complex: |x| Complex::sign(x),
        wgsl: { complex: "wz_z_sign(a)", float: "wz_sign(a)", int: "wz_sign_$T(a)" },
        vjp: Vjp::Zero }
    /// Elementwise square root.
    pub sqrt { accepts: AsFloat, output: Same, range: 0.5..3.0,
        example: [4.0f32, 9.0] => f32 [2.0, 3.0],
        float: |x| Real::sqrt(x),
        complex: |x| Complex::sqrt(x),
        wgsl: { complex: "wz_z_sqrt(a)", float: "sqrt(a)" },
        vjp: Vjp::Rule(|_, y, g| Ok(vec![divide(multiply(g, 0.5)?, y)?])) }
    /// Elementwise `x·x`.
    pub square { accepts: Any, output: Same, range: -3.0..3.0,
        example: [3.0f32, -2.0] => f32 [9.0, 4.0],
        float: |x| x * x,
        int: |x| x.wrapping_mul(x),
        complex: |x| x.times(x),
        wgsl: { complex: "wz_z_mul(a, a)", any: "(a * a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![multiply(g, multiply(&x[0], 2)?)?])) }
}
