//! Systems of linear equations.

use super::dense::{self, Failure, Lu, Matrix};
use super::host::{Factorization, Part, Values, apply_one};
use super::parts::{alike, minus, t, triangle};
use crate::array::{Array, DType, Shape, broadcast_shapes};
use crate::error::{Error, Result};
use crate::ops::{broadcast_to, expand_dims, matmul, squeeze};

/// `X` of `A X = B` for the square matrices in the last two axes of `a`; `b` is a vector, or holds
/// matrices. Axes before the last two are broadcast. Singular matrices are an error when `X` is
/// computed.
///
/// ```
/// use wootz::{Array, linalg};
/// let a = Array::new([[2.0f32, 1.0], [1.0, 3.0]])?;
/// // mx.linalg.solve(a, mx.array([3.0, 4.0]))
/// let x = linalg::solve(&a, &Array::new([3.0f32, 4.0])?)?;
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn solve(a: &Array, b: &Array) -> Result<Array> {
    system(Solve, a, b)
}

/// `X` of `A X = B` for lower or, with `upper`, upper triangular `A`, whose other triangle is not read.
///
/// ```
/// use wootz::{Array, linalg};
/// let a = Array::new([[2.0f32, 9.0], [1.0, 4.0]])?;
/// // mx.linalg.solve_triangular(a, mx.array([2.0, 5.0]))
/// let x = linalg::solve_triangular(&a, &Array::new([2.0f32, 5.0])?, false)?;
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn solve_triangular(a: &Array, b: &Array, upper: bool) -> Result<Array> {
    system(SolveTriangular { upper }, a, b)
}

/// Solves with vectors as matrices of one column, and batches broadcast.
fn system<F: Factorization>(factorization: F, a: &Array, b: &Array) -> Result<Array> {
    let op = factorization.name();
    let [.., rows, columns] = *a.shape() else {
        return Err(Error::shape(op, "a", "one of at least 2 axes", a.shape()));
    };
    if rows != columns {
        return Err(Error::shape(op, "a", "square matrices", a.shape()));
    }
    if !matches!(a.dtype(), DType::F32 | DType::F64) {
        return Err(Error::dtype(op, "a", "float32 or float64", a.dtype()));
    }
    let equations = match *b.shape() {
        [] => return Err(Error::shape(op, "b", "one of at least 1 axis", b.shape())),
        [rows] | [.., rows, _] => rows,
    };
    if equations != rows {
        let expected = format!("{rows} rows, as a of shape {:?} has", a.shape());
        return Err(Error::shape(op, "b", expected, b.shape()));
    }
    let is_vector = b.rank() == 1;
    let (a, b) = alike(a, &if is_vector { expand_dims(b, -1)? } else { b.clone() })?;
    let (before_a, before_b) = (&a.shape()[..a.rank() - 2], &b.shape()[..b.rank() - 2]);
    let batch = broadcast_shapes(op, before_a, before_b)?;
    let spread = |x: &Array| {
        let shape: Shape = batch.iter().chain(&x.shape()[x.rank() - 2..]).copied().collect();
        if shape[..] == *x.shape() { Ok(x.clone()) } else { broadcast_to(x, &shape) }
    };
    let x = apply_one(factorization, &[&spread(&a)?, &spread(&b)?])?;
    if is_vector { squeeze(&x, -1) } else { Ok(x) }
}

#[derive(Clone, Copy, Debug)]
struct Solve;

impl Factorization for Solve {
    fn name(&self) -> &'static str {
        "linalg.solve"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "b", "x"]
    }

    fn inputs(&self) -> usize {
        2
    }

    fn is_square(&self) -> bool {
        true
    }

    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
        solution(self.name(), sizes)
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        let mut inputs = inputs.into_iter();
        match (inputs.next(), inputs.next()) {
            (Some(a), Some(b)) => Ok(vec![Lu::new(a).solve(b)?.into()]),
            _ => Ok(Vec::new()),
        }
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(g) = &cotangents[0] else { return Ok(vec![None, None]) };
        let of_b = apply_one(Solve, &[&t(&inputs[0])?, g])?;
        let of_a = minus(&matmul(&of_b, &t(&outputs[0])?)?)?;
        Ok(vec![Some(of_a), Some(of_b)])
    }
}

#[derive(Clone, Copy, Debug)]
struct SolveTriangular {
    upper: bool,
}

impl Factorization for SolveTriangular {
    fn name(&self) -> &'static str {
        "linalg.solve_triangular"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "b", "x"]
    }

    fn inputs(&self) -> usize {
        2
    }

    fn is_square(&self) -> bool {
        true
    }

    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
        solution(self.name(), sizes)
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        let mut inputs = inputs.into_iter();
        match (inputs.next(), inputs.next()) {
            (Some(a), Some(b)) => Ok(vec![dense::solve_triangular(&a, b, self.upper)?.into()]),
            _ => Ok(Vec::new()),
        }
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(g) = &cotangents[0] else { return Ok(vec![None, None]) };
        let transposed = SolveTriangular { upper: !self.upper };
        let of_b = apply_one(transposed, &[&t(&inputs[0])?, g])?;
        let of_a = minus(&matmul(&of_b, &t(&outputs[0])?)?)?;
        Ok(vec![Some(triangle(&of_a, self.upper)?), Some(of_b)])
    }
}

fn solution(op: &'static str, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
    let [[rows, _], [equations, columns]] = *sizes else { return Ok(Vec::new()) };
    match rows == equations {
        true => Ok(vec![Part::matrix(rows, columns)]),
        false => Err(Error::shape(op, "b", format!("{rows} rows"), &[equations, columns])),
    }
}
