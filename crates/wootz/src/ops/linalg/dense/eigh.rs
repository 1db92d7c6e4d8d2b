//! Eigenvalues of Hermitian matrices: reflections make the matrix tridiagonal, and shifted QR steps
//! make that diagonal (Golub and Van Loan, Matrix Computations, 8.3).

use super::householder::{Reflector, product};
use super::rotation::Rotation;
use super::{Failure, Matrix, Number, is_negligible};

/// Eigenvalues in rising order and, if wanted, eigenvectors as columns, reading one triangle of a
/// matrix of finite values.
pub(in crate::ops::linalg) fn eigh<T: Number>(
    a: &Matrix<T>,
    upper: bool,
    vectors: bool,
) -> Result<(Vec<f64>, Matrix<T>), Failure> {
    let n = a.rows;
    let mut a = mirrored(a, upper);
    let scale = a.normalize();
    let mut beside = Vec::with_capacity(n);
    let mut reflectors = Vec::with_capacity(n);
    for k in 0..n.saturating_sub(1) {
        let column = (k + 1..n).map(|i| a[(i, k)]).collect();
        let (reflector, value) = Reflector::zeroing(k + 1, column);
        reflector.on_rows(&mut a, k + 1, true);
        reflector.on_columns(&mut a, k + 1);
        beside.push(value);
        reflectors.push(reflector);
    }
    let mut values: Vec<f64> = (0..n).map(|k| a[(k, k)].re()).collect();
    // Eigenvectors as rows, which lie together in memory.
    let mut q = match vectors {
        true => product(&reflectors, n, n).transposed(),
        false => Matrix::zeros(n, 0),
    };
    diagonalize(&mut values, &mut beside, &mut q)?;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    let columns = order.iter().flat_map(|&k| q.row(k).iter().copied()).collect();
    let columns = Matrix::new(n, q.columns, columns).transposed();
    Ok((order.iter().map(|&k| values[k] * scale).collect(), columns))
}

/// The Hermitian matrix of which one triangle is given.
fn mirrored<T: Number>(a: &Matrix<T>, upper: bool) -> Matrix<T> {
    let mut full = a.clone();
    for i in 0..a.rows {
        full[(i, i)] = T::from_real(a[(i, i)].re());
        for j in 0..i {
            match upper {
                true => full[(i, j)] = a[(j, i)].conj(),
                false => full[(j, i)] = a[(i, j)].conj(),
            }
        }
    }
    full
}

/// Makes a tridiagonal matrix with `d` on and `e` beside its diagonal diagonal.
fn diagonalize<T: Number>(d: &mut [f64], e: &mut [f64], q: &mut Matrix<T>) -> Result<(), Failure> {
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
        step(d, e, first, last, q);
    }
    Ok(())
}

/// A QR step with Wilkinson's shift on the block from `first` to `last`.
fn step<T: Number>(d: &mut [f64], e: &mut [f64], first: usize, last: usize, q: &mut Matrix<T>) {
    let (half, beside) = ((d[last - 1] - d[last]) / 2.0, e[last - 1]);
    let shift = d[last] - beside * beside / (half + half.hypot(beside).copysign(half));
    let (mut x, mut y) = (d[first] - shift, e[first]);
    for k in first..last {
        let (rotation, r) = Rotation::zeroing(x, y);
        if k > first {
            e[k - 1] = r;
        }
        let Rotation { c, s } = rotation;
        let (upper, middle, lower) = (d[k], e[k], d[k + 1]);
        d[k] = c * c * upper + 2.0 * c * s * middle + s * s * lower;
        d[k + 1] = s * s * upper - 2.0 * c * s * middle + c * c * lower;
        e[k] = c * s * (lower - upper) + (c * c - s * s) * middle;
        if k + 1 < last {
            x = e[k];
            (y, e[k + 1]) = rotation.of(0.0, e[k + 1]);
        }
        rotation.rows(q, k, k + 1);
    }
}
