//! Comparisons, which give bools. A comparison with NaN is false, but for `not_equal`.

use super::{Vjp, binary_rows};

binary_rows! {
    /// Elementwise `a == b`.
    pub equal { accepts: Any, output: Bool, range: -2.0..2.0,
        example: [1.0f32, f32::NAN], [1.0f32, f32::NAN] => bool [true, false],
        float: |a, b| a == b,
        int: |a, b| a == b,
        complex: |a, b| a == b,
        wgsl: { complex: "wz_z_equal(a, b)", float: "wz_equal(a, b)", int: "(a == b)" },
        vjp: Vjp::Zero }
    /// Elementwise `a > b`.
    pub greater { accepts: Any, output: Bool, range: -2.0..2.0,
        example: [1.0f32, 3.0], [1.0f32, 2.0] => bool [false, true],
        float: |a, b| a > b,
        int: |a, b| a > b,
        complex: |a, b| b.less(a),
        wgsl: { complex: "wz_z_less(b, a)", float: "wz_less(b, a)", int: "(a > b)" },
        vjp: Vjp::Zero }
    /// Elementwise `a >= b`.
    pub greater_equal { accepts: Any, output: Bool, range: -2.0..2.0,
        example: [1.0f32, 1.0], [1.0f32, 2.0] => bool [true, false],
        float: |a, b| a >= b,
        int: |a, b| a >= b,
        complex: |a, b| b.less_equal(a),
        wgsl: { complex: "wz_z_less_equal(b, a)", float: "wz_less_equal(b, a)", int: "(a >= b)" },
        vjp: Vjp::Zero }
    /// Elementwise `a < b`.
    pub less { accepts: Any, output: Bool, range: -2.0..2.0,
        example: [1.0f32, 1.0], [1.0f32, 2.0] => bool [false, true],
        float: |a, b| a < b,
        int: |a, b| a < b,
        complex: |a, b| a.less(b),
        wgsl: { complex: "wz_z_less(a, b)", float: "wz_less(a, b)", int: "(a < b)" },
        vjp: Vjp::Zero }
    /// Elementwise `a <= b`.
    pub less_equal { accepts: Any, output: Bool, range: -2.0..2.0,
        example: [1.0f32, 3.0], [1.0f32, 2.0] => bool [true, false],
        float: |a, b| a <= b,
        int: |a, b| a <= b,
        complex: |a, b| a.less_equal(b),
        wgsl: { complex: "wz_z_less_equal(a, b)", float: "wz_less_equal(a, b)", int: "(a <= b)" },
        vjp: Vjp::Zero }
    /// Elementwise `a != b`.
    pub not_equal { accepts: Any, output: Bool, range: -2.0..2.0,
        example: [1.0f32, f32::NAN], [1.0f32, f32::NAN] => bool [false, true],
        float: |a, b| a != b,
        int: |a, b| a != b,
        complex: |a, b| a != b,
        wgsl: { complex: "(!wz_z_equal(a, b))", float: "(!wz_equal(a, b))", int: "(a != b)" },
        vjp: Vjp::Zero }
}
