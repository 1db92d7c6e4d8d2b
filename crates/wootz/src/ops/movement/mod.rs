//! Operations that rearrange elements. Where strides can express the result it is a view of the
//! same memory; otherwise elements are copied.

mod axes;
mod copying;
mod join;
mod matrices;
mod pad;
mod range;
mod strided;
#[cfg(test)]
mod tests;
mod views;

pub use axes::*;
pub use join::*;
pub use matrices::*;
pub(crate) use pad::pad_zeros;
pub use pad::*;
pub(crate) use range::arange_on;
pub use range::*;
pub use strided::*;
pub use views::*;

use crate::array::{Array, normalize_axis};
use crate::error::{Error, Result};
use crate::op::{Case, EVERY, Entry, Tolerance};
use crate::ops::Axes;

/// Cases of the movement operations.
pub(crate) fn entries() -> Vec<Entry> {
    let families = [
        views::entries(),
        axes::entries(),
        join::entries(),
        pad::entries(),
        strided::entries(),
        matrices::entries(),
        range::entries(),
    ];
    families.into_iter().flatten().collect()
}

/// A case with one argument that any dtype may have and whose elements are only moved.
fn moving_case(label: &str, shape: &[usize], call: fn(&Array) -> Result<Array>) -> Case {
    Case::new(label, &[shape], move |x| Ok(vec![call(&x[0])?]))
        .dtypes(EVERY)
        .tolerance(Tolerance::Exact)
}

/// One axis counted from the front, or none where `()` asks for the flattened array.
pub(crate) fn one_axis(op: &'static str, axis: &Axes, rank: usize) -> Result<Option<usize>> {
    match axis {
        Axes::All => Ok(None),
        Axes::These(axes) => match axes[..] {
            [axis] => Ok(Some(normalize_axis(op, axis, rank)?)),
            _ => Err(Error::argument(op, "axis", "one axis or ()", format!("{axes:?}"))),
        },
    }
}

/// Elements `start..stop` of one axis; with a negative step from `start` down to `stop`, both
/// included.
pub(crate) fn slice_axis(
    x: &Array,
    axis: usize,
    start: usize,
    stop: usize,
    step: isize,
) -> Result<Array> {
    let (mut starts, mut stops, mut steps) =
        (vec![0; x.rank()], x.shape().to_vec(), vec![1; x.rank()]);
    (starts[axis], stops[axis], steps[axis]) = (start, stop, step);
    slice(x, &starts, &stops, &steps)
}
