//! `segmented_mm`: products of segments of the axis that a product of matrices sums over.

use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::op::{Case, Entry, Tolerance};
use crate::ops::movement::arange_on;
use crate::ops::{greater_equal, less, logical_and, matmul, reshape, slice, where_};

pub(super) fn entries() -> Vec<Entry> {
    let case = Case::new("", &[&[3, 7], &[7, 2], &[2, 4, 2]], |x| {
        Ok(vec![segmented_mm(&x[0], &x[1], &x[2])?])
    })
    .fixed(2, DType::I32, 0.0..8.0)
    .tolerance(Tolerance::Contraction);
    vec![Entry { name: "segmented_mm", cases: vec![case] }]
}

/// For each segment `[start, stop)` of the axis that `a` (`[m, k]`) and `b` (`[k, n]`) share, the product
/// of these columns of `a` with these rows of `b`. `segments` is `[…, 2]`, and the result `[…, m, n]`. A
/// segment that ends before it begins gives zeros; what is outside of the axis counts as nothing.
///
/// ```
/// use wootz::{Array, segmented_mm};
/// let a = Array::new([[1.0f32, 2.0, 3.0]])?;
/// let b = Array::new([[1.0f32], [10.0], [100.0]])?;
/// // mx.segmented_mm(a, b, segments)
/// let y = segmented_mm(&a, &b, &Array::new([[0, 1], [1, 3]])?)?;
/// assert_eq!((y.shape(), y.to_vec::<f32>()?), (&[2, 1, 1][..], vec![1.0, 320.0]));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn segmented_mm(a: &Array, b: &Array, segments: &Array) -> Result<Array> {
    const OP: &str = "segmented_mm";
    let (&[m, k], &[inner, n]) = (a.shape(), b.shape()) else {
        let (name, array) = if a.rank() == 2 { ("b", b) } else { ("a", a) };
        return Err(Error::shape(OP, name, "a matrix", array.shape()));
    };
    let dtype = DType::promote(a.dtype(), b.dtype());
    if !dtype.is_float() {
        return Err(Error::dtype(OP, "a", "a floating-point type", dtype));
    }
    if inner != k {
        return Err(Error::shape(OP, "b", format!("[{k}, n]"), b.shape()));
    }
    let Some((2, batch)) = segments.shape().split_last().map(|(last, batch)| (*last, batch)) else {
        return Err(Error::shape(OP, "segments", "[…, 2]", segments.shape()));
    };
    if !segments.dtype().is_integer() {
        return Err(Error::dtype(OP, "segments", "an integer type", segments.dtype()));
    }
    let count: usize = batch.iter().product();
    // As in MLX, a negative number is a large one.
    let segments = reshape(segments, &[count, 2])?.astype(DType::U32)?;
    let bound = |side: usize| slice(&segments, &[0, side], &[count, side + 1], &[1, 1]);
    let places = arange_on(0.0, k as f64, 1.0, DType::U32, a.device())?;
    let within = logical_and(greater_equal(&places, bound(0)?)?, less(&places, bound(1)?)?)?;
    // Both sides, so that what lies outside of a segment is not looked at.
    let columns = where_(reshape(&within, &[count, 1, k])?, a, 0.0)?;
    let rows = where_(reshape(&within, &[count, k, 1])?, b, 0.0)?;
    let product = matmul(&columns, &rows)?;
    reshape(&product, &[batch, &[m, n]].concat())
}
