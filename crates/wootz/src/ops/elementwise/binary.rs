//! Functions of two arrays.

use super::{Vjp, binary_rows};
use crate::ops::*;

binary_rows! {
    /// Elementwise sum.
    add { accepts: Any, output: Same, range: -3.0..3.0,
        float: |a, b| a + b,
        int: |a, b| a.wrapping_add(b),
        wgsl: { any: "(a + b)" },
        vjp: Vjp::Rule(|_, _, g| Ok(vec![g.clone(), g.clone()])) }
    /// Elementwise difference.
    subtract { accepts: Numeric, output: Same, range: -3.0..3.0,
        float: |a, b| a - b,
        int: |a, b| a.wrapping_sub(b),
        wgsl: { any: "(a - b)" },
        vjp: Vjp::Rule(|_, _, g| Ok(vec![g.clone(), negative(g)?])) }
    /// Elementwise product.
    multiply { accepts: Any, output: Same, range: -3.0..3.0,
        float: |a, b| a * b,
        int: |a, b| a.wrapping_mul(b),
        wgsl: { any: "(a * b)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![multiply(g, &x[1])?, multiply(g, &x[0])?])) }
    /// Elementwise quotient; integers become floats.
    divide { accepts: AsFloat, output: Same, range: 0.5..3.0,
        float: |a, b| a / b,
        wgsl: { float: "(a / b)" },
        vjp: Vjp::Rule(|x, y, g| {
            let da = divide(g, &x[1])?;
            Ok(vec![da.clone(), negative(multiply(&da, y)?)?])
        }) }
    /// Elementwise remainder, with the sign of the divisor.
    remainder { accepts: Any, output: Same, range: 0.5..3.0,
        float: |a, b| { let r = a % b; if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r } },
        int: |a, b| Integer::modulo(a, b),
        wgsl: { float: "wz_fmod(a, b)", signed: "wz_imod(a, b)", unsigned: "wz_umod(a, b)" },
        vjp: Vjp::Rule(|x, _, g| {
            let _ = x;
            Ok(vec![g.clone(), g.clone()])
        }) }
}
