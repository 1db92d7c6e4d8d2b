//! Triangular square roots of positive semi-definite matrices.

use super::dense::{self, Failure, Matrix};
use super::host::{Factorization, Part, Values, apply_one};
use super::parts::{half_triangle, product, symmetric, t};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::ops::matmul;

/// The lower triangular `L` with `A = L Lᵀ` of the symmetric positive semi-definite matrices in the last
/// two axes, or with `upper` the upper triangular `U` with `A = Uᵀ U`. Only that triangle of `a` is read;
/// gradients are symmetric. The factor of another matrix has NaNs.
///
/// ```
/// use wootz::{Array, linalg};
/// // mx.linalg.cholesky(mx.array([[4.0, 2.0], [2.0, 5.0]]))
/// let x = linalg::cholesky(&Array::new([[4.0f32, 2.0], [2.0, 5.0]])?, false)?;
/// assert_eq!(x.to_vec::<f32>()?, [2.0, 0.0, 1.0, 2.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn cholesky(a: &Array, upper: bool) -> Result<Array> {
    apply_one(Cholesky { upper }, &[a])
}

#[derive(Clone, Copy, Debug)]
struct Cholesky {
    upper: bool,
}

impl Factorization for Cholesky {
    fn name(&self) -> &'static str {
        "linalg.cholesky"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "factor"]
    }

    fn is_square(&self) -> bool {
        true
    }

    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
        Ok(vec![Part::matrix(sizes[0][0], sizes[0][1])])
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        let factor = |a: &Matrix<f64>| match self.upper {
            true => dense::cholesky(&a.adjoint()).adjoint(),
            false => dense::cholesky(a),
        };
        Ok(inputs.iter().map(|a| factor(a).into()).collect())
    }

    /// The symmetric part of `L⁻ᵀ Φ(Lᵀ G) L⁻¹`, where `Φ` takes the lower triangle and half of the
    /// diagonal (Murray, arXiv:1602.07527).
    fn vjp(
        &self,
        _: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(g) = &cotangents[0] else { return Ok(vec![None]) };
        let (l, g) = match self.upper {
            true => (t(&outputs[0])?, t(g)?),
            false => (outputs[0].clone(), g.clone()),
        };
        let inverse = super::tri_inv(&l, false)?;
        let middle = half_triangle(&matmul(&t(&l)?, &g)?)?;
        Ok(vec![Some(symmetric(&product([&t(&inverse)?, &middle, &inverse])?)?)])
    }
}
