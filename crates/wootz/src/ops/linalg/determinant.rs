//! Determinants.

use super::dense::{Failure, Lu, Matrix};
use super::host::{Factorization, Part, Values, apply, apply_one};
use super::lu::scaled_cofactors;
use super::parts::range;
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::{astype, concatenate, expand_dims, multiply, negative, stack, subtract};

/// The determinants of the square matrices in the last two axes. Integers become `float32`.
///
/// The gradient of matrices of more than three rows needs them to have an inverse.
///
/// ```
/// use wootz::{Array, linalg};
/// // mx.linalg.det(mx.array([[1.0, 2.0], [3.0, 4.0]]))
/// let x = linalg::det(&Array::new([[1.0f32, 2.0], [3.0, 4.0]])?)?;
/// assert_eq!(x.item::<f32>()?, -2.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn det(a: &Array) -> Result<Array> {
    let (wide, dtype) = widened(a)?;
    astype(&apply_one(Determinant, &[&wide])?, dtype)
}

/// Signs of the determinants of the square matrices in the last two axes, and natural logarithms of their
/// absolute values. A singular matrix has the sign 0 and the logarithm -∞.
///
/// ```
/// use wootz::{Array, linalg};
/// // mx.linalg.slogdet(mx.array([[1.0, 2.0], [3.0, 4.0]]))
/// let (sign, logarithm) = linalg::slogdet(&Array::new([[1.0f32, 2.0], [3.0, 4.0]])?)?;
/// assert_eq!(sign.item::<f32>()?, -1.0);
/// assert!((logarithm.item::<f32>()? - 0.693147).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn slogdet(a: &Array) -> Result<(Array, Array)> {
    let (wide, dtype) = widened(a)?;
    match &apply(LogDeterminant, &[&wide])?[..] {
        [sign, logarithm] => Ok((astype(sign, dtype)?, astype(logarithm, dtype)?)),
        _ => Err(Error::argument("linalg.slogdet", "outputs", "two arrays", "others")),
    }
}

/// The array in a dtype that determinants are computed in, and that of the result.
fn widened(a: &Array) -> Result<(Array, DType)> {
    let dtype = a.dtype().to_float();
    Ok((astype(a, DType::promote(dtype, DType::F32))?, dtype))
}

#[derive(Clone, Copy, Debug)]
struct Determinant;

impl Factorization for Determinant {
    fn name(&self) -> &'static str {
        "linalg.det"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "determinant"]
    }

    fn is_square(&self) -> bool {
        true
    }

    fn parts(&self, _: &[[usize; 2]]) -> Result<Vec<Part>> {
        Ok(vec![Part::scalar()])
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        let product = |a: Matrix<f64>| {
            let (diagonal, odd) = Lu::new(a).diagonal();
            diagonal.iter().product::<f64>() * if odd { -1.0 } else { 1.0 }
        };
        Ok(inputs.into_iter().map(|a| Values::Real(vec![product(a)])).collect())
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(g) = &cotangents[0] else { return Ok(vec![None]) };
        let a = &inputs[0];
        let gradient = match a.shape()[a.rank() - 1] {
            n @ 0..=3 => {
                let g = expand_dims(&expand_dims(g, -1)?, -1)?;
                multiply(small_cofactors(a, n)?, g)?
            }
            _ => scaled_cofactors(a, &multiply(g, &outputs[0])?)?,
        };
        Ok(vec![Some(gradient)])
    }
}

/// Cofactors of matrices of at most three rows, which singular ones have too.
fn small_cofactors(a: &Array, n: usize) -> Result<Array> {
    let row = |i: usize| range(a, 2, i, i + 1);
    match n {
        0 => Ok(a.clone()),
        1 => crate::ops::ones_like(a),
        2 => {
            let turned = |i: usize| -> Result<Array> {
                let row = row(i)?;
                let (x, y) = (range(&row, 1, 0, 1)?, range(&row, 1, 1, 2)?);
                // The other row, backwards and with a sign.
                match i {
                    1 => concatenate(&[y, negative(x)?], -1),
                    _ => concatenate(&[negative(y)?, x], -1),
                }
            };
            concatenate(&[turned(1)?, turned(0)?], -2)
        }
        _ => {
            let rows = [cross(&row(1)?, &row(2)?)?, cross(&row(2)?, &row(0)?)?];
            concatenate(&[&rows[0], &rows[1], &cross(&row(0)?, &row(1)?)?], -2)
        }
    }
}

/// The cross product along the last axis, of length 3.
fn cross(a: &Array, b: &Array) -> Result<Array> {
    let part = |x: &Array, i: usize| crate::ops::squeeze(&range(x, 1, i, i + 1)?, -1);
    let minor = |i: usize, j: usize| -> Result<Array> {
        let (left, right) =
            (multiply(part(a, i)?, part(b, j)?)?, multiply(part(a, j)?, part(b, i)?)?);
        subtract(left, right)
    };
    stack(&[minor(1, 2)?, minor(2, 0)?, minor(0, 1)?], -1)
}

#[derive(Clone, Copy, Debug)]
struct LogDeterminant;

impl Factorization for LogDeterminant {
    fn name(&self) -> &'static str {
        "linalg.slogdet"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "sign", "logabsdet"]
    }

    fn is_square(&self) -> bool {
        true
    }

    fn parts(&self, _: &[[usize; 2]]) -> Result<Vec<Part>> {
        Ok(vec![Part::scalar(), Part::scalar()])
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        let mut results = Vec::with_capacity(2);
        for a in inputs {
            let (diagonal, odd) = Lu::new(a).diagonal();
            let mut sign = if odd { -1.0 } else { 1.0 };
            let mut logarithm = 0.0;
            for value in diagonal {
                sign *= if value == 0.0 { 0.0 } else { value.signum() };
                logarithm += value.abs().ln();
            }
            results.extend([Values::Real(vec![sign]), Values::Real(vec![logarithm])]);
        }
        Ok(results)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(g) = &cotangents[1] else { return Ok(vec![None]) };
        Ok(vec![Some(scaled_cofactors(&inputs[0], g)?)])
    }
}
