//! Products made of other operations: `kron`, `vecdot`, and products of parts of matrices.

mod masked;
mod segmented;
#[cfg(test)]
mod tests;

pub use self::masked::block_masked_mm;
pub use self::segmented::segmented_mm;
use crate::array::{Array, normalize_axis};
use crate::error::{Error, Result};
use crate::op::{Case, Entry, Tolerance};
use crate::ops::{Axes, conjugate, multiply, reshape, sum};

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    let two = |a: &[usize], b: &[usize], call: fn(&Array, &Array) -> Result<Array>| {
        Case::new("", &[a, b], move |x| Ok(vec![call(&x[0], &x[1])?]))
    };
    let mut entries = vec![
        Entry { name: "kron", cases: vec![two(&[2, 3], &[4], kron)] },
        Entry {
            name: "vecdot",
            cases: vec![two(&[2, 5], &[1, 5], |a, b| vecdot(a, b, -1)).tolerance(
                Tolerance::Rounded(2.0, "products are rounded before they are summed, as in MLX"),
            )],
        },
    ];
    entries.extend(masked::entries());
    entries.extend(segmented::entries());
    entries
}

/// The Kronecker product: `b` times every element of `a`, side by side. Of the array with fewer axes the
/// missing ones come first and have length 1.
///
/// ```
/// use wootz::{Array, kron};
/// let (a, b) = (Array::new([1, 2])?, Array::new([[0, 5], [6, 7]])?);
/// // mx.kron(a, b)
/// assert_eq!(kron(&a, &b)?.to_vec::<i32>()?, [0, 5, 0, 10, 6, 7, 12, 14]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn kron(a: &Array, b: &Array) -> Result<Array> {
    for (argument, array) in [("a", a), ("b", b)] {
        if array.size() == 0 {
            return Err(Error::shape("kron", argument, "one with elements", array.shape()));
        }
    }
    let rank = a.rank().max(b.rank());
    let padded = |x: &Array| [vec![1; rank - x.rank()], x.shape().to_vec()].concat();
    let (of_a, of_b) = (padded(a), padded(b));
    // Axes alternate: one of `a`, one of `b`.
    let alone = |lengths: &[usize], of_a: bool| -> Vec<usize> {
        lengths.iter().flat_map(|&n| if of_a { [n, 1] } else { [1, n] }).collect()
    };
    let products = multiply(reshape(a, &alone(&of_a, true))?, reshape(b, &alone(&of_b, false))?)?;
    let shape: Vec<usize> = of_a.iter().zip(&of_b).map(|(a, b)| a * b).collect();
    reshape(&products, &shape)
}

/// The sum of products along an axis, which both arrays have at the same place and in the same length;
/// the other axes are broadcast. Complex elements of `a` are conjugated.
///
/// ```
/// use wootz::{Array, vecdot};
/// let a = Array::new([[1.0f32, 2.0], [3.0, 4.0]])?;
/// // mx.vecdot(a, a, axis=-1)
/// assert_eq!(vecdot(&a, &a, -1)?.to_vec::<f32>()?, [5.0, 25.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn vecdot(a: &Array, b: &Array, axis: i64) -> Result<Array> {
    let place = normalize_axis("vecdot", axis, a.rank())?;
    if normalize_axis("vecdot", axis, b.rank())? != place {
        let expected = format!("one of {} axes, as a, for axis {axis}", a.rank());
        return Err(Error::shape("vecdot", "b", expected, b.shape()));
    }
    if a.shape()[place] != b.shape()[place] {
        let expected = format!("length {} along axis {axis}", a.shape()[place]);
        return Err(Error::shape("vecdot", "b", expected, b.shape()));
    }
    sum(&multiply(conjugate(a)?, b)?, Axes::These(vec![place as i64]), false)
}
