//! Reflections that put zeros below or beside a diagonal, as LAPACK chooses them, and the QR
//! factorization made of them.

use super::{Matrix, Number};

/// What is smaller is nothing beside the matrix, whose largest value is about 1; and its square would not be a
/// number of full precision.
const NOTHING: f64 = 1e-140;

/// `I - tau v vᴴ`, where `v` begins with 1 and belongs to the rows or columns from `first` on.
pub(super) struct Reflector<T> {
    first: usize,
    v: Vec<T>,
    tau: T,
}

impl<T: Number> Reflector<T> {
    /// The reflector `H` whose adjoint takes `x` to a real multiple of the first unit vector, and that
    /// number. Its sign is the opposite of the first value's, so that nothing cancels.
    pub(super) fn zeroing(first: usize, mut x: Vec<T>) -> (Reflector<T>, f64) {
        if x.iter().all(|value| value.modulus() < NOTHING) {
            return (Reflector { first, v: Vec::new(), tau: T::ZERO }, 0.0);
        }
        let alpha = x.first().copied().unwrap_or(T::ZERO);
        let rest = x.iter().skip(1).map(|value| value.square_modulus()).sum::<f64>();
        if rest == 0.0 && alpha == T::from_real(alpha.re()) {
            return (Reflector { first, v: Vec::new(), tau: T::ZERO }, alpha.re());
        }
        let norm = (rest + alpha.square_modulus()).sqrt();
        let beta = -norm.copysign(alpha.re());
        let tau = (T::from_real(beta) - alpha).scale(1.0 / beta);
        let by = (alpha - T::from_real(beta)).reciprocal();
        x.iter_mut().for_each(|value| *value = *value * by);
        if let Some(one) = x.first_mut() {
            *one = T::ONE;
        }
        (Reflector { first, v: x, tau }, beta)
    }

    /// `H A`, or with `adjoint` `Hᴴ A`, in the columns from `column` on.
    pub(super) fn on_rows(&self, a: &mut Matrix<T>, column: usize, adjoint: bool) {
        if self.v.is_empty() || column >= a.columns {
            return;
        }
        let tau = if adjoint { self.tau.conj() } else { self.tau };
        let mut sums = vec![T::ZERO; a.columns - column];
        for (i, v) in self.v.iter().enumerate() {
            let v = v.conj();
            for (sum, &value) in sums.iter_mut().zip(&a.row(self.first + i)[column..]) {
                *sum += v * value;
            }
        }
        for (i, &v) in self.v.iter().enumerate() {
            let v = v * tau;
            for (value, &sum) in a.row_mut(self.first + i)[column..].iter_mut().zip(&sums) {
                *value -= v * sum;
            }
        }
    }

    /// `A H`, in the rows from `row` on.
    pub(super) fn on_columns(&self, a: &mut Matrix<T>, row: usize) {
        if self.v.is_empty() {
            return;
        }
        for i in row..a.rows {
            let values = &mut a.row_mut(i)[self.first..];
            let mut sum = T::ZERO;
            for (&value, &v) in values.iter().zip(&self.v) {
                sum += value * v;
            }
            let sum = sum * self.tau;
            for (value, v) in values.iter_mut().zip(&self.v) {
                *value -= sum * v.conj();
            }
        }
    }
}

/// The product of reflectors, its first columns.
pub(super) fn product<T: Number>(
    reflectors: &[Reflector<T>],
    rows: usize,
    columns: usize,
) -> Matrix<T> {
    let mut q = Matrix::identity(rows, columns);
    for reflector in reflectors.iter().rev() {
        // Columns before are still those of the identity, and have zeros where it reflects.
        reflector.on_rows(&mut q, reflector.first.min(columns), false);
    }
    q
}

/// `A = Q R` with as few columns of `Q` as there can be.
pub(in crate::ops::linalg) fn qr<T: Number>(mut a: Matrix<T>) -> (Matrix<T>, Matrix<T>) {
    let (rows, columns, count) = (a.rows, a.columns, a.rows.min(a.columns));
    let scale = a.normalize();
    let mut reflectors = Vec::with_capacity(count);
    for k in 0..count {
        let column = (k..rows).map(|i| a[(i, k)]).collect();
        let (reflector, beta) = Reflector::zeroing(k, column);
        reflector.on_rows(&mut a, k + 1, true);
        a[(k, k)] = T::from_real(beta);
        reflectors.push(reflector);
    }
    let mut r = Matrix::zeros(count, columns);
    for i in 0..count {
        for j in i..columns {
            r[(i, j)] = a[(i, j)].scale(scale);
        }
    }
    (product(&reflectors, rows, count), r)
}
