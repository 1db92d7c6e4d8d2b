//! Arithmetic of two arrays.

use super::{Vjp, binary_rows};
use crate::ops::*;

binary_rows! {
    /// Elementwise sum; for bools the logical or.
    pub add { accepts: Any, output: Same, range: -3.0..3.0,
        example: [1.5f32, 2.0], [1.0f32, 2.0] => f32 [2.5, 4.0],
        float: |a, b| a + b,
        int: |a, b| a.wrapping_add(b),
        complex: |a, b| a + b,
        wgsl: { complex: "(a + b)", any: "(a + b)" },
        vjp: Vjp::Rule(|_, _, g| Ok(vec![g.clone(), g.clone()])) }
    /// Elementwise angle of the points with ordinate `a` and abscissa `b`.
    pub arctan2 { accepts: AsFloat, output: Same, range: 0.5..3.0,
        example: [0.0f32, 0.0], [1.0f32, 2.0] => f32 [0.0, 0.0],
        float: |a, b| Real::arctan2(a, b),
        wgsl: { float: "wz_arctan2(a, b)" },
        vjp: Vjp::Rule(|x, _, g| {
            let scaled = divide(g, add(square(&x[0])?, square(&x[1])?)?)?;
            Ok(vec![multiply(&scaled, &x[1])?, negative(multiply(&scaled, &x[0])?)?])
        }) }
    /// Elementwise quotient; integers become floats.
    pub divide { accepts: AsFloat, output: Same, range: 0.5..3.0,
        example: [1, 3], [2, 2] => f32 [0.5, 1.5],
        float: |a, b| a / b,
        complex: |a, b| a.over(b),
        wgsl: { complex: "wz_z_div(a, b)", float: "(a / b)" },
        vjp: Vjp::Rule(|x, y, g| {
            let da = divide(g, &x[1])?;
            Ok(vec![da.clone(), negative(multiply(&da, y)?)?])
        }) }
    /// Elementwise `log(e^a + e^b)`, without overflow.
    pub logaddexp { accepts: AsFloat, output: Same, range: -3.0..3.0,
        example: [f32::NEG_INFINITY], [1.0f32] => f32 [1.0],
        float: |a, b| Real::logaddexp(a, b),
        complex: |a, b| Complex::logaddexp(a, b),
        wgsl: { complex: "wz_z_logaddexp(a, b)", float: "wz_logaddexp(a, b)" },
        vjp: Vjp::Rule(|x, y, g| {
            if y.dtype().is_complex() {
                let share = |x: &crate::Array| multiply(g, exp(subtract(x, y)?)?);
                return Ok(vec![share(&x[0])?, share(&x[1])?]);
            }
            let difference = subtract(&x[0], &x[1])?;
            let other = sigmoid(negative(&difference)?)?;
            Ok(vec![multiply(g, sigmoid(&difference)?)?, multiply(g, other)?])
        }) }
    /// Elementwise larger value; NaN if either is. The gradient of equal values goes to `b`.
    pub maximum { accepts: Any, output: Same, range: -3.0..3.0,
        example: [1.0f32, 5.0], [3.0f32, 2.0] => f32 [3.0, 5.0],
        float: |a, b| Real::maximum(a, b),
        int: |a, b| if a > b { a } else { b },
        complex: |a, b| Complex::maximum(a, b),
        wgsl: { complex: "wz_z_maximum(a, b)", float: "wz_maximum(a, b)", int: "max(a, b)" },
        vjp: Vjp::Rule(|x, _, g| {
            let first = where_(greater(&x[0], &x[1])?, g, 0)?;
            Ok(vec![first, where_(less_equal(&x[0], &x[1])?, g, 0)?])
        }) }
    /// Elementwise smaller value; NaN if either is. The gradient of equal values goes to `b`.
    pub minimum { accepts: Any, output: Same, range: -3.0..3.0,
        example: [1.0f32, 5.0], [3.0f32, 2.0] => f32 [1.0, 2.0],
        float: |a, b| Real::minimum(a, b),
        int: |a, b| if a < b { a } else { b },
        complex: |a, b| Complex::minimum(a, b),
        wgsl: { complex: "wz_z_minimum(a, b)", float: "wz_minimum(a, b)", int: "min(a, b)" },
        vjp: Vjp::Rule(|x, _, g| {
            let first = where_(less(&x[0], &x[1])?, g, 0)?;
            Ok(vec![first, where_(greater_equal(&x[0], &x[1])?, g, 0)?])
        }) }
    /// Elementwise product; for bools the logical and.
    pub multiply { accepts: Any, output: Same, range: -3.0..3.0,
        example: [1.5f32, 2.0], [2.0f32, 2.0] => f32 [3.0, 4.0],
        float: |a, b| a * b,
        int: |a, b| a.wrapping_mul(b),
        complex: |a, b| a.times(b),
        wgsl: { complex: "wz_z_mul(a, b)", any: "(a * b)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![multiply(g, &x[1])?, multiply(g, &x[0])?])) }
    /// Elementwise `a` to the power `b`. Integers wrap, and give 0 for negative exponents.
    pub power { accepts: Any, output: Same, range: 0.5..3.0,
        example: [2.0f32, 9.0], [3.0f32, 0.5] => f32 [8.0, 3.0],
        float: |a, b| Real::power(a, b),
        int: |a, b| Integer::power(a, b),
        complex: |a, b| Complex::power(a, b),
        wgsl: { complex: "wz_z_power(a, b)", float: "wz_power(a, b)", int: "wz_power_$T(a, b)" },
        vjp: Vjp::Rule(|x, y, g| {
            let first = multiply(&x[1], power(&x[0], subtract(&x[1], 1)?)?)?;
            // A power that vanishes does so for nearby exponents too, though log(0) is infinite.
            let second = where_(y, multiply(log(&x[0])?, y)?, 0)?;
            Ok(vec![multiply(g, first)?, multiply(g, second)?])
        }) }
    /// Elementwise remainder with the sign of the divisor. An integer modulo 0 stays as it is.
    pub remainder { accepts: Any, output: Same, range: 0.5..3.0,
        example: [7.0f32, -7.0], [2.0f32, 2.0] => f32 [1.0, 1.0],
        float: |a, b| Real::modulo(a, b),
        int: |a, b| Integer::modulo(a, b),
        wgsl: { float: "wz_remainder_f32(a, b)", int: "wz_remainder_$T(a, b)" },
        vjp: Vjp::Rule(|x, y, g| {
            // The quotient that belongs to the result: a rounded one may be the next integer.
            let quotient = rint(divide(subtract(&x[0], y)?, &x[1])?)?;
            Ok(vec![g.clone(), negative(multiply(g, quotient)?)?])
        }) }
    /// Elementwise difference; for bools the exclusive or.
    pub subtract { accepts: Any, output: Same, range: -3.0..3.0,
        example: [1.5f32, 2.0], [1.0f32, 2.0] => f32 [0.5, 0.0],
        float: |a, b| a - b,
        int: |a, b| a.wrapping_sub(b),
        complex: |a, b| a - b,
        wgsl: { complex: "(a - b)", any: "(a - b)" },
        vjp: Vjp::Rule(|_, _, g| Ok(vec![g.clone(), negative(g)?])) }
}
