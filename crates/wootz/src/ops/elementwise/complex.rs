//! Complex numbers and their parts.

use super::{Vjp, apply_kernel, apply_row, astype, index_of, resolve, table};
use crate::array::{Arg, Array, DType};
use crate::error::{Error, Result};
use crate::op::{Case, Gradient};
use crate::ops::zeros_like;

/// The complex numbers of two arrays of parts, which become `float32`.
///
/// ```
/// use wootz::{Array, Complex32, complex};
/// let z = complex(&Array::new([1.0f32, 2.0])?, &Array::new([0.5f32, 0.0])?)?;
/// assert_eq!(z.to_vec::<Complex32>()?, [Complex32::new(1.0, 0.5), Complex32::new(2.0, 0.0)]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn complex(real: impl Into<Arg>, imaginary: impl Into<Arg>) -> Result<Array> {
    let parts = resolve("complex", [real.into(), imaginary.into()])?;
    for (name, part) in ["real", "imaginary"].into_iter().zip(&parts) {
        if part.dtype().is_complex() {
            return Err(Error::dtype("complex", name, "a real type", part.dtype()));
        }
    }
    let [real, imaginary] = &parts;
    let (real, imaginary) = (astype(real, DType::F32)?, astype(imaginary, DType::F32)?);
    apply_kernel(&JOIN[0], &[&real, &imaginary])
}

/// The real parts; an array that is not complex is its own.
///
/// ```
/// use wootz::{Array, Complex32, real};
/// // mx.real(mx.array([1 + 2j]))
/// assert_eq!(real(&Array::new([Complex32::new(1.0, 2.0)])?)?.to_vec::<f32>()?, [1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn real(x: impl Into<Arg>) -> Result<Array> {
    let [x] = resolve("real", [x.into()])?;
    match x.dtype().is_complex() {
        true => apply_row(&ROWS[Index::real as usize], [x.into()]),
        false => Ok(x),
    }
}

/// The imaginary parts; those of an array that is not complex are zeros.
///
/// ```
/// use wootz::{Array, Complex32, imag};
/// // mx.imag(mx.array([1 + 2j]))
/// assert_eq!(imag(&Array::new([Complex32::new(1.0, 2.0)])?)?.to_vec::<f32>()?, [2.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn imag(x: impl Into<Arg>) -> Result<Array> {
    let [x] = resolve("imag", [x.into()])?;
    match x.dtype().is_complex() {
        true => apply_row(&ROWS[Index::imag as usize], [x.into()]),
        false => zeros_like(&x),
    }
}

/// The complex conjugates; an array that is not complex is its own.
///
/// ```
/// use wootz::{Array, Complex32, conjugate};
/// // mx.conjugate(mx.array([1 + 2j]))
/// let z = conjugate(&Array::new([Complex32::new(1.0, 2.0)])?)?;
/// assert_eq!(z.to_vec::<Complex32>()?, [Complex32::new(1.0, -2.0)]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn conjugate(x: impl Into<Arg>) -> Result<Array> {
    let [x] = resolve("conjugate", [x.into()])?;
    match x.dtype().is_complex() {
        true => apply_row(&ROWS[Index::conjugate as usize], [x.into()]),
        false => Ok(x),
    }
}

impl Array {
    /// The function [`real`].
    pub fn real(&self) -> Result<Array> {
        real(self)
    }

    /// The function [`imag`].
    pub fn imag(&self) -> Result<Array> {
        imag(self)
    }

    /// The function [`conjugate`].
    pub fn conjugate(&self) -> Result<Array> {
        conjugate(self)
    }

    /// The function [`conjugate`].
    pub fn conj(&self) -> Result<Array> {
        conjugate(self)
    }
}

/// Cases of functions of complex numbers, whose inputs and results are parts: so gradients and values
/// are compared as those of any other function.
fn cases(function: fn(&Array) -> Result<Array>) -> Vec<Case> {
    let case = |label: &str, shapes: &[&[usize]]| {
        Case::new(label, shapes, move |x| {
            let y = function(&complex(&x[0], &x[1])?)?;
            Ok(if y.dtype().is_complex() { vec![real(&y)?, imag(&y)?] } else { vec![y] })
        })
        .dtypes(&[DType::F32])
        .gradient(Gradient::Single)
    };
    vec![case("", &[&[3, 5], &[3, 5]]), case("more than one tile", &[&[1025], &[1]])]
}

/// The row of two parts, beside the table of those of one number.
mod join {
    use super::{Vjp, cases, imag, real, table};

    table! { ["real", "imaginary", "output"];
        complex { AsFloat, Complex, -3.0..3.0,
            [re, im => num_complex::Complex32::new(re as f32, im as f32)], [],
            { float: "vec2f(a, b)" },
            Vjp::Rule(|_, _, g| Ok(vec![real(g)?, imag(g)?])), || cases(|z| Ok(z.clone())) }
    }
}
pub(crate) use join::ROWS as JOIN;

index_of!(real, imag, conjugate);
table! { ["x", "output"];
    real { Complex, Real, -3.0..3.0, [], [], complex [x => x.re], { complex: "a.x" },
        Vjp::Rule(|_, _, g| Ok(vec![g.clone()])), || cases(|z| real(z)) }
    imag { Complex, Real, -3.0..3.0, [], [], complex [x => x.im], { complex: "a.y" },
        Vjp::Rule(|_, _, g| Ok(vec![complex(0.0, g)?])), || cases(|z| imag(z)) }
    conjugate { Complex, Same, -3.0..3.0, [], [], complex [x => x.conj()], { complex: "wz_z_conj(a)" },
        Vjp::Rule(|_, _, g| Ok(vec![conjugate(g)?])), || cases(|z| conjugate(z)) }
}
