//! Operations made only of operations; no kernels, gradients for free.

use crate::array::{Arg, Array, DType, Scalar};
use crate::error::Result;
use crate::op::{Case, Entry, Gradient};
use crate::ops::elementwise::resolve;
use crate::ops::*;

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    let two = |name, function: fn(&Array, &Array) -> Result<Array>, gradient| {
        let case = Case::new("", &[&[3, 5], &[5]], move |x| Ok(vec![function(&x[0], &x[1])?]));
        Entry { name, cases: vec![case.range(0.5..3.0).gradient(gradient)] }
    };
    let divided =
        Case::new("", &[&[3, 5], &[5]], |x| divmod(&x[0], &x[1]).map(|(q, r)| vec![q, r]))
            .range(0.5..3.0)
            .gradient(Gradient::Zero);
    vec![
        two("allclose", |a, b| allclose(a, b, 1e-5, 1e-8, false), Gradient::Zero),
        two("array_equal", |a, b| array_equal(a, b, false), Gradient::Zero),
        two("isclose", |a, b| isclose(a, b, 1e-5, 1e-8, false), Gradient::Zero),
        Entry { name: "divmod", cases: vec![divided] },
    ]
}

/// Whether all elements are [close](isclose), as a `bool` scalar.
///
/// ```
/// use wootz::{Array, allclose};
/// let x = Array::new([1.0f32, 2.0])?;
/// assert!(allclose(&x, &Array::new([1, 2])?, 1e-5, 1e-8, false)?.item::<bool>()?);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn allclose(
    a: impl Into<Arg>,
    b: impl Into<Arg>,
    rtol: f64,
    atol: f64,
    equal_nan: bool,
) -> Result<Array> {
    all(&isclose(a, b, rtol, atol, equal_nan)?, (), false)
}

/// Whether two arrays have the same shape and equal values, as a `bool` scalar. NaNs are equal if
/// `equal_nan`; dtypes may differ.
///
/// ```
/// use wootz::{Array, array_equal};
/// let x = Array::new([1, 2])?;
/// assert!(array_equal(&x, &Array::new([1.0f32, 2.0])?, false)?.item::<bool>()?);
/// assert!(!array_equal(&x, &Array::new([1, 2, 3])?, false)?.item::<bool>()?);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn array_equal(a: impl Into<Arg>, b: impl Into<Arg>, equal_nan: bool) -> Result<Array> {
    let [a, b] = resolve("array_equal", [a.into(), b.into()])?;
    if a.shape() != b.shape() {
        return constant(Scalar::Bool(false), DType::Bool, a.device());
    }
    let dtype = DType::promote(a.dtype(), b.dtype());
    let (a, b) = (astype(&a, dtype)?, astype(&b, dtype)?);
    let mut same = equal(&a, &b)?;
    if equal_nan && dtype.is_inexact() {
        same = logical_or(&same, logical_and(isnan(&a)?, isnan(&b)?)?)?;
    }
    all(&same, (), false)
}

/// [`floor_divide`] and [`remainder`], through which, as in MLX, no gradient flows.
///
/// ```
/// use wootz::{Array, divmod};
/// let (quotient, rest) = divmod(&Array::new([7, -7])?, 2)?;
/// assert_eq!(quotient.to_vec::<i32>()?, [3, -4]);
/// assert_eq!(rest.to_vec::<i32>()?, [1, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn divmod(a: impl Into<Arg>, b: impl Into<Arg>) -> Result<(Array, Array)> {
    let [a, b] = resolve("divmod", [a.into(), b.into()])?;
    Ok((stop_gradient(floor_divide(&a, &b)?)?, stop_gradient(remainder(&a, &b)?)?))
}

/// Whether `|a - b| <= atol + rtol * |b|`, elementwise. Equal infinities are close; NaNs are if
/// `equal_nan`.
///
/// ```
/// use wootz::{Array, isclose};
/// let a = Array::new([1.0f32, f32::INFINITY])?;
/// let close = isclose(&a, &Array::new([1.000001f32, 1.0])?, 1e-5, 1e-8, false)?;
/// assert_eq!(close.to_vec::<bool>()?, [true, false]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn isclose(
    a: impl Into<Arg>,
    b: impl Into<Arg>,
    rtol: f64,
    atol: f64,
    equal_nan: bool,
) -> Result<Array> {
    let [a, b] = resolve("isclose", [a.into(), b.into()])?;
    let dtype = DType::promote(a.dtype(), b.dtype());
    let (a, b) = (astype(&a, dtype)?, astype(&b, dtype)?);
    // Bounds are computed in single precision at least, as in MLX.
    let bound = abs(&b)?.astype(DType::promote(dtype.real(), DType::F32))?;
    let bound = add(multiply(&bound, rtol)?, atol)?;
    let near = less_equal(abs(subtract(&a, &b)?)?, &bound)?;
    if !dtype.is_inexact() {
        return Ok(near);
    }
    // An infinite bound would be near everything.
    let infinite = logical_or(isinf(&a)?, isinf(&b)?)?;
    let mut close = where_(&infinite, equal(&a, &b)?, &near)?;
    if equal_nan {
        close = logical_or(&close, logical_and(isnan(&a)?, isnan(&b)?)?)?;
    }
    Ok(close)
}

/// The same array.
///
/// ```
/// use wootz::{Array, positive};
/// assert_eq!(positive(&Array::new([1, -2])?)?.to_vec::<i32>()?, [1, -2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn positive(x: impl Into<Arg>) -> Result<Array> {
    let [x] = resolve("positive", [x.into()])?;
    Ok(x)
}
