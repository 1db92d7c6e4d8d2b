//! Logarithms with the bits of the C library that MLX calls on Linux: random numbers are made of
//! them. The public ones are as accurate and faster.

use super::{Vjp, unary_rows};
use crate::ops::*;

unary_rows! {
    /// Elementwise natural logarithm.
    pub(crate) log_c { accepts: AsFloat, output: Same, range: 0.1..5.0,
        float: |x| Real::log_c(x),
        wgsl: { float: "wz_c_log(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![divide(g, &x[0])?])) }
    /// Elementwise `log(1 + x)`.
    pub(crate) log1p_c { accepts: AsFloat, output: Same, range: -0.8..5.0,
        float: |x| Real::log1p_c(x),
        wgsl: { float: "wz_c_log1p(a)" },
        vjp: Vjp::Rule(|x, _, g| Ok(vec![divide(g, add(&x[0], 1)?)?])) }
}
