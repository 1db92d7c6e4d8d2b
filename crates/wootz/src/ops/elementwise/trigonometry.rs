//! Circular and hyperbolic functions and their inverses.

use super::{Vjp, unary_rows};
use crate::ops::*;

unary_rows! {
    /// Elementwise inverse cosine.
    pub arccos { accepts: AsFloat, output: Same, range: -0.9..0.9,
        example: [1.0f32] => f32 [0.0],
        float: |x| Real::arccos(x),
        wgsl: { float: "wz_acos(a)" },
        vjp: Vjp::Rule(|x, _, g| {
            Ok(vec![negative(multiply(g, rsqrt(subtract(1, square(&x[0])?)?)?)?)?])
        }) }
    /// Elementwise inverse hyperbolic cosine.
    pub arccosh { accepts: AsFloat, output: Same, range: 1.2..5.0,
        example: [1.0f32] => f32 [0.0],
        float: |x| Real::arccosh(x),
        wgsl: { float: "wz_acosh(a)" },
        vjp: Vjp::Rule(|x, _, g| {
            Ok(vec![multiply(g, rsqrt(subtract(square(&x[0])?, 1)?)?)?])
        }) }
    /// Elementwise inverse sine.
    pub arcsin { accepts: AsFloat, output: Same, range: -0.9..0.9,
        example: [0.0f32] => f32 [0.0],
        float: |x| Real::arcsin(x),
        wgsl: { float: "wz_asin(a)" },
        vjp: Vjp::Rule(|x, _, g| {
            Ok(vec![multiply(g, rsqrt(subtract(1, square(&x[0])?)?)?)?])
        }) }
    /// Elementwise inverse hyperbolic sine.
    pub arcsinh { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32] => f32 [0.0],
        float: |x| Real::arcsinh(x),
        wgsl: { float: "wz_asinh(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![multiply(g, rsqrt(add(square(&x[0])?, 1)?)?)?])) }
    /// Elementwise inverse tangent.
    pub arctan { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32] => f32 [0.0],
        float: |x| Real::arctan(x),
        wgsl: { float: "wz_atan(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![divide(g, add(square(&x[0])?, 1)?)?])) }
    /// Elementwise inverse hyperbolic tangent.
    pub arctanh { accepts: AsFloat, output: Same, range: -0.9..0.9,
        example: [0.0f32, 1.0] => f32 [0.0, f32::INFINITY],
        float: |x| Real::arctanh(x),
        wgsl: { float: "wz_atanh(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![divide(g, subtract(1, square(&x[0])?)?)?])) }
    /// Elementwise cosine.
    pub cos { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32] => f32 [1.0],
        float: |x| Real::cos(x),
        wgsl: { float: "wz_cos(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![negative(multiply(g, sin(&x[0])?)?)?])) }
    /// Elementwise hyperbolic cosine.
    pub cosh { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32] => f32 [1.0],
        float: |x| Real::cosh(x),
        wgsl: { float: "wz_cosh(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![multiply(g, sinh(&x[0])?)?])) }
    /// Elementwise sine.
    pub sin { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32] => f32 [0.0],
        float: |x| Real::sin(x),
        wgsl: { float: "wz_sin(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![multiply(g, cos(&x[0])?)?])) }
    /// Elementwise hyperbolic sine.
    pub sinh { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32] => f32 [0.0],
        float: |x| Real::sinh(x),
        wgsl: { float: "wz_sinh(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![multiply(g, cosh(&x[0])?)?])) }
    /// Elementwise tangent.
    pub tan { accepts: AsFloat, output: Same, range: -1.2..1.2,
        example: [0.0f32] => f32 [0.0],
        float: |x| Real::tan(x),
        wgsl: { float: "wz_tan(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![divide(g, square(cos(&x[0])?)?)?])) }
    /// Elementwise hyperbolic tangent.
    pub tanh { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [0.0f32, 20.0] => f32 [0.0, 1.0],
        float: |x| Real::tanh(x),
        wgsl: { float: "wz_tanh(a)" },
        vjp: Vjp::Rule(|_, y, g| Ok(vec![multiply(g, subtract(1, square(y)?)?)?])) }
}
