//! Orthonormal columns times a triangle.

use super::dense::{self, Failure, Matrix};
use super::host::{Factorization, Part, Values, apply};
use super::parts::{mirrored, range, t};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::{add, concatenate, matmul, subtract, zeros_like};

/// `Q` with orthonormal columns and upper triangular `R` such that `Q R` are the matrices in the last two
/// axes. An `m` by `n` matrix has `min(m, n)` columns of `Q`.
///
/// ```
/// use wootz::{Array, linalg};
/// // q, r = mx.linalg.qr(mx.array([[3.0, 5.0], [4.0, 0.0]]))
/// let (q, r) = linalg::qr(&Array::new([[3.0f32, 5.0], [4.0, 0.0]])?)?;
/// let close = |x: Vec<f32>, y: [f32; 4]| x.iter().zip(y).all(|(x, y)| (x - y).abs() < 1e-6);
/// assert!(close(q.to_vec()?, [-0.6, -0.8, -0.8, 0.6]));
/// assert!(close(r.to_vec()?, [-5.0, -3.0, 0.0, -4.0]));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn qr(a: &Array) -> Result<(Array, Array)> {
    match &apply(Qr, &[a])?[..] {
        [q, r] => Ok((q.clone(), r.clone())),
        _ => Err(Error::argument("linalg.qr", "outputs", "two arrays", "others")),
    }
}

#[derive(Clone, Copy, Debug)]
struct Qr;

impl Factorization for Qr {
    fn name(&self) -> &'static str {
        "linalg.qr"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "q", "r"]
    }

    fn is_square(&self) -> bool {
        false
    }

    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
        let [rows, columns] = sizes[0];
        let count = rows.min(columns);
        Ok(vec![Part::matrix(rows, count), Part::matrix(count, columns)])
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        let factors = inputs.into_iter().map(dense::qr).flat_map(|(q, r)| [q.into(), r.into()]);
        Ok(factors.collect())
    }

    /// `(Ḡ + Q S) R⁻ᵀ` with the symmetric matrix `S` of the lower triangle of `R R̄ᵀ - Q̄ᵀ Q`. The columns
    /// of a wide matrix behind the square part are `Q` times those of `R`.
    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let (a, q, r) = (&inputs[0], &outputs[0], &outputs[1]);
        let zeros = |given: &Option<Array>, like: &Array| {
            given.clone().map_or_else(|| zeros_like(like), Ok)
        };
        let (mut of_q, of_r) = (zeros(&cotangents[0], q)?, zeros(&cotangents[1], r)?);
        let (count, columns) = (r.shape()[r.rank() - 2], r.shape()[r.rank() - 1]);
        let (square, of_square) = (range(r, 1, 0, count)?, range(&of_r, 1, 0, count)?);
        let mut behind = None;
        if columns > count {
            let of_rest = range(&of_r, 1, count, columns)?;
            of_q = add(of_q, matmul(&range(a, 1, count, columns)?, &t(&of_rest)?)?)?;
            behind = Some(matmul(q, &of_rest)?);
        }
        let inner = subtract(matmul(&square, &t(&of_square)?)?, matmul(&t(&of_q)?, q)?)?;
        let product = add(of_q, matmul(q, &mirrored(&inner)?)?)?;
        // X R⁻ᵀ is the transpose of R⁻¹ Xᵀ.
        let front = t(&super::solve_triangular(&square, &t(&product)?, true)?)?;
        let gradient = match behind {
            Some(behind) => concatenate(&[front, behind], -1)?,
            None => front,
        };
        Ok(vec![Some(gradient)])
    }
}
