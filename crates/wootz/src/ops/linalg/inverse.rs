//! Inverses of square, triangular and any matrices.

use super::dense::{Failure, Lu, Matrix, svd};
use super::host::{Factorization, Part, Values, apply_one};
use super::parts::{add_all, identity, minus, product, t, triangle};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::ops::{matmul, subtract};

/// The inverse of the square matrices in the last two axes, of `float32` or `float64`. Singular
/// matrices are an error when the inverse is computed.
///
/// ```
/// use wootz::{Array, linalg};
/// // mx.linalg.inv(mx.array([[2.0, 0.0], [1.0, 4.0]]))
/// let x = linalg::inv(&Array::new([[2.0f32, 0.0], [1.0, 4.0]])?)?;
/// assert_eq!(x.to_vec::<f32>()?, [0.5, 0.0, -0.125, 0.25]);
/// assert!(linalg::inv(&Array::new([[1.0f32, 2.0], [2.0, 4.0]])?)?.eval().is_err());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn inv(a: &Array) -> Result<Array> {
    apply_one(Inverse, &[a])
}

/// The inverse of lower or, with `upper`, upper triangular matrices. The other triangle is not read.
///
/// ```
/// use wootz::{Array, linalg};
/// // mx.linalg.tri_inv(mx.array([[2.0, 9.0], [1.0, 4.0]]))
/// let x = linalg::tri_inv(&Array::new([[2.0f32, 9.0], [1.0, 4.0]])?, false)?;
/// assert_eq!(x.to_vec::<f32>()?, [0.5, 0.0, -0.125, 0.25]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn tri_inv(a: &Array, upper: bool) -> Result<Array> {
    apply_one(TriangularInverse { upper }, &[a])
}

/// The inverse of `A`, given its factor by [`cholesky`](super::cholesky()): `L` with `A = L Lᵀ`, or with
/// `upper` `U` with `A = Uᵀ U`.
///
/// ```
/// use wootz::{Array, linalg};
/// // mx.linalg.cholesky_inv(mx.array([[2.0, 0.0], [0.0, 4.0]]))
/// let x = linalg::cholesky_inv(&Array::new([[2.0f32, 0.0], [0.0, 4.0]])?, false)?;
/// assert_eq!(x.to_vec::<f32>()?, [0.25, 0.0, 0.0, 0.0625]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn cholesky_inv(a: &Array, upper: bool) -> Result<Array> {
    let inverse = tri_inv(a, upper)?;
    match upper {
        true => matmul(&inverse, &t(&inverse)?),
        false => matmul(&t(&inverse)?, &inverse),
    }
}

/// The pseudo-inverse (Moore and Penrose) of the matrices in the last two axes, of any shape. Singular
/// values below `10 · max(m, n) · eps` of the largest one count as zero.
///
/// ```
/// use wootz::{Array, linalg};
/// // mx.linalg.pinv(mx.array([[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
/// let x = linalg::pinv(&Array::new([[2.0f32, 0.0], [0.0, 0.0], [0.0, 0.0]])?)?;
/// assert_eq!(x.to_vec::<f32>()?, [0.5, 0.0, 0.0, 0.0, 0.0, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn pinv(a: &Array) -> Result<Array> {
    apply_one(PseudoInverse, &[a])
}

#[derive(Clone, Copy, Debug)]
struct Inverse;

impl Factorization for Inverse {
    fn name(&self) -> &'static str {
        "linalg.inv"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "inverse"]
    }

    fn is_square(&self) -> bool {
        true
    }

    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
        Ok(vec![Part::matrix(sizes[0][0], sizes[0][1])])
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        let solved = inputs.into_iter().map(|a| {
            let n = a.rows;
            Ok(Lu::new(a).solve(Matrix::identity(n, n))?.into())
        });
        solved.collect()
    }

    fn vjp(
        &self,
        _: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        Ok(vec![gradient(&outputs[0], cotangents)?])
    }
}

/// `-Xᵀ G Xᵀ`.
fn gradient(inverse: &Array, cotangents: &[Option<Array>]) -> Result<Option<Array>> {
    let Some(g) = &cotangents[0] else { return Ok(None) };
    let x = t(inverse)?;
    Ok(Some(minus(&product([&x, g, &x])?)?))
}

#[derive(Clone, Copy, Debug)]
struct TriangularInverse {
    upper: bool,
}

impl Factorization for TriangularInverse {
    fn name(&self) -> &'static str {
        "linalg.tri_inv"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "inverse"]
    }

    fn is_square(&self) -> bool {
        true
    }

    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
        Ok(vec![Part::matrix(sizes[0][0], sizes[0][1])])
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        let solved = inputs.iter().map(|a| {
            let identity = Matrix::identity(a.rows, a.rows);
            Ok(super::dense::solve_triangular(a, identity, self.upper)?.into())
        });
        solved.collect()
    }

    fn vjp(
        &self,
        _: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let gradient = gradient(&outputs[0], cotangents)?;
        Ok(vec![gradient.map(|g| triangle(&g, self.upper)).transpose()?])
    }
}

#[derive(Clone, Copy, Debug)]
struct PseudoInverse;

impl Factorization for PseudoInverse {
    fn name(&self) -> &'static str {
        "linalg.pinv"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "inverse"]
    }

    fn is_square(&self) -> bool {
        false
    }

    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
        Ok(vec![Part::matrix(sizes[0][1], sizes[0][0])])
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, dtype: DType) -> Result<Vec<Values>, Failure> {
        inputs.into_iter().map(|a| Ok(pseudo_inverse(a, dtype)?.into())).collect()
    }

    /// Golub and Pereyra's derivative of the pseudo-inverse of a matrix that keeps its rank.
    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(g) = &cotangents[0] else { return Ok(vec![None]) };
        let (a, x) = (&inputs[0], &outputs[0]);
        let (g, xt) = (t(g)?, t(x)?);
        let (rows, columns) = (a.shape()[a.rank() - 2], a.shape()[a.rank() - 1]);
        let beside = subtract(identity(rows, a)?, matmul(a, x)?)?;
        let below = subtract(identity(columns, a)?, matmul(x, a)?)?;
        let gradient = add_all([
            minus(&product([&xt, &t(&g)?, &xt])?),
            product([&beside, &g, x, &xt]),
            product([&xt, x, &g, &below]),
        ])?;
        Ok(vec![gradient])
    }
}

fn pseudo_inverse(a: Matrix<f64>, dtype: DType) -> Result<Matrix<f64>, Failure> {
    let (rows, columns) = (a.rows, a.columns);
    let mut inverse = Matrix::zeros(columns, rows);
    if !a.is_finite() {
        inverse.values.fill(f64::NAN);
        return Ok(inverse);
    }
    let epsilon = if dtype == DType::F64 { f64::EPSILON } else { f32::EPSILON.into() };
    let svd = svd(a, super::dense::Vectors::Thin)?;
    let least = svd.s.first().unwrap_or(&0.0) * 10.0 * rows.max(columns) as f64 * epsilon;
    for (k, &s) in svd.s.iter().enumerate().filter(|(_, s)| **s > least) {
        for i in 0..columns {
            let factor = svd.vh[(k, i)] / s;
            for (j, value) in inverse.row_mut(i).iter_mut().enumerate() {
                *value += factor * svd.u[(j, k)];
            }
        }
    }
    Ok(inverse)
}
