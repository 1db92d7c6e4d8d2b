//! Factorizations of one matrix on the host, in doubles whatever the arrays' dtype is. They share no
//! code with the graph: a matrix goes in, matrices come out.

mod cholesky;
mod complex;
mod eig;
mod eigh;
mod householder;
mod lu;
mod matrix;
mod number;
mod rotation;
mod svd;
#[cfg(test)]
mod tests;

pub(super) use cholesky::cholesky;
pub(super) use complex::Complex;
pub(super) use eig::eig;
pub(super) use eigh::eigh;
pub(super) use householder::qr;
pub(super) use lu::{Lu, solve_triangular};
pub(super) use matrix::Matrix;
pub(super) use number::Number;
pub(super) use svd::{Vectors, svd};

/// Why a matrix has no factors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Failure {
    /// There is no inverse: a pivot, the one of this row, is zero.
    Singular(usize),
    /// Eigenvalues or singular values were not found in a number of steps that is always enough.
    Endless,
}

/// The distance from 1 to the next double.
const EPSILON: f64 = f64::EPSILON;

/// Whether a value beside the diagonal is too small to matter beside its neighbours on it, or in a
/// matrix of this norm.
fn is_negligible(value: f64, neighbours: f64, norm: f64) -> bool {
    value <= EPSILON * neighbours || value <= EPSILON / 8.0 * norm
}
