//! Other names that MLX has for the same functions.

use std::borrow::Borrow;

pub use super::{
    arccos as acos, arccosh as acosh, arcsin as asin, arcsinh as asinh, arctan as atan,
    arctan2 as atan2, arctanh as atanh, concatenate as concat, conjugate as conj,
    cumprod as cumulative_prod, cumsum as cumulative_sum, left_shift as bitwise_left_shift,
    power as pow, right_shift as bitwise_right_shift, transpose_axes as permute_dims,
    zeros_like as empty_like,
};
use super::{full, swapaxes};
use crate::array::{Array, DType};
use crate::error::Result;

/// An array of zeros; the method is [`Array::zeros`].
///
/// ```
/// use wootz::{DType, zeros};
/// // mx.zeros((2, 3))
/// assert_eq!(zeros(&[2, 3], DType::F32)?.to_vec::<f32>()?, [0.0; 6]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn zeros(shape: &[usize], dtype: DType) -> Result<Array> {
    full(shape, 0, dtype)
}

/// An array of ones; the method is [`Array::ones`].
///
/// ```
/// use wootz::{DType, ones};
/// // mx.ones((2, 3), mx.int32)
/// assert_eq!(ones(&[2, 3], DType::I32)?.to_vec::<i32>()?, [1; 6]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn ones(shape: &[usize], dtype: DType) -> Result<Array> {
    full(shape, 1, dtype)
}

/// As [`zeros`]: memory without values does not exist, here as in MLX.
///
/// ```
/// // mx.empty((2,))
/// assert_eq!(wootz::empty(&[2], wootz::DType::F32)?.shape(), [2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn empty(shape: &[usize], dtype: DType) -> Result<Array> {
    zeros(shape, dtype)
}

/// The last two axes swapped.
///
/// ```
/// use wootz::{Array, matrix_transpose};
/// // mx.matrix_transpose(x)
/// assert_eq!(matrix_transpose(&Array::new([[1, 2]])?)?.shape(), [2, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn matrix_transpose(x: &Array) -> Result<Array> {
    swapaxes(x, -1, -2)
}

/// The shape that all of these broadcast to.
///
/// ```
/// use wootz::broadcast_shapes;
/// // mx.broadcast_shapes((6, 7), (5, 6, 1), (7,))
/// assert_eq!(broadcast_shapes(&[&[6, 7][..], &[5, 6, 1], &[7]])?, [5, 6, 7]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn broadcast_shapes(shapes: &[impl Borrow<[usize]>]) -> Result<Vec<usize>> {
    let mut all = crate::array::Shape::new();
    for shape in shapes {
        all = crate::array::broadcast_shapes("broadcast_shapes", &all, shape.borrow())?;
    }
    Ok(all.to_vec())
}
