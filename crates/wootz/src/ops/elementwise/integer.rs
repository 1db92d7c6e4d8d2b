//! Functions of two arrays of integers or bools.

use super::{Vjp, binary_rows};

binary_rows! {
    /// Elementwise bitwise and.
    pub bitwise_and { accepts: Integers, output: Same, range: 0.0..100.0,
        example: [6, 5], [3, 4] => i32 [2, 4],
        int: |a, b| a & b,
        wgsl: { int: "(a & b)" },
        vjp: Vjp::Zero }
    /// Elementwise bitwise or.
    pub bitwise_or { accepts: Integers, output: Same, range: 0.0..100.0,
        example: [6, 5], [3, 4] => i32 [7, 5],
        int: |a, b| a | b,
        wgsl: { int: "(a | b)" },
        vjp: Vjp::Zero }
    /// Elementwise bitwise exclusive or.
    pub bitwise_xor { accepts: Integers, output: Same, range: 0.0..100.0,
        example: [6, 5], [3, 4] => i32 [5, 1],
        int: |a, b| a ^ b,
        wgsl: { int: "(a ^ b)" },
        vjp: Vjp::Zero }
    /// Elementwise `a` shifted to the left by `b` places, modulo the width of the type. Bools count
    /// as `uint8`.
    pub left_shift { accepts: Shift, output: Same, range: 0.0..7.0,
        example: [1, 3], [4, 1] => i32 [16, 6],
        int: |a, b| Integer::shift_left(a, b),
        wgsl: { u32: "(a << (b & 31u))", i32: "(a << (u32(b) & 31u))",
            u64: "(a << (u32(b) & 63u))", i64: "(a << (u32(b) & 63u))" },
        vjp: Vjp::Zero }
    /// Elementwise `a` shifted to the right by `b` places, modulo the width of the type, keeping the
    /// sign. Bools count as `uint8`.
    pub right_shift { accepts: Shift, output: Same, range: 0.0..7.0,
        example: [16, -16], [4, 1] => i32 [1, -8],
        int: |a, b| Integer::shift_right(a, b),
        wgsl: { u32: "(a >> (b & 31u))", i32: "(a >> (u32(b) & 31u))",
            u64: "(a >> (u32(b) & 63u))", i64: "(a >> (u32(b) & 63u))" },
        vjp: Vjp::Zero }
}
