//! Gaussian elimination with row exchanges, and triangular systems.

use super::{Failure, Matrix, Number};

/// `A = P L U`.
pub(in crate::ops::linalg) struct Lu<T> {
    /// `U` on and above the diagonal, `L` without its ones below it.
    pub(in crate::ops::linalg) factors: Matrix<T>,
    /// The row that each row was exchanged with, one after the other.
    pub(in crate::ops::linalg) pivots: Vec<u32>,
}

impl<T: Number> Lu<T> {
    /// The factors of any matrix; a singular one has zeros on the diagonal of `U`.
    pub(in crate::ops::linalg) fn new(mut a: Matrix<T>) -> Lu<T> {
        let mut pivots = Vec::with_capacity(a.rows.min(a.columns));
        for k in 0..a.rows.min(a.columns) {
            let mut pivot = k;
            for i in k + 1..a.rows {
                if a[(i, k)].modulus() > a[(pivot, k)].modulus() {
                    pivot = i;
                }
            }
            pivots.push(pivot as u32);
            if pivot != k {
                let (upper, lower) = a.two_rows_mut(k, pivot);
                upper.swap_with_slice(lower);
            }
            if a[(k, k)] == T::ZERO {
                continue;
            }
            let inverse = a[(k, k)].reciprocal();
            for i in k + 1..a.rows {
                let (above, row) = a.two_rows_mut(k, i);
                let factor = row[k] * inverse;
                row[k] = factor;
                if factor != T::ZERO {
                    subtract_multiple(&mut row[k + 1..], factor, &above[k + 1..]);
                }
            }
        }
        Lu { factors: a, pivots }
    }

    /// For each row of the matrix, the row of `L U` that it is.
    pub(in crate::ops::linalg) fn order(&self) -> Vec<u32> {
        let mut of_product: Vec<usize> = (0..self.factors.rows).collect();
        for (k, &pivot) in self.pivots.iter().enumerate() {
            of_product.swap(k, pivot as usize);
        }
        let mut order = vec![0; of_product.len()];
        for (place, &row) in of_product.iter().enumerate() {
            order[row] = place as u32;
        }
        order
    }

    /// The diagonal of `U`, and whether the number of exchanges is odd.
    pub(in crate::ops::linalg) fn diagonal(&self) -> (Vec<T>, bool) {
        let values = (0..self.pivots.len()).map(|i| self.factors[(i, i)]).collect();
        let exchanged =
            self.pivots.iter().enumerate().filter(|(k, pivot)| *k != **pivot as usize).count();
        (values, exchanged % 2 == 1)
    }

    /// `X` of `A X = B`.
    pub(in crate::ops::linalg) fn solve(&self, mut b: Matrix<T>) -> Result<Matrix<T>, Failure> {
        for (k, &pivot) in self.pivots.iter().enumerate() {
            if pivot as usize != k {
                let (upper, lower) = b.two_rows_mut(k, pivot as usize);
                upper.swap_with_slice(lower);
            }
        }
        substitute(&self.factors, &mut b, false, true)?;
        substitute(&self.factors, &mut b, true, false)?;
        Ok(b)
    }
}

/// `X` of `A X = B`, reading one triangle of `A`.
pub(in crate::ops::linalg) fn solve_triangular<T: Number>(
    a: &Matrix<T>,
    mut b: Matrix<T>,
    upper: bool,
) -> Result<Matrix<T>, Failure> {
    substitute(a, &mut b, upper, false)?;
    Ok(b)
}

/// Solves a triangular system in place; the diagonal may be known to be ones.
fn substitute<T: Number>(
    a: &Matrix<T>,
    b: &mut Matrix<T>,
    upper: bool,
    ones: bool,
) -> Result<(), Failure> {
    let n = a.rows;
    for step in 0..n {
        let i = if upper { n - 1 - step } else { step };
        let known = if upper { i + 1..n } else { 0..i };
        for j in known {
            let factor = a[(i, j)];
            if factor == T::ZERO {
                continue;
            }
            match i < j {
                true => {
                    let (row, other) = b.two_rows_mut(i, j);
                    subtract_multiple(row, factor, other);
                }
                false => {
                    let (other, row) = b.two_rows_mut(j, i);
                    subtract_multiple(row, factor, other);
                }
            }
        }
        if ones {
            continue;
        }
        if a[(i, i)] == T::ZERO {
            return Err(Failure::Singular(i));
        }
        let inverse = a[(i, i)].reciprocal();
        b.row_mut(i).iter_mut().for_each(|value| *value = *value * inverse);
    }
    Ok(())
}

fn subtract_multiple<T: Number>(row: &mut [T], factor: T, other: &[T]) {
    for (value, &other) in row.iter_mut().zip(other) {
        *value -= factor * other;
    }
}
