//! `diff`: what a cumulative sum undoes.

use crate::array::{Array, DType, normalize_axis};
use crate::error::Result;
use crate::op::{Case, EVERY, Entry};
use crate::ops::movement::slice_axis;
use crate::ops::{not_equal, subtract};

pub(super) fn entries() -> Vec<Entry> {
    let case = |label: &str, n: usize, axis: i64| {
        Case::new(label, &[&[4, 5]], move |x| Ok(vec![diff(&x[0], n, axis)?])).dtypes(EVERY)
    };
    vec![Entry { name: "diff", cases: vec![case("once", 1, -1), case("twice", 2, 0)] }]
}

/// The differences of neighbours along an axis, `n` times over. Of bools, whether neighbours differ.
///
/// ```
/// use wootz::{Array, diff};
/// let x = Array::new([1, 4, 9, 16])?;
/// // mx.diff(x), mx.diff(x, n=2)
/// assert_eq!(diff(&x, 1, -1)?.to_vec::<i32>()?, [3, 5, 7]);
/// assert_eq!(diff(&x, 2, -1)?.to_vec::<i32>()?, [2, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn diff(x: &Array, n: usize, axis: i64) -> Result<Array> {
    let axis = normalize_axis("diff", axis, x.rank())?;
    let length = x.shape()[axis];
    if n >= length {
        return slice_axis(x, axis, 0, 0, 1);
    }
    let mut result = x.clone();
    for left in (length - n..length).rev() {
        let later = slice_axis(&result, axis, 1, left + 1, 1)?;
        let earlier = slice_axis(&result, axis, 0, left, 1)?;
        result = match x.dtype() {
            DType::Bool => not_equal(&later, &earlier)?,
            _ => subtract(&later, &earlier)?,
        };
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_those_of_mlx() {
        let x = Array::new([0, 1, 2]).unwrap();
        assert_eq!(diff(&x, 0, 0).unwrap().to_vec::<i32>().unwrap(), [0, 1, 2]);
        assert_eq!(diff(&x, 3, 0).unwrap().shape(), [0]);
        assert_eq!(diff(&x, 9, 0).unwrap().shape(), [0]);
        assert!(diff(&x, 1, 1).is_err());
        assert!(diff(&Array::scalar(3, DType::I32).unwrap(), 0, 0).is_err());
        let bytes = diff(&Array::new([1u8, 0, 5]).unwrap(), 1, 0).unwrap();
        assert_eq!(bytes.to_vec::<u8>().unwrap(), [255, 5]);
        let truths = Array::new([true, false, true]).unwrap();
        assert_eq!(diff(&truths, 1, 0).unwrap().to_vec::<bool>().unwrap(), [true, true]);
        assert_eq!(diff(&truths, 2, 0).unwrap().to_vec::<bool>().unwrap(), [false]);
        let empty = Array::zeros(&[2, 0], DType::F32).unwrap();
        assert_eq!(diff(&empty, 1, 1).unwrap().shape(), [2, 0]);
    }
}
