//! Singular values and singular vectors.

use super::dense::{self, Complex, Failure, Matrix, Number, Vectors};
use super::host::{ComplexFn, Factorization, Part, Values, apply, apply_one};
use super::parts::{add_all, diagonal_matrix, inverse_gaps, product, range, t};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::{concatenate, divide, matmul, multiply, negative, square, subtract};

/// `U`, `S` and `Vᵀ` such that `U diag(S) Vᵀ` are the matrices in the last two axes: singular values in
/// falling order, and square matrices of singular vectors. Vectors of a matrix with NaNs or infinities
/// are NaN, as are the values.
///
/// Gradients of singular vectors exist where singular values differ; equal ones add nothing.
///
/// ```
/// use wootz::{Array, linalg};
/// // u, s, vt = mx.linalg.svd(mx.array([[3.0, 0.0], [0.0, -2.0]]))
/// let a = Array::new([[3.0f32, 0.0], [0.0, -2.0]])?;
/// let (u, s, vt) = linalg::svd(&a)?;
/// assert_eq!(s.to_vec::<f32>()?, [3.0, 2.0]);
/// assert_eq!((u * s).matmul(&vt)?.to_vec::<f32>()?, [3.0, 0.0, 0.0, -2.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn svd(a: &Array) -> Result<(Array, Array, Array)> {
    match &apply(Svd, &[a])?[..] {
        [u, s, vt] => Ok((u.clone(), s.clone(), vt.clone())),
        _ => Err(Error::argument("linalg.svd", "outputs", "three arrays", "others")),
    }
}

/// The singular values alone, in falling order: MLX's `svd` with `compute_uv=False`.
///
/// ```
/// use wootz::{Array, linalg};
/// // mx.linalg.svd(mx.array([[3.0, 0.0], [0.0, -2.0]]), compute_uv=False)
/// let s = linalg::svdvals(&Array::new([[3.0f32, 0.0], [0.0, -2.0]])?)?;
/// assert_eq!(s.to_vec::<f32>()?, [3.0, 2.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn svdvals(a: &Array) -> Result<Array> {
    apply_one(SingularValues, &[a])
}

#[derive(Clone, Copy, Debug)]
struct Svd;

impl Factorization for Svd {
    fn name(&self) -> &'static str {
        "linalg.svd"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "u", "s", "vt"]
    }

    fn is_square(&self) -> bool {
        false
    }

    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
        let [rows, columns] = sizes[0];
        let values = Part::vector(rows.min(columns)).real();
        Ok(vec![Part::matrix(rows, rows), values, Part::matrix(columns, columns)])
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        factors(inputs)
    }

    fn complex(&self) -> Option<ComplexFn<Svd>> {
        Some(|_, inputs| factors::<Complex>(inputs))
    }

    fn vjp(
        &self,
        _: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let [u, s, vt] = outputs else { return Ok(vec![None]) };
        let [of_u, of_s, of_vt] = cotangents else { return Ok(vec![None]) };
        let (rows, columns) = (u.shape()[u.rank() - 1], vt.shape()[vt.rank() - 1]);
        let count = rows.min(columns);
        // With A changing by dA, the vectors turn by skew matrices that depend on P = Uᵀ dA V. Here are
        // the gradients of these matrices, and then that of P.
        let turned = |vectors: &Array, gradient: Array| -> Result<Array> {
            let inner = matmul(&t(vectors)?, &gradient)?;
            subtract(&inner, t(&inner)?)
        };
        let v = t(vt)?;
        let of_u = of_u.clone().map(|g| turned(u, g)).transpose()?;
        let of_v = of_vt.as_ref().map(|g| turned(&v, t(g)?)).transpose()?;
        let gaps = inverse_gaps(&square(s)?)?;
        let (along_rows, along_columns) = (s.expand_dims(-1)?, s.expand_dims(-2)?);
        let core = |turn: &Array, by: &Array| -> Result<Array> {
            let turn = range(&range(turn, 1, 0, count)?, 2, 0, count)?;
            multiply(multiply(turn, &gaps)?, by)
        };
        let terms = [
            of_u.as_ref().map(|turn| core(turn, &along_columns)),
            of_v.as_ref().map(|turn| core(turn, &along_rows)),
            of_s.as_ref().map(diagonal_matrix),
        ];
        let Some(mut of_p) = add_all(terms.into_iter().flatten())? else { return Ok(vec![None]) };
        // Vectors without a singular value keep orthogonal to the others.
        if rows > count {
            let below = match &of_u {
                Some(turn) => {
                    let turn = range(&range(turn, 2, count, rows)?, 1, 0, count)?;
                    divide(turn, &along_columns)?
                }
                None => nothing(&of_p, rows - count, count)?,
            };
            of_p = concatenate(&[of_p, below], -2)?;
        }
        if columns > count {
            let beside = match &of_v {
                Some(turn) => {
                    let turn = range(&range(turn, 2, 0, count)?, 1, count, columns)?;
                    negative(divide(turn, &along_rows)?)?
                }
                None => nothing(&of_p, count, columns - count)?,
            };
            of_p = concatenate(&[of_p, beside], -1)?;
        }
        Ok(vec![Some(product([u, &of_p, vt])?)])
    }
}

fn factors<T: Number>(inputs: Vec<Matrix<T>>) -> Result<Vec<Values>, Failure>
where
    Values: From<Matrix<T>>,
{
    let mut results = Vec::with_capacity(3);
    for a in inputs {
        let (rows, columns) = (a.rows, a.columns);
        if !a.is_finite() {
            let nan = |n: usize| Matrix::new(n, n, vec![T::from_real(f64::NAN); n * n]).into();
            let values = Values::Real(vec![f64::NAN; rows.min(columns)]);
            results.extend([nan(rows), values, nan(columns)]);
            continue;
        }
        let svd = dense::svd(a, Vectors::Full)?;
        results.extend([svd.u.into(), Values::Real(svd.s), svd.vh.into()]);
    }
    Ok(results)
}

fn values<T: Number>(inputs: Vec<Matrix<T>>) -> Result<Vec<Values>, Failure> {
    let values = inputs.into_iter().map(|a| match a.is_finite() {
        true => Ok(Values::Real(dense::svd(a, Vectors::None)?.s)),
        false => Ok(Values::Real(vec![f64::NAN; a.rows.min(a.columns)])),
    });
    values.collect()
}

/// Zeros in the batch, dtype and device of `like`.
fn nothing(like: &Array, rows: usize, columns: usize) -> Result<Array> {
    let zero = crate::ops::constant(crate::array::Scalar::Int(0), like.dtype(), like.device())?;
    crate::ops::broadcast_to(&zero, &[&like.shape()[..like.rank() - 2], &[rows, columns]].concat())
}

#[derive(Clone, Copy, Debug)]
struct SingularValues;

impl Factorization for SingularValues {
    fn name(&self) -> &'static str {
        "linalg.svdvals"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "s"]
    }

    fn is_square(&self) -> bool {
        false
    }

    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
        Ok(vec![Part::vector(sizes[0][0].min(sizes[0][1])).real()])
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        values(inputs)
    }

    fn complex(&self) -> Option<ComplexFn<SingularValues>> {
        Some(|_, inputs| values::<Complex>(inputs))
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(g) = &cotangents[0] else { return Ok(vec![None]) };
        let (u, s, vt) = svd(&inputs[0])?;
        let count = s.shape().last().copied().unwrap_or(0);
        let u = multiply(range(&u, 1, 0, count)?, g.expand_dims(-2)?)?;
        Ok(vec![Some(matmul(&u, &range(&vt, 2, 0, count)?)?)])
    }
}
