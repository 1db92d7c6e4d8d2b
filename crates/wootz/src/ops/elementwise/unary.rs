//! Functions of one array.

use super::{Vjp, unary_rows};
use crate::ops::*;

unary_rows! {
    /// Elementwise `e^x`.
    exp { accepts: AsFloat, output: Same, range: -3.0..3.0,
        float: |x| Real::exp(x),
        wgsl: { float: "wz_exp(a)" },
        vjp: Vjp::Rule(|_, y, g| Ok(vec![multiply(g, y)?])) }
    /// Elementwise `-x`.
    negative { accepts: Numeric, output: Same, range: -3.0..3.0,
        float: |x| -x,
        int: |x| x.wrapping_neg(),
        wgsl: { float: "-a", signed: "-a", unsigned: "(~a + 1)" },
        vjp: Vjp::Rule(|_, _, g| Ok(vec![negative(g)?])) }
    /// Elementwise `x·x`.
    square { accepts: Any, output: Same, range: -3.0..3.0,
        float: |x| x * x,
        int: |x| x.wrapping_mul(x),
        wgsl: { any: "(a * a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![multiply(g, multiply(&x[0], 2)?)?])) }
}
