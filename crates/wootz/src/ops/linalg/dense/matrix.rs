//! A dense row-major matrix.

use std::ops::{Index, IndexMut};

use super::Number;

#[derive(Clone, Debug, PartialEq)]
pub(in crate::ops::linalg) struct Matrix<T> {
    pub(in crate::ops::linalg) rows: usize,
    pub(in crate::ops::linalg) columns: usize,
    pub(in crate::ops::linalg) values: Vec<T>,
}

impl<T: Number> Matrix<T> {
    /// The matrix of these values, row by row.
    pub(in crate::ops::linalg) fn new(rows: usize, columns: usize, values: Vec<T>) -> Matrix<T> {
        debug_assert_eq!(values.len(), rows * columns);
        Matrix { rows, columns, values }
    }

    pub(in crate::ops::linalg) fn zeros(rows: usize, columns: usize) -> Matrix<T> {
        Matrix::new(rows, columns, vec![T::ZERO; rows * columns])
    }

    /// Ones on the diagonal.
    pub(in crate::ops::linalg) fn identity(rows: usize, columns: usize) -> Matrix<T> {
        let mut identity = Matrix::zeros(rows, columns);
        for i in 0..rows.min(columns) {
            identity[(i, i)] = T::ONE;
        }
        identity
    }

    pub(in crate::ops::linalg) fn row(&self, row: usize) -> &[T] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    pub(in crate::ops::linalg) fn row_mut(&mut self, row: usize) -> &mut [T] {
        &mut self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// Two rows at once, the first above the second.
    pub(super) fn two_rows_mut(&mut self, first: usize, second: usize) -> (&mut [T], &mut [T]) {
        let columns = self.columns;
        let (above, below) = self.values.split_at_mut(second * columns);
        (&mut above[first * columns..(first + 1) * columns], &mut below[..columns])
    }

    pub(in crate::ops::linalg) fn transposed(&self) -> Matrix<T> {
        let mut transposed = Matrix::zeros(self.columns, self.rows);
        for i in 0..self.rows {
            for (j, &value) in self.row(i).iter().enumerate() {
                transposed[(j, i)] = value;
            }
        }
        transposed
    }

    /// The conjugates of the transpose.
    pub(in crate::ops::linalg) fn adjoint(&self) -> Matrix<T> {
        let mut adjoint = self.transposed();
        adjoint.values.iter_mut().for_each(|value| *value = value.conj());
        adjoint
    }

    pub(in crate::ops::linalg) fn is_finite(&self) -> bool {
        self.values.iter().all(|value| value.is_finite())
    }

    /// Brings the largest value near 1, so that squares neither overflow nor vanish, and tells the
    /// power of two to multiply results with.
    pub(super) fn normalize(&mut self) -> f64 {
        let largest = self.values.iter().map(|value| value.modulus()).fold(0.0, f64::max);
        if largest == 0.0 || !largest.is_finite() {
            return 1.0;
        }
        let exponent = largest.log2().floor().clamp(-1000.0, 1000.0);
        let by = (-exponent).exp2();
        self.values.iter_mut().for_each(|value| *value = value.scale(by));
        exponent.exp2()
    }
}

impl<T> Index<(usize, usize)> for Matrix<T> {
    type Output = T;

    fn index(&self, (row, column): (usize, usize)) -> &T {
        &self.values[row * self.columns + column]
    }
}

impl<T> IndexMut<(usize, usize)> for Matrix<T> {
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut T {
        &mut self.values[row * self.columns + column]
    }
}
