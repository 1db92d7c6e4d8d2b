//! The bitwise complement.

use super::{Vjp, apply_row, logical_not, resolve, table};
use crate::array::{Arg, Array, DType};
use crate::error::Result;
use crate::op::{Case, EVERY, Gradient};

/// Elementwise bitwise complement of integers; for bools the negation.
///
/// ```
/// use wootz::{Array, bitwise_invert};
/// assert_eq!(bitwise_invert(&Array::new([0, 5])?)?.to_vec::<i32>()?, [-1, -6]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn bitwise_invert(x: impl Into<Arg>) -> Result<Array> {
    let [x] = resolve("bitwise_invert", [x.into()])?;
    // The other bits of a bool mean nothing.
    if x.dtype() == DType::Bool { logical_not(&x) } else { apply_row(&ROWS[0], [x.into()]) }
}

fn cases() -> Vec<Case> {
    let case = |label: &str, shape: &[usize]| {
        Case::new(label, &[shape], |x| Ok(vec![bitwise_invert(&x[0])?]))
            .range(0.0..100.0)
            .dtypes(&EVERY[..9])
            .gradient(Gradient::Zero)
    };
    vec![case("", &[3, 5]), case("more than one tile", &[1025])]
}

table! { ["x", "output"];
    bitwise_invert { Shift, Same, 0.0..100.0, [], [x => !x], { int: "(~a)" }, Vjp::Zero, cases }
}
