//! Gaussian elimination with row exchanges.

use super::dense::{self, Failure, Matrix};
use super::host::{Factorization, Part, Values, apply};
use super::parts::{identity, minus, range, t};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::{
    add, broadcast_to, concatenate, expand_dims, matmul, take_along_axis, tril, triu,
};

/// The factors of the matrices in the last two axes: row numbers `p` (`uint32`), lower triangular `L` with
/// ones on its diagonal, and upper triangular `U`, such that row `i` of the matrix is row `p[i]` of `L U`.
///
/// ```
/// use wootz::{Array, linalg};
/// // p, l, u = mx.linalg.lu(mx.array([[1.0, 2.0], [2.0, 8.0]]))
/// let (p, l, u) = linalg::lu(&Array::new([[1.0f32, 2.0], [2.0, 8.0]])?)?;
/// assert_eq!(p.to_vec::<u32>()?, [1, 0]);
/// assert_eq!(l.to_vec::<f32>()?, [1.0, 0.0, 0.5, 1.0]);
/// assert_eq!(u.to_vec::<f32>()?, [2.0, 8.0, 0.0, -2.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn lu(a: &Array) -> Result<(Array, Array, Array)> {
    let [factors, _, order] = factored(a)?;
    let (l, u) = apart(&factors)?;
    Ok((order, l, u))
}

/// The factors of [`lu`] in one matrix, `L` without its ones, and the row that each row was exchanged with,
/// one after the other (`uint32`).
///
/// ```
/// use wootz::{Array, linalg};
/// // lu, pivots = mx.linalg.lu_factor(mx.array([[1.0, 2.0], [2.0, 8.0]]))
/// let (lu, pivots) = linalg::lu_factor(&Array::new([[1.0f32, 2.0], [2.0, 8.0]])?)?;
/// assert_eq!(lu.to_vec::<f32>()?, [2.0, 8.0, 0.5, -2.0]);
/// assert_eq!(pivots.to_vec::<u32>()?, [1, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn lu_factor(a: &Array) -> Result<(Array, Array)> {
    let [factors, pivots, _] = factored(a)?;
    Ok((factors, pivots))
}

fn factored(a: &Array) -> Result<[Array; 3]> {
    match &apply(LuFactor, &[a])?[..] {
        [factors, pivots, order] => Ok([factors.clone(), pivots.clone(), order.clone()]),
        _ => Err(Error::argument("linalg.lu", "outputs", "three arrays", "others")),
    }
}

/// `L` and `U` of what is in one matrix.
fn apart(factors: &Array) -> Result<(Array, Array)> {
    let (rows, columns) = sizes(factors);
    let count = rows.min(columns);
    let l = tril(&range(factors, 1, 0, count)?, -1)?;
    let ones = crate::device::with_device(factors.device(), || {
        crate::ops::eye(rows, count, 0, factors.dtype())
    })?;
    Ok((add(l, ones)?, triu(&range(factors, 2, 0, count)?, 0)?))
}

fn sizes(x: &Array) -> (usize, usize) {
    (x.shape()[x.rank() - 2], x.shape()[x.rank() - 1])
}

#[derive(Clone, Copy, Debug)]
struct LuFactor;

impl Factorization for LuFactor {
    fn name(&self) -> &'static str {
        "linalg.lu"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "lu", "pivots", "order"]
    }

    fn is_square(&self) -> bool {
        false
    }

    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
        let [rows, columns] = sizes[0];
        let pivots = Part::indices(rows.min(columns));
        Ok(vec![Part::matrix(rows, columns), pivots, Part::indices(rows)])
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        let mut results = Vec::with_capacity(3);
        for lu in inputs.into_iter().map(dense::Lu::new) {
            let order = lu.order();
            results.extend([lu.factors.into(), Values::Indices(lu.pivots)]);
            results.push(Values::Indices(order));
        }
        Ok(results)
    }

    /// `L⁻ᵀ (tril(Lᵀ L̄, -1) + triu(Ū Uᵀ)) U⁻ᵀ` of the square part. Rows below it are those of `L` times `U`,
    /// columns behind it `L` times those of `U`: they change the gradients of `U` and of `L`.
    fn vjp(
        &self,
        _: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(g) = &cotangents[0] else { return Ok(vec![None]) };
        let (rows, columns) = sizes(g);
        let count = rows.min(columns);
        let (l, u) = apart(&outputs[0])?;
        let (l_square, u_square) = (range(&l, 2, 0, count)?, range(&u, 1, 0, count)?);
        // X U⁻ᵀ and L⁻ᵀ X.
        let over_u = |x: &Array| t(&super::solve_triangular(&u_square, &t(x)?, true)?);
        let under_l = |x: &Array| super::solve_triangular(&t(&l_square)?, x, true);
        let core = range(&range(g, 2, 0, count)?, 1, 0, count)?;
        let (mut of_l, mut of_u) = (core.clone(), core);
        let (mut below, mut behind) = (None, None);
        if rows > count {
            let rest = over_u(&range(g, 2, count, rows)?)?;
            let l_rest = range(&l, 2, count, rows)?;
            of_u = add(of_u, minus(&matmul(&t(&l_rest)?, &rest)?)?)?;
            below = Some(rest);
        }
        if columns > count {
            let rest = under_l(&range(g, 1, count, columns)?)?;
            let u_rest = range(&u, 1, count, columns)?;
            of_l = add(of_l, minus(&matmul(&rest, &t(&u_rest)?)?)?)?;
            behind = Some(rest);
        }
        let lower = tril(&matmul(&t(&l_square)?, &tril(&of_l, -1)?)?, -1)?;
        let upper = triu(&matmul(&triu(&of_u, 0)?, &t(&u_square)?)?, 0)?;
        let mut gradient = over_u(&under_l(&add(lower, upper)?)?)?;
        if let Some(below) = below {
            gradient = concatenate(&[gradient, below], -2)?;
        }
        if let Some(behind) = behind {
            gradient = concatenate(&[gradient, behind], -1)?;
        }
        let places = broadcast_to(&expand_dims(&outputs[2], -1)?, gradient.shape())?;
        Ok(vec![Some(take_along_axis(&gradient, &places, Some(-2))?)])
    }
}

/// The inverse of `A` transposed times a number for each matrix: what gradients of determinants are.
pub(super) fn scaled_cofactors(a: &Array, by: &Array) -> Result<Array> {
    let (n, _) = sizes(a);
    let by = expand_dims(&expand_dims(by, -1)?, -1)?;
    super::solve(&t(a)?, &crate::ops::multiply(identity(n, a)?, by)?)
}
