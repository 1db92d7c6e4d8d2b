//! Short names for what gradients of factorizations are made of.

use crate::array::{Array, DType, Scalar};
use crate::error::Result;
use crate::ops::{
    add, astype, constant, equal, eye, matmul, multiply, negative, reciprocal, slice_axis,
    subtract, swapaxes, tril, triu, where_,
};

/// The transpose of the last two axes.
pub(super) fn t(x: &Array) -> Result<Array> {
    swapaxes(x, -1, -2)
}

/// The product of several matrices.
pub(super) fn product<const N: usize>(factors: [&Array; N]) -> Result<Array> {
    let mut factors = factors.into_iter();
    let first = factors.next().cloned().unwrap_or(constant(
        Scalar::Int(1),
        DType::F32,
        &crate::device::Device::cpu(),
    )?);
    factors.try_fold(first, |product, factor| matmul(&product, factor))
}

/// Elements `from..to` of the axis that is `back` places before the end.
pub(super) fn range(x: &Array, back: usize, from: usize, to: usize) -> Result<Array> {
    slice_axis(x, x.rank() - back, from, to, 1)
}

/// The identity on the device, and in the dtype, of `like`.
pub(super) fn identity(n: usize, like: &Array) -> Result<Array> {
    crate::device::with_device(like.device(), || eye(n, n, 0, like.dtype()))
}

/// Matrices with the vectors of the last axis on the diagonal.
pub(super) fn diagonal_matrix(x: &Array) -> Result<Array> {
    let n = x.shape().last().copied().unwrap_or(0);
    multiply(&x.expand_dims(-1)?, &identity(n, x)?)
}

/// The lower triangle with half of the diagonal.
pub(super) fn half_triangle(x: &Array) -> Result<Array> {
    let n = x.shape().last().copied().unwrap_or(0);
    subtract(tril(x, 0)?, multiply(multiply(x, 0.5)?, identity(n, x)?)?)
}

/// The symmetric matrix of the same lower triangle.
pub(super) fn mirrored(x: &Array) -> Result<Array> {
    add(tril(x, 0)?, t(&tril(x, -1)?)?)
}

/// The symmetric part.
pub(super) fn symmetric(x: &Array) -> Result<Array> {
    multiply(add(x, t(x)?)?, 0.5)
}

/// The triangle that is read.
pub(super) fn triangle(x: &Array, upper: bool) -> Result<Array> {
    if upper { triu(x, 0) } else { tril(x, 0) }
}

/// `1 / (x_j - x_i)` for row `i` and column `j`, and zero where the values are equal.
pub(super) fn inverse_gaps(x: &Array) -> Result<Array> {
    let gaps = subtract(x.expand_dims(-2)?, x.expand_dims(-1)?)?;
    let same = equal(&gaps, 0)?;
    let zero = constant(Scalar::Int(0), x.dtype(), x.device())?;
    let one = constant(Scalar::Int(1), x.dtype(), x.device())?;
    where_(&same, zero, reciprocal(where_(&same, one, gaps)?)?)
}

/// The sum of what is there.
pub(super) fn add_all(terms: impl IntoIterator<Item = Result<Array>>) -> Result<Option<Array>> {
    let mut sum: Option<Array> = None;
    for term in terms {
        let term = term?;
        sum = Some(match sum {
            Some(sum) => add(sum, term)?,
            None => term,
        });
    }
    Ok(sum)
}

/// `-x`.
pub(super) fn minus(x: &Array) -> Result<Array> {
    negative(x)
}

/// Both in the dtype that holds them.
pub(super) fn alike(a: &Array, b: &Array) -> Result<(Array, Array)> {
    let dtype = DType::promote(a.dtype(), b.dtype());
    Ok((astype(a, dtype)?, astype(b, dtype)?))
}
