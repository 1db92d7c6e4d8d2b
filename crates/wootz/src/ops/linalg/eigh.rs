//! Eigenvalues and eigenvectors of symmetric matrices.

use super::dense::{self, Complex, Failure, Matrix, Number};
use super::host::{ComplexFn, Factorization, Part, Values, apply, apply_one};
use super::parts::{add_all, diagonal_matrix, inverse_gaps, product, symmetric, t};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::{matmul, multiply};

/// Which triangle of a symmetric matrix is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Triangle {
    /// On and below the diagonal: MLX's `"L"`.
    #[default]
    Lower,
    /// On and above the diagonal: MLX's `"U"`.
    Upper,
}

/// The eigenvalues in rising order, and the eigenvectors as columns, of the symmetric matrices in the last
/// two axes, of which one triangle is read. Of matrices with NaNs or infinities both are NaN.
///
/// Gradients are symmetric. Those of eigenvectors exist where eigenvalues differ; equal ones add nothing.
///
/// ```
/// use wootz::{Array, linalg, linalg::Triangle};
/// // w, v = mx.linalg.eigh(mx.array([[1.0, -2.0], [-2.0, 1.0]]))
/// let a = Array::new([[1.0f32, -2.0], [-2.0, 1.0]])?;
/// let (w, v) = linalg::eigh(&a, Triangle::Lower)?;
/// assert!(wootz::allclose(&w, &Array::new([-1.0f32, 3.0])?, 0.0, 1e-6, false)?.item::<bool>()?);
/// assert!(wootz::allclose(&a.matmul(&v)?, &(&v * &w), 0.0, 1e-6, false)?.item::<bool>()?);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn eigh(a: &Array, uplo: Triangle) -> Result<(Array, Array)> {
    match &apply(Eigh { upper: uplo == Triangle::Upper }, &[a])?[..] {
        [w, v] => Ok((w.clone(), v.clone())),
        _ => Err(Error::argument("linalg.eigh", "outputs", "two arrays", "others")),
    }
}

/// The eigenvalues alone; see [`eigh`].
///
/// ```
/// use wootz::{Array, linalg, linalg::Triangle};
/// // mx.linalg.eigvalsh(mx.array([[1.0, -2.0], [-2.0, 1.0]]))
/// let w = linalg::eigvalsh(&Array::new([[1.0f32, -2.0], [-2.0, 1.0]])?, Triangle::Lower)?;
/// assert!(wootz::allclose(&w, &Array::new([-1.0f32, 3.0])?, 0.0, 1e-6, false)?.item::<bool>()?);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn eigvalsh(a: &Array, uplo: Triangle) -> Result<Array> {
    apply_one(Eigvalsh { upper: uplo == Triangle::Upper }, &[a])
}

#[derive(Clone, Copy, Debug)]
struct Eigh {
    upper: bool,
}

impl Factorization for Eigh {
    fn name(&self) -> &'static str {
        "linalg.eigh"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "w", "v"]
    }

    fn is_square(&self) -> bool {
        true
    }

    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
        let [n, _] = sizes[0];
        Ok(vec![Part::vector(n).real(), Part::matrix(n, n)])
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        factors(inputs, self.upper)
    }

    fn complex(&self) -> Option<ComplexFn<Eigh>> {
        Some(|eigh, inputs| factors::<Complex>(inputs, eigh.upper))
    }

    fn vjp(
        &self,
        _: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let (w, v) = (&outputs[0], &outputs[1]);
        let turned = |g: &Array| multiply(matmul(&t(v)?, g)?, inverse_gaps(w)?);
        let terms =
            [cotangents[0].as_ref().map(diagonal_matrix), cotangents[1].as_ref().map(turned)];
        let inner = add_all(terms.into_iter().flatten())?;
        let gradient = inner.map(|inner| symmetric(&product([v, &inner, &t(v)?])?));
        Ok(vec![gradient.transpose()?])
    }
}

#[derive(Clone, Copy, Debug)]
struct Eigvalsh {
    upper: bool,
}

impl Factorization for Eigvalsh {
    fn name(&self) -> &'static str {
        "linalg.eigvalsh"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "w"]
    }

    fn is_square(&self) -> bool {
        true
    }

    fn parts(&self, sizes: &[[usize; 2]]) -> Result<Vec<Part>> {
        Ok(vec![Part::vector(sizes[0][0]).real()])
    }

    fn compute(&self, inputs: Vec<Matrix<f64>>, _: DType) -> Result<Vec<Values>, Failure> {
        values(&inputs, self.upper)
    }

    fn complex(&self) -> Option<ComplexFn<Eigvalsh>> {
        Some(|eigvalsh, inputs| values::<Complex>(&inputs, eigvalsh.upper))
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(g) = &cotangents[0] else { return Ok(vec![None]) };
        let uplo = if self.upper { Triangle::Upper } else { Triangle::Lower };
        let (_, v) = eigh(&inputs[0], uplo)?;
        Ok(vec![Some(matmul(&multiply(&v, g.expand_dims(-2)?)?, &t(&v)?)?)])
    }
}

fn factors<T: Number>(inputs: Vec<Matrix<T>>, upper: bool) -> Result<Vec<Values>, Failure>
where
    Values: From<Matrix<T>>,
{
    let mut results = Vec::with_capacity(2);
    for a in inputs {
        if !is_finite(&a, upper) {
            let vectors = vec![T::from_real(f64::NAN); a.rows * a.rows];
            let vectors = Matrix::new(a.rows, a.rows, vectors);
            results.extend([Values::Real(vec![f64::NAN; a.rows]), vectors.into()]);
            continue;
        }
        let (values, vectors) = dense::eigh(&a, upper, true)?;
        results.extend([Values::Real(values), vectors.into()]);
    }
    Ok(results)
}

fn values<T: Number>(inputs: &[Matrix<T>], upper: bool) -> Result<Vec<Values>, Failure> {
    let values = inputs.iter().map(|a| match is_finite(a, upper) {
        true => Ok(Values::Real(dense::eigh(a, upper, false)?.0)),
        false => Ok(Values::Real(vec![f64::NAN; a.rows])),
    });
    values.collect()
}

/// Whether the triangle that is read has no NaNs and infinities.
fn is_finite<T: Number>(a: &Matrix<T>, upper: bool) -> bool {
    (0..a.rows).all(|i| {
        let read = if upper { &a.row(i)[i..] } else { &a.row(i)[..=i] };
        read.iter().all(|value| value.is_finite())
    })
}
