//! Reductions made of reductions.

use super::{Axes, max, min, sum, var};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::ops::{astype, cumprod, multiply, reshape, sqrt, transpose_axes};

/// The standard deviation over axes: the root of [`var`].
///
/// ```
/// let x = wootz::Array::new([1.0f32, 3.0])?;
/// assert_eq!(wootz::std(&x, (), false, 0)?.item::<f32>()?, 1.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn std(x: &Array, axes: impl Into<Axes>, keepdims: bool, ddof: i64) -> Result<Array> {
    sqrt(var(x, axes, keepdims, ddof)?)
}

/// How many elements over axes are not zero, as `int32`.
///
/// ```
/// let x = wootz::Array::new([[1, 0], [3, 4]])?;
/// assert_eq!(wootz::count_nonzero(&x, 1, false)?.to_vec::<i32>()?, [1, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn count_nonzero(x: &Array, axes: impl Into<Axes>, keepdims: bool) -> Result<Array> {
    astype(&sum(&astype(x, DType::Bool)?, axes, keepdims)?, DType::I32)
}

/// The smallest and the largest element over axes.
///
/// ```
/// let x = wootz::Array::new([3, 1, 2])?;
/// let (low, high) = wootz::minmax(&x, (), false)?;
/// assert_eq!((low.item::<i32>()?, high.item::<i32>()?), (1, 3));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn minmax(x: &Array, axes: impl Into<Axes>, keepdims: bool) -> Result<(Array, Array)> {
    let axes = axes.into();
    Ok((min(x, axes.clone(), keepdims)?, max(x, axes, keepdims)?))
}

impl Array {
    /// See [`std`](std()), with divisor `n`.
    pub fn std(&self, axes: impl Into<Axes>) -> Result<Array> {
        std(self, axes, false, 0)
    }
}

/// For each element the product of all others over `axes`: products of those before and after it,
/// so that zeros need no division.
pub(super) fn others_product(x: &Array, axes: &[usize]) -> Result<Array> {
    let mut order: Vec<usize> = (0..x.rank()).filter(|axis| !axes.contains(axis)).collect();
    let kept = order.len();
    order.extend(axes);
    let signed: Vec<i64> = order.iter().map(|&axis| axis as i64).collect();
    let moved = transpose_axes(x, &signed)?;
    let mut rows: Vec<usize> = moved.shape()[..kept].to_vec();
    rows.push(moved.shape()[kept..].iter().product());
    let rows = reshape(&moved, &rows)?;
    let others = multiply(cumprod(&rows, -1, false, false)?, cumprod(&rows, -1, true, false)?)?;
    let mut inverse = vec![0; x.rank()];
    for (to, &from) in order.iter().enumerate() {
        inverse[from] = to as i64;
    }
    transpose_axes(&reshape(&others, moved.shape())?, &inverse)
}
