//! Operations made only of operations; no kernels, gradients for free.

use crate::array::{Arg, Array, DType, Scalar};
use crate::error::{Error, Result};
use crate::op::{Case, Entry, Gradient};
use crate::ops::elementwise::{integer_quotient, resolve, rint};
use crate::ops::*;

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    let one = |name: &'static str, function: fn(&Array) -> Result<Array>| {
        let case = Case::new("", &[&[3, 5]], move |x| Ok(vec![function(&x[0])?]));
        Entry { name, cases: vec![case] }
    };
    let two = |name, function: fn(&Array, &Array) -> Result<Array>, gradient| {
        let case = Case::new("", &[&[3, 5], &[5]], move |x| Ok(vec![function(&x[0], &x[1])?]));
        Entry { name, cases: vec![case.range(0.5..3.0).gradient(gradient)] }
    };
    let divided =
        Case::new("", &[&[3, 5], &[5]], |x| divmod(&x[0], &x[1]).map(|(q, r)| vec![q, r]))
            .range(0.5..3.0)
            .gradient(Gradient::Zero);
    let invert = Case::new("", &[&[3, 5]], |x| Ok(vec![bitwise_invert(&x[0])?]))
        .range(0.0..100.0)
        .dtypes(&crate::op::EVERY[..9])
        .gradient(Gradient::Zero);
    let round_to = |decimals: i32| {
        let label = format!("{decimals} decimals");
        Case::new(label, &[&[3, 5]], move |x| Ok(vec![round(&x[0], decimals)?]))
            .range(-30.0..30.0)
            .gradient(Gradient::Zero)
    };
    vec![
        one("clip", |x| clip(x, Some(-1), Some(1))),
        one("degrees", |x| degrees(x)),
        one("radians", |x| radians(x)),
        one("nan_to_num", |x| nan_to_num(x, 0.0, None, None)),
        two("floor_divide", |a, b| floor_divide(a, b), Gradient::Zero),
        two("allclose", |a, b| allclose(a, b, 1e-5, 1e-8, false), Gradient::Zero),
        two("array_equal", |a, b| array_equal(a, b, false), Gradient::Zero),
        two("isclose", |a, b| isclose(a, b, 1e-5, 1e-8, false), Gradient::Zero),
        Entry { name: "divmod", cases: vec![divided] },
        Entry { name: "bitwise_invert", cases: vec![invert] },
        Entry { name: "round", cases: [0, 1, -1].map(round_to).into() },
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
    if equal_nan && dtype.is_float() {
        same = logical_or(&same, logical_and(isnan(&a)?, isnan(&b)?)?)?;
    }
    all(&same, (), false)
}

/// Elementwise bitwise complement of integers; for bools the negation.
///
/// ```
/// use wootz::{Array, bitwise_invert};
/// assert_eq!(bitwise_invert(&Array::new([0, 5])?)?.to_vec::<i32>()?, [-1, -6]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn bitwise_invert(x: impl Into<Arg>) -> Result<Array> {
    let [x] = resolve("bitwise_invert", [x.into()])?;
    if x.dtype().is_float() {
        return Err(Error::dtype("bitwise_invert", "x", "an integer or bool type", x.dtype()));
    }
    // All ones; for a bool that is true.
    let ones = constant(Scalar::Int(-1), x.dtype(), x.device())?;
    bitwise_xor(&x, &ones)
}

/// Elementwise `x`, but at least `min` and at most `max`. One of them may be missing.
///
/// ```
/// use wootz::{Array, clip};
/// let x = Array::new([-2.0f32, 0.5, 2.0])?;
/// assert_eq!(clip(&x, Some(-1), Some(1))?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
/// assert_eq!(clip(&x, None::<f32>, Some(1))?.to_vec::<f32>()?, [-2.0, 0.5, 1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn clip(
    x: impl Into<Arg>,
    min: Option<impl Into<Arg>>,
    max: Option<impl Into<Arg>>,
) -> Result<Array> {
    let [x] = resolve("clip", [x.into()])?;
    match (min, max) {
        (None, None) => Err(Error::argument("clip", "min, max", "at least one", "none")),
        (Some(min), None) => maximum(&x, min),
        (None, Some(max)) => minimum(&x, max),
        (Some(min), Some(max)) => minimum(maximum(&x, min)?, max),
    }
}

/// Elementwise conversion from radians to degrees.
///
/// ```
/// use wootz::{Array, degrees};
/// assert_eq!(degrees(&Array::new([0.0f32])?)?.to_vec::<f32>()?, [0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn degrees(x: impl Into<Arg>) -> Result<Array> {
    scaled("degrees", x.into(), 180.0 / std::f64::consts::PI)
}

