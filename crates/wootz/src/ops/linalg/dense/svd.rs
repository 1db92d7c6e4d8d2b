//! Singular values: reflections make the matrix bidiagonal, and shifted QR steps make that diagonal
//! (Golub and Van Loan, Matrix Computations, 8.6).

use super::householder::{Reflector, product};
use super::rotation::Rotation;
use super::{EPSILON, Failure, Matrix, Number, is_negligible};

/// `A = U diag(s) Vᴴ` of a matrix of finite values.
pub(in crate::ops::linalg) struct Svd<T> {
    pub(in crate::ops::linalg) u: Matrix<T>,
    /// In falling order.
    pub(in crate::ops::linalg) s: Vec<f64>,
    pub(in crate::ops::linalg) vh: Matrix<T>,
}

/// Which singular vectors are wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ops::linalg) enum Vectors {
    None,
    /// Those of the singular values.
    Thin,
    /// So many that `U` and `V` are square.
    Full,
}

pub(in crate::ops::linalg) fn svd<T: Number>(
    mut a: Matrix<T>,
    vectors: Vectors,
) -> Result<Svd<T>, Failure> {
    if a.rows < a.columns {
        let Svd { u, s, vh } = svd(a.adjoint(), vectors)?;
        return Ok(Svd { u: vh.adjoint(), s, vh: u.adjoint() });
    }
    let (rows, columns) = (a.rows, a.columns);
    let scale = a.normalize();
    let (mut s, mut above) = (Vec::with_capacity(columns), Vec::with_capacity(columns));
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for k in 0..columns {
        let column = (k..rows).map(|i| a[(i, k)]).collect();
        let (reflector, value) = Reflector::zeroing(k, column);
        reflector.on_rows(&mut a, k + 1, true);
        s.push(value);
        left.push(reflector);
        if k + 1 < columns {
            let row = a.row(k)[k + 1..].iter().map(|value| value.conj()).collect();
            let (reflector, value) = Reflector::zeroing(k + 1, row);
            reflector.on_columns(&mut a, k + 1);
            above.push(value);
            right.push(reflector);
        }
    }
    // Singular vectors as rows, which lie together in memory.
    let (mut u, mut v) = match vectors {
        Vectors::None => (Matrix::zeros(columns, 0), Matrix::zeros(columns, 0)),
        Vectors::Thin => (product(&left, rows, columns), product(&right, columns, columns)),
        Vectors::Full => (product(&left, rows, rows), product(&right, columns, columns)),
    };
    if vectors != Vectors::None {
        (u, v) = (u.transposed(), v.transposed());
    }
    diagonalize(&mut s, &mut above, &mut u, &mut v)?;
    for (value, k) in s.iter_mut().zip(0..) {
        if *value < 0.0 {
            *value = -*value;
            v.row_mut(k).iter_mut().for_each(|value| *value = -*value);
        }
        *value *= scale;
    }
    let mut order: Vec<usize> = (0..columns).collect();
    order.sort_by(|&i, &j| s[j].total_cmp(&s[i]));
    let sorted = order.iter().map(|&k| s[k]).collect();
    let vh = arranged(&v, &order);
    let vh = Matrix { values: vh.values.into_iter().map(Number::conj).collect(), ..vh };
    order.extend(columns..u.rows);
    Ok(Svd { u: arranged(&u, &order).transposed(), s: sorted, vh })
}

/// The rows in another order.
fn arranged<T: Number>(matrix: &Matrix<T>, order: &[usize]) -> Matrix<T> {
    let values = order.iter().flat_map(|&row| matrix.row(row).iter().copied()).collect();
    Matrix::new(order.len(), matrix.columns, values)
}

/// Makes a bidiagonal matrix with `d` on and `e` above its diagonal diagonal.
fn diagonalize<T: Number>(
    d: &mut [f64],
    e: &mut [f64],
    u: &mut Matrix<T>,
    v: &mut Matrix<T>,
) -> Result<(), Failure> {
    let norm = d.iter().chain(e.iter()).fold(0.0, |norm: f64, value| norm.max(value.abs()));
    let mut last = d.len().saturating_sub(1);
    let mut steps = 100 * d.len();
    while last > 0 {
        for k in 0..last {
            if is_negligible(e[k].abs(), d[k].abs() + d[k + 1].abs(), norm) {
                e[k] = 0.0;
            }
        }
        if e[last - 1] == 0.0 {
            last -= 1;
            continue;
        }
        steps = steps.checked_sub(1).ok_or(Failure::Endless)?;
        let first = (0..last).rev().find(|&k| k == 0 || e[k - 1] == 0.0).unwrap_or(0);
        let zero = (first..=last).find(|&k| d[k].abs() <= EPSILON / 8.0 * norm);
        match zero {
            Some(k) if k == last => empty_column(d, e, first, last, v),
            Some(k) => empty_row(d, e, k, last, u),
            None => step(d, e, first, last, u, v),
        }
    }
    Ok(())
}

/// The last value of the diagonal is zero: rotates what is above it away.
fn empty_column<T: Number>(
    d: &mut [f64],
    e: &mut [f64],
    first: usize,
    last: usize,
    v: &mut Matrix<T>,
) {
    d[last] = 0.0;
    let mut above = std::mem::take(&mut e[last - 1]);
    for k in (first..last).rev() {
        let (rotation, r) = Rotation::zeroing(d[k], above);
        d[k] = r;
        if k > first {
            (e[k - 1], above) = rotation.of(e[k - 1], 0.0);
        }
        rotation.rows(v, k, last);
    }
}

/// A value of the diagonal is zero: rotates what is beside it away.
fn empty_row<T: Number>(d: &mut [f64], e: &mut [f64], zero: usize, last: usize, u: &mut Matrix<T>) {
    d[zero] = 0.0;
    let mut beside = std::mem::take(&mut e[zero]);
    for k in zero + 1..=last {
        let (rotation, r) = Rotation::zeroing(d[k], beside);
        d[k] = r;
        if k < last {
            (e[k], beside) = rotation.of(e[k], 0.0);
        }
        rotation.rows(u, k, zero);
    }
}

/// A QR step with Wilkinson's shift on the block from `first` to `last`.
fn step<T: Number>(
    d: &mut [f64],
    e: &mut [f64],
    first: usize,
    last: usize,
    u: &mut Matrix<T>,
    v: &mut Matrix<T>,
) {
    let before = if last > first + 1 { e[last - 2] } else { 0.0 };
    let (p, q) = (d[last - 1], e[last - 1]);
    let (corner, beside) = (d[last] * d[last] + q * q, p * q);
    let half = (p * p + before * before - corner) / 2.0;
    let shift = corner - beside * beside / (half + half.hypot(beside).copysign(half));
    let (mut x, mut y) = (d[first] * d[first] - shift, d[first] * e[first]);
    for k in first..last {
        let (rotation, r) = Rotation::zeroing(x, y);
        if k > first {
            e[k - 1] = r;
        }
        (x, e[k]) = rotation.of(d[k], e[k]);
        (y, d[k + 1]) = rotation.of(0.0, d[k + 1]);
        rotation.rows(v, k, k + 1);
        let (rotation, r) = Rotation::zeroing(x, y);
        d[k] = r;
        (x, d[k + 1]) = rotation.of(e[k], d[k + 1]);
        if k + 1 < last {
            (y, e[k + 1]) = rotation.of(0.0, e[k + 1]);
        }
        rotation.rows(u, k, k + 1);
    }
    e[last - 1] = x;
}
