//! Factors of a matrix, which are unique only up to sign, phase or order: the products are
//! compared instead.

use serde_json::Value;

use super::{close, close_complex, values};
use crate::case::{Case, Tolerance};
use crate::tensor::{Tensor, Wide};

/// Compares the results of `svd`, `qr`, `eigh`, `eig` and `eigvals`.
pub(super) fn compare(
    case: &Case,
    a: &Tensor,
    got: &[Tensor],
    expected: &[Tensor],
) -> Result<(), String> {
    let tolerance = case.tolerances.first().copied().unwrap_or_default();
    let a = matrices(a)?;
    let largest = a.iter().flat_map(|m| &m.values).map(modulus).fold(0.0, f64::max);
    let limit = tolerance.atol.max(1e-4 * largest.max(1.0));
    let numbers = Tolerance { rtol: tolerance.rtol, atol: limit };
    let check = |what: &str, right: bool| match right {
        true => Ok(()),
        false => Err(format!("{what} does not hold within {limit:.3e}")),
    };
    match (case.op.as_str(), got) {
        ("linalg.svd", [s]) => values(&s.wide(), &expected[0].wide(), Some(numbers)),
        ("linalg.svd", [u, s, vt]) => {
            values(&s.wide(), &expected[1].wide(), Some(numbers))?;
            let (u, vt, s) = (matrices(u)?, matrices(vt)?, rows(s)?);
            for (((a, u), vt), s) in a.iter().zip(&u).zip(&vt).zip(&s) {
                let product = u.columns(s.len()).scaled(s).times(&vt.top(s.len()));
                check("U·S·Vt = a", product.near(a, limit))?;
                check("U is orthonormal", u.adjoint().times(u).near_identity(limit))?;
                check("Vt is orthonormal", vt.times(&vt.adjoint()).near_identity(limit))?;
            }
            Ok(())
        }
        ("linalg.qr", [q, r]) => {
            let (q, r) = (matrices(q)?, matrices(r)?);
            for ((a, q), r) in a.iter().zip(&q).zip(&r) {
                check("Q·R = a", q.times(r).near(a, limit))?;
                check("Q is orthonormal", q.adjoint().times(q).near_identity(limit))?;
                check("R is upper triangular", r.kept(|i, j| j >= i).near(r, limit))?;
            }
            Ok(())
        }
        ("linalg.eigh", [w, v]) => {
            values(&w.wide(), &expected[0].wide(), Some(numbers))?;
            let lower = case.attrs.get("UPLO").and_then(Value::as_str) != Some("U");
            let (w, v) = (rows(w)?, matrices(v)?);
            for ((a, w), v) in a.iter().zip(&w).zip(&v) {
                let rising = w.windows(2).all(|pair| pair[0][0] <= pair[1][0] + limit);
                check("ascending order", rising)?;
                let full = a.mirrored(lower);
                check("A·V = V·w", full.times(v).near(&v.scaled(w), limit))?;
                check("V is orthonormal", v.adjoint().times(v).near_identity(limit))?;
            }
            Ok(())
        }
        ("linalg.eig" | "linalg.eigvals", [w, vectors @ ..]) => {
            let (w, wanted) = (rows(w)?, rows(&expected[0])?);
            for (w, wanted) in w.iter().zip(&wanted) {
                let (w, wanted) = (ordered(w), ordered(wanted));
                let same = w.iter().zip(&wanted).all(|(w, e)| close_complex(w, e, numbers));
                check("equal eigenvalues", same && w.len() == wanted.len())?;
            }
            let Some(v) = vectors.first() else { return Ok(()) };
            for ((a, w), v) in a.iter().zip(&w).zip(&matrices(v)?) {
                check("A·v = λ·v", a.times(v).near(&v.scaled(w), limit))?;
            }
            Ok(())
        }
        (op, _) => Err(format!("{op} has no comparison of factors")),
    }
}

type Number = [f64; 2];

/// One matrix of a batch.
struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<Number>,
}

impl Matrix {
    fn make(rows: usize, columns: usize, value: impl Fn(usize, usize) -> Number) -> Matrix {
        let places = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
        Matrix { rows, columns, values: places.map(|(i, j)| value(i, j)).collect() }
    }

