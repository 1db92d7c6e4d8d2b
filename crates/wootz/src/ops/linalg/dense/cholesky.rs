//! The triangular square root of a positive semi-definite matrix.

use super::{Matrix, Number};

/// The lower triangle `L` with `A = L Lᴴ`, reading the lower triangle of `A`. If `A` is not positive
/// semi-definite, there are NaNs in it.
pub(in crate::ops::linalg) fn cholesky<T: Number>(a: &Matrix<T>) -> Matrix<T> {
    let n = a.rows;
    let mut l: Matrix<T> = Matrix::zeros(n, n);
    for i in 0..n {
        for j in 0..=i {
            let products = l.row(i)[..j].iter().zip(&l.row(j)[..j]);
            let sum = products.fold(a[(i, j)], |sum, (&x, &y)| sum - x * y.conj());
            l[(i, j)] = match i == j {
                true => T::from_real(sum.re().sqrt()),
                // Of a semi-definite matrix nothing is left below a pivot of zero.
                false if l[(j, j)] == T::ZERO && sum == T::ZERO => T::ZERO,
                false => sum.scale(1.0 / l[(j, j)].re()),
            };
        }
    }
    l
}
