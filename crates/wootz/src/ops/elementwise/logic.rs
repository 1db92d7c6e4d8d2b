//! Logic of two arrays: everything but zero is true.

use super::{Vjp, binary_rows};

binary_rows! {
    /// Whether both elements are true.
    pub logical_and { accepts: AsBool, output: Same, range: -2.0..2.0,
        example: [true, false], [true, true] => bool [true, false],
        int: |a, b| a & b,
        wgsl: { u32: "(a & b)" },
        vjp: Vjp::Zero }
    /// Whether either element is true.
    pub logical_or { accepts: AsBool, output: Same, range: -2.0..2.0,
        example: [true, false], [false, false] => bool [true, false],
        int: |a, b| a | b,
        wgsl: { u32: "(a | b)" },
        vjp: Vjp::Zero }
    /// Whether exactly one of two elements is true.
    pub logical_xor { accepts: AsBool, output: Same, range: -2.0..2.0,
        example: [true, true], [false, true] => bool [true, false],
        int: |a, b| a ^ b,
        wgsl: { u32: "(a ^ b)" },
        vjp: Vjp::Zero }
}
