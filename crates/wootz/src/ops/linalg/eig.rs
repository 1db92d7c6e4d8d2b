//! Eigenvalues and eigenvectors of any square matrices: complex numbers, whatever the matrices are.

use super::dense::{self, Complex, Failure, Matrix};
use super::host::{ComplexFn, Factorization, Part, Values, apply, apply_one};
use crate::array::{Array, DType};
use crate::error::{Error, Result};

/// The eigenvalues, in no particular order, and the eigenvectors as columns, of the square matrices in the
/// last two axes: `complex64`, also where all are real. Of matrices with NaNs or infinities both are NaN.
/// There are no gradients, as in MLX.
///
/// ```
/// use wootz::{Array, Complex32, linalg};
/// // w, v = mx.linalg.eig(mx.array([[0.0, -1.0], [1.0, 0.0]]))
/// let (w, _) = linalg::eig(&Array::new([[0.0f32, -1.0], [1.0, 0.0]])?)?;
/// let mut w = w.to_vec::<Complex32>()?;
/// w.sort_by(|x, y| x.im.total_cmp(&y.im));
/// assert!((w[0] - Complex32::new(0.0, -1.0)).norm() < 1e-6);
/// assert!((w[1] - Complex32::new(0.0, 1.0)).norm() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn eig(a: &Array) -> Result<(Array, Array)> {
    match &apply(Eig { vectors: true }, &[a])?[..] {
        [w, v] => Ok((w.clone(), v.clone())),
        _ => Err(Error::argument("linalg.eig", "outputs", "two arrays", "others")),
    }
}

/// The eigenvalues alone; see [`eig`].
///
/// ```
/// use wootz::{Array, Complex32, linalg};
/// // mx.linalg.eigvals(mx.array([[2.0, 1.0], [0.0, 2.0]]))
/// let w = linalg::eigvals(&Array::new([[2.0f32, 1.0], [0.0, 2.0]])?)?;
/// assert_eq!(w.to_vec::<Complex32>()?, [Complex32::new(2.0, 0.0); 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn eigvals(a: &Array) -> Result<Array> {
    apply_one(Eig { vectors: false }, &[a])
}

#[derive(Clone, Copy, Debug)]
struct Eig {
    vectors: bool,
}

impl Eig {
    fn values(&self, a: Matrix<Complex>) -> Result<Vec<Values>, Failure> {
        let n = a.rows;
        let (values, vectors) = match a.is_finite() {
            true => dense::eig(a, self.vectors)?,
            false => {
                let nan = Complex::new(f64::NAN, f64::NAN);
                (vec![nan; n], Matrix::new(n, n, vec![nan; n * n]))
            }
        };
        let mut results = vec![Values::Complex(values)];
        if self.vectors {
            results.push(vectors.into());
        }
        Ok(results)
    }
}

impl Factorization for Eig {
    fn name(&self) -> &'static str {
        if self.vectors { "linalg.eig" } else { "linalg.eigvals" }
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "w", "v"]
    }

    fn is_square(&self) -> bool {
        true
    }

    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
        let [n, _] = sizes[0];
        let mut parts = vec![Part::vector(n).complex()];
        if self.vectors {
            parts.push(Part::matrix(n, n).complex());
        }
        Ok(parts)
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        let mut results = Vec::new();
        for a in inputs {
            let values = a.values.into_iter().map(|re| Complex::new(re, 0.0)).collect();
            results.extend(self.values(Matrix::new(a.rows, a.columns, values))?);
        }
        // What rounding left of imaginary parts of a real matrix is not seen in single precision.
        for values in &mut results {
            if let Values::Complex(values) = values {
                values
                    .iter_mut()
                    .filter(|x| x.im.abs() <= 1e-13 * x.re.abs())
                    .for_each(|x| x.im = 0.0);
            }
        }
        Ok(results)
    }

    fn complex(&self) -> Option<ComplexFn<Eig>> {
        Some(|eig, inputs| {
            let results = inputs.into_iter().map(|a| eig.values(a));
            Ok(results.collect::<Result<Vec<_>, Failure>>()?.into_iter().flatten().collect())
        })
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        let reason = "eigenvectors of matrices that are not symmetric have no gradient here";
        Err(Error::not_differentiable(self.name(), reason))
    }
}
