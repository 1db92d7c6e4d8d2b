//! Rounding to integers. Integers and bools stay as they are.

use super::{Vjp, unary_rows};

unary_rows! {
    /// Elementwise smallest integer not below `x`.
    pub ceil { accepts: Any, output: Same, range: -3.0..3.0,
        example: [1.5f32, -1.5] => f32 [2.0, -1.0],
        float: |x| Real::ceil(x),
        int: |x| x,
        wgsl: { float: "ceil(a)", int: "a" },
        vjp: Vjp::Zero }
    /// Elementwise largest integer not above `x`.
    pub floor { accepts: Any, output: Same, range: -3.0..3.0,
        example: [1.5f32, -1.5] => f32 [1.0, -2.0],
        float: |x| Real::floor(x),
        int: |x| x,
        wgsl: { float: "floor(a)", int: "a" },
        vjp: Vjp::Zero }
    /// Elementwise nearest integer, ties to even: [`round`](crate::round) without decimals.
    pub(crate) rint { accepts: Any, output: Same, range: -3.0..3.0,
        float: |x| Real::round(x),
        int: |x| x,
        complex: |x| Complex::round(x),
        wgsl: { complex: "vec2f(wz_rint(a.x), wz_rint(a.y))", float: "wz_rint(a)", int: "a" },
        vjp: Vjp::Zero }
    /// Elementwise integer part.
    pub trunc { accepts: Any, output: Same, range: -3.0..3.0,
        example: [1.5f32, -1.5] => f32 [1.0, -1.0],
        float: |x| Real::trunc(x),
        int: |x| x,
        wgsl: { float: "trunc(a)", int: "a" },
        vjp: Vjp::Zero }
}
