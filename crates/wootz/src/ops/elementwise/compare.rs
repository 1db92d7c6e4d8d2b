//! Comparisons, which give bools.

use super::{Vjp, binary_rows};
#[allow(unused_imports)]
use crate::ops::*;

binary_rows! {
    /// Elementwise `a == b`.
    equal { accepts: Any, output: Bool, range: -2.0..2.0,
        float: |a, b| a == b,
        int: |a, b| a == b,
        wgsl: { any: "(a == b)" },
        vjp: Vjp::Zero }
}
