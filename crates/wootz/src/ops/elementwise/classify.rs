//! Truth values of one array: tests for NaN and infinity, and negation.

use super::{Vjp, unary_rows};

unary_rows! {
    /// Whether elements are neither infinite nor NaN.
    pub isfinite { accepts: Any, output: Bool, range: -3.0..3.0,
        example: [1.0f32, f32::INFINITY, f32::NAN] => bool [true, false, false],
        float: |x| x.is_finite(),
        int: |_x| true,
        complex: |x| !Complex::is_nan(x) && !Complex::is_infinite(x),
        wgsl: { complex: "(!wz_z_isnan(a) && !wz_z_isinf(a))", float: "((bitcast<u32>(a) & 0x7fffffffu) < 0x7f800000u)", int: "true" },
        vjp: Vjp::Zero }
    /// Whether elements are infinite.
    pub isinf { accepts: Any, output: Bool, range: -3.0..3.0,
        example: [1.0f32, f32::INFINITY, f32::NAN] => bool [false, true, false],
        float: |x| x.is_infinite(),
        int: |_x| false,
        complex: |x| Complex::is_infinite(x),
        wgsl: { complex: "wz_z_isinf(a)", float: "wz_isinf(a)", int: "false" },
        vjp: Vjp::Zero }
    /// Whether elements are NaN.
    pub isnan { accepts: Any, output: Bool, range: -3.0..3.0,
        example: [1.0f32, f32::INFINITY, f32::NAN] => bool [false, false, true],
        float: |x| x.is_nan(),
        int: |_x| false,
        complex: |x| Complex::is_nan(x),
        wgsl: { complex: "wz_z_isnan(a)", float: "wz_isnan(a)", int: "false" },
        vjp: Vjp::Zero }
    /// Whether elements are negative infinity.
    pub isneginf { accepts: Any, output: Bool, range: -3.0..3.0,
        example: [f32::INFINITY, f32::NEG_INFINITY] => bool [false, true],
        float: |x| x.is_infinite() && x < 0.0,
        int: |_x| false,
        complex: |x| x == num_complex::Complex32::new(f32::NEG_INFINITY, 0.0),
        wgsl: { complex: "(bitcast<u32>(a.x) == 0xff800000u && wz_iszero(a.y))", float: "(bitcast<u32>(a) == 0xff800000u)", int: "false" },
        vjp: Vjp::Zero }
    /// Whether elements are positive infinity.
    pub isposinf { accepts: Any, output: Bool, range: -3.0..3.0,
        example: [f32::INFINITY, f32::NEG_INFINITY] => bool [true, false],
        float: |x| x.is_infinite() && x > 0.0,
        int: |_x| false,
        complex: |x| x == num_complex::Complex32::new(f32::INFINITY, 0.0),
        wgsl: { complex: "(bitcast<u32>(a.x) == 0x7f800000u && wz_iszero(a.y))", float: "(bitcast<u32>(a) == 0x7f800000u)", int: "false" },
        vjp: Vjp::Zero }
    /// Whether elements are zero.
    pub logical_not { accepts: AsBool, output: Same, range: -3.0..3.0,
        example: [0.0f32, 2.0] => bool [true, false],
        int: |x| x ^ 1,
        wgsl: { u32: "(a ^ 1u)" },
        vjp: Vjp::Zero }
}