    fn at(&self, i: usize, j: usize) -> Number {
        self.values[i * self.columns + j]
    }

    fn times(&self, other: &Matrix) -> Matrix {
        let inner = self.columns.min(other.rows);
        Matrix::make(self.rows, other.columns, |i, j| {
            (0..inner).fold([0.0; 2], |[re, im], k| {
                let [x, y] = multiply(self.at(i, k), other.at(k, j));
                [re + x, im + y]
            })
        })
    }

    fn adjoint(&self) -> Matrix {
        Matrix::make(self.columns, self.rows, |i, j| conjugate(self.at(j, i)))
    }

    fn columns(&self, count: usize) -> Matrix {
        Matrix::make(self.rows, count.min(self.columns), |i, j| self.at(i, j))
    }

    fn top(&self, count: usize) -> Matrix {
        Matrix::make(count.min(self.rows), self.columns, |i, j| self.at(i, j))
    }

    /// Each column times a number.
    fn scaled(&self, by: &[Number]) -> Matrix {
        let columns = self.columns.min(by.len());
        Matrix::make(self.rows, columns, |i, j| multiply(self.at(i, j), by[j]))
    }

    fn kept(&self, keep: impl Fn(usize, usize) -> bool) -> Matrix {
        Matrix::make(
            self.rows,
            self.columns,
            |i, j| {
                if keep(i, j) { self.at(i, j) } else { [0.0; 2] }
            },
        )
    }

    /// The Hermitian matrix of which one triangle is given.
    fn mirrored(&self, lower: bool) -> Matrix {
        Matrix::make(self.rows, self.columns, |i, j| {
            if (j <= i) == lower || i == j { self.at(i, j) } else { conjugate(self.at(j, i)) }
        })
    }

    fn near(&self, other: &Matrix, limit: f64) -> bool {
        let tolerance = Tolerance { rtol: 0.0, atol: limit };
        (self.rows, self.columns) == (other.rows, other.columns)
            && self
                .values
                .iter()
                .zip(&other.values)
                .all(|(x, y)| close(x[0], y[0], tolerance) && close(x[1], y[1], tolerance))
    }

    fn near_identity(&self, limit: f64) -> bool {
        let identity = |i, j| [if i == j { 1.0 } else { 0.0 }, 0.0];
        self.near(&Matrix::make(self.rows, self.columns, identity), limit)
    }
}

fn numbers(tensor: &Tensor) -> Vec<Number> {
    match tensor.wide() {
        Wide::Ints(values) => values.into_iter().map(|value| [value as f64, 0.0]).collect(),
        Wide::Floats(values) => values.into_iter().map(|value| [value, 0.0]).collect(),
        Wide::Complex(values) => values,
    }
}

/// The matrices in the last two axes.
fn matrices(tensor: &Tensor) -> Result<Vec<Matrix>, String> {
    let [.., rows, columns] = tensor.shape[..] else { return Err("not a matrix".into()) };
    let values = numbers(tensor);
    let one = |values: &[Number]| Matrix { rows, columns, values: values.to_vec() };
    Ok(values.chunks((rows * columns).max(1)).map(one).collect())
}

/// The vectors in the last axis.
fn rows(tensor: &Tensor) -> Result<Vec<Vec<Number>>, String> {
    let length = *tensor.shape.last().ok_or("not a vector")?;
    Ok(numbers(tensor).chunks(length.max(1)).map(<[Number]>::to_vec).collect())
}

/// Eigenvalues in the order of their parts rounded to four decimals.
fn ordered(values: &[Number]) -> Vec<Number> {
    let rounded = |value: &Number| value.map(|part| (part * 1e4).round_ties_even());
    let mut values = values.to_vec();
    values.sort_by(|x, y| {
        let (x, y) = (rounded(x), rounded(y));
        x[0].total_cmp(&y[0]).then(x[1].total_cmp(&y[1]))
    });
    values
}

fn modulus(value: &Number) -> f64 {
    value[0].hypot(value[1])
}

fn multiply(x: Number, y: Number) -> Number {
    [x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]]
}

fn conjugate(value: Number) -> Number {
    [value[0], -value[1]]
}
