//! Circular and hyperbolic functions and their inverses.

use super::{Vjp, unary_rows};
use crate::ops::*;

unary_rows! {
    /// Elementwise inverse cosine.
    pub arccos { accepts: AsFloat, output: Same, range: -0.9..0.9,
        example: [1.0f32] => f32 [0.0],
        float: |x| Real::arccos(x),
        complex: |x| Complex::arccos(x),
        wgsl: { complex: "wz_z_acos(a)", float: "wz_acos(a)" },
        vjp: Vjp::Rule(|x, _, g| {
            Ok(vec![negative(multiply(g, rsqrt(subtract(1, square(&x[0])?)?)?)?)?])
        }) }
    /// Elementwise inverse hyperbolic cosine.
    pub arccosh { accepts: AsFloat, output: Same, range: 1.2..5.0,
        example: [1.0f32] => f32 [0.0],
        float: |x| Real::arccosh(x),
        complex: |x| Complex::arccosh(x),
        wgsl: { complex: "wz_z_acosh(a)", float: "wz_acosh(a)" },
        vjp: Vjp::Rule(|x, _, g| {
            if x[0].dtype().is_complex() {
                // The root of the product has another sign in half of the plane.
                let below = rsqrt(subtract(&x[0], 1)?)?;
                return Ok(vec![multiply(g, multiply(below, rsqrt(add(&x[0], 1)?)?)?)?]);
            }
            Ok(vec![multiply(g, rsqrt(subtract(square(&x[0])?, 1)?)?)?])
        }) }
    /// Elementwise inverse sine.
    pub arcsin { accepts: AsFloat, output: Same, range: -0.9..0.9,
        example: [0.0f32] => f32 [0.0],
        float: |x| Real::arcsin(x),
        complex: |x| Complex::arcsin(x),
        wgsl: { complex: "wz_z_asin(a)", float: "wz_asin(a)" },
        vjp: Vjp::Rule(|x, _, g| {
            Ok(vec![multiply(g, rsqrt(subtract(1, square(&x[0])?)?)?)?])
        }) }
    /// Elementwise inverse hyperbolic sine.
    pub arcsinh { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32] => f32 [0.0],
        float: |x| Real::arcsinh(x),
        complex: |x| Complex::arcsinh(x),
        wgsl: { complex: "wz_z_unturned(wz_z_asin(wz_z_turned(a)))", float: "wz_asinh(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![multiply(g, rsqrt(add(square(&x[0])?, 1)?)?)?])) }
    /// Elementwise inverse tangent.
    pub arctan { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32] => f32 [0.0],
        float: |x| Real::arctan(x),
        complex: |x| Complex::arctan(x),
        wgsl: { complex: "wz_z_unturned(wz_z_atanh(wz_z_turned(a)))", float: "wz_atan(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![divide(g, add(square(&x[0])?, 1)?)?])) }
    /// Elementwise inverse hyperbolic tangent.
    pub arctanh { accepts: AsFloat, output: Same, range: -0.9..0.9,
        example: [0.0f32, 1.0] => f32 [0.0, f32::INFINITY],
        float: |x| Real::arctanh(x),
        complex: |x| Complex::arctanh(x),
        wgsl: { complex: "wz_z_atanh(a)", float: "wz_atanh(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![divide(g, subtract(1, square(&x[0])?)?)?])) }
    /// Elementwise cosine.
    pub cos { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32] => f32 [1.0],
        float: |x| Real::cos(x),
        complex: |x| Complex::cos(x),
        wgsl: { complex: "wz_z_cosh(wz_z_turned(a))", float: "wz_cos(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![negative(multiply(g, sin(&x[0])?)?)?])) }
    /// Elementwise hyperbolic cosine.
    pub cosh { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32] => f32 [1.0],
        float: |x| Real::cosh(x),
        complex: |x| Complex::cosh(x),
        wgsl: { complex: "wz_z_cosh(a)", float: "wz_cosh(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![multiply(g, sinh(&x[0])?)?])) }
    /// Elementwise sine.
    pub sin { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32] => f32 [0.0],
        float: |x| Real::sin(x),
        complex: |x| Complex::sin(x),
        wgsl: { complex: "wz_z_unturned(wz_z_sinh(wz_z_turned(a)))", float: "wz_sin(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![multiply(g, cos(&x[0])?)?])) }
    /// Elementwise hyperbolic sine.
    pub sinh { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32] => f32 [0.0],
        float: |x| Real::sinh(x),
        complex: |x| Complex::sinh(x),
        wgsl: { complex: "wz_z_sinh(a)", float: "wz_sinh(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![multiply(g, cosh(&x[0])?)?])) }
    /// Elementwise tangent.
    pub tan { accepts: AsFloat, output: Same, range: -1.2..1.2,
        example: [0.0f32] => f32 [0.0],
        float: |x| Real::tan(x),
        complex: |x| Complex::tan(x),
        wgsl: { complex: "wz_z_unturned(wz_z_tanh(wz_z_turned(a)))", float: "wz_tan(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![divide(g, square(cos(&x[0])?)?)?])) }
    /// Elementwise hyperbolic tangent.
    pub tanh { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32, 20.0] => f32 [0.0, 1.0],
        float: |x| Real::tanh(x),
        complex: |x| Complex::tanh(x),
        wgsl: { complex: "wz_z_tanh(a)", float: "wz_tanh(a)" },
        vjp: Vjp::Rule(|_, y, g| Ok(vec![multiply(g, subtract(1, square(y)?)?)?])) }
}