/// Elementwise conversion from degrees to radians.
///
/// ```
/// use wootz::{Array, radians};
/// assert_eq!(radians(&Array::new([0.0f32])?)?.to_vec::<f32>()?, [0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn radians(x: impl Into<Arg>) -> Result<Array> {
    scaled("radians", x.into(), std::f64::consts::PI / 180.0)
}

fn scaled(op: &'static str, x: Arg, factor: f64) -> Result<Array> {
    let [x] = resolve(op, [x])?;
    multiply(&x, factor)
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

/// Elementwise quotient rounded down. An integer divided by 0 gives 0.
///
/// ```
/// use wootz::{Array, floor_divide};
/// assert_eq!(floor_divide(&Array::new([7, -7])?, 2)?.to_vec::<i32>()?, [3, -4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn floor_divide(a: impl Into<Arg>, b: impl Into<Arg>) -> Result<Array> {
    let [a, b] = resolve("floor_divide", [a.into(), b.into()])?;
    if DType::promote(a.dtype(), b.dtype()).is_float() {
        return floor(divide(&a, &b)?);
    }
    integer_quotient(&a, &b)
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
    let bound = abs(&b)?.astype(DType::promote(dtype, DType::F32))?;
    let bound = add(multiply(&bound, rtol)?, atol)?;
    let near = less_equal(abs(subtract(&a, &b)?)?, &bound)?;
    if !dtype.is_float() {
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

/// Elementwise `x` with NaN replaced by `nan`, and infinities by `posinf` and `neginf`, or if those
/// are missing by the largest and smallest finite numbers.
///
/// ```
/// use wootz::{Array, nan_to_num};
/// let x = Array::new([f32::NAN, f32::INFINITY, 1.0])?;
/// assert_eq!(nan_to_num(&x, 0.0, Some(9.0), None)?.to_vec::<f32>()?, [0.0, 9.0, 1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn nan_to_num(
    x: impl Into<Arg>,
    nan: f64,
    posinf: Option<f64>,
    neginf: Option<f64>,
) -> Result<Array> {
    let [x] = resolve("nan_to_num", [x.into()])?;
    let largest = match x.dtype() {
        DType::F16 => half::f16::MAX.to_f64(),
        DType::BF16 => half::bf16::MAX.to_f64(),
        DType::F32 => f32::MAX as f64,
        DType::F64 => f64::MAX,
        _ => return Ok(x),
    };
    let finite = where_(isposinf(&x)?, posinf.unwrap_or(largest), &x)?;
    let finite = where_(isneginf(&x)?, neginf.unwrap_or(-largest), &finite)?;
    where_(isnan(&x)?, nan, &finite)
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

/// The real part: the same array, as long as there are no complex ones.
///
/// ```
/// assert_eq!(wootz::real(&wootz::Array::new([1.5f32])?)?.item::<f32>()?, 1.5);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn real(x: impl Into<Arg>) -> Result<Array> {
    positive(x)
}

/// The imaginary part: zeros, as long as there are no complex arrays.
///
/// ```
/// assert_eq!(wootz::imag(&wootz::Array::new([1.5f32])?)?.item::<f32>()?, 0.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn imag(x: impl Into<Arg>) -> Result<Array> {
    crate::ops::zeros_like(&positive(x)?)
}

/// The complex conjugate: the same array, as long as there are no complex ones.
///
/// ```
/// assert_eq!(wootz::conjugate(&wootz::Array::new([1.5f32])?)?.item::<f32>()?, 1.5);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn conjugate(x: impl Into<Arg>) -> Result<Array> {
    positive(x)
}

/// Elementwise `x` rounded to a number of decimals, ties to even; negative `decimals` round before
/// the point.
///
/// ```
/// use wootz::{Array, round};
/// assert_eq!(round(&Array::new([0.5f32, 1.5])?, 0)?.to_vec::<f32>()?, [0.0, 2.0]);
/// assert_eq!(round(&Array::new([125, 135])?, -1)?.to_vec::<i32>()?, [120, 140]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn round(x: impl Into<Arg>, decimals: i32) -> Result<Array> {
    let [x] = resolve("round", [x.into()])?;
    if decimals == 0 {
        return rint(&x);
    }
    // Both factors in single precision, and two products, because that is what MLX's bits are.
    let scale = 10f64.powi(decimals) as f32;
    let rounded = rint(multiply(&x, scale)?)?;
    astype(&multiply(&rounded, 1.0 / scale)?, x.dtype())
}

/// Methods of the functions above.
impl Array {
    /// The function [`clip`].
    pub fn clip(&self, min: Option<impl Into<Arg>>, max: Option<impl Into<Arg>>) -> Result<Array> {
        clip(self, min, max)
    }

    /// The function [`floor_divide`].
    pub fn floor_divide(&self, b: impl Into<Arg>) -> Result<Array> {
        floor_divide(self, b)
    }

    /// The function [`round`].
    pub fn round(&self, decimals: i32) -> Result<Array> {
        round(self, decimals)
    }
}
