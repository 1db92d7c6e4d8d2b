//! MLX's `mx.linalg`: norms, inverses, systems of equations and factorizations of the matrices in the last
//! two axes.
//!
//! Factorizations take `float32` and `float64`, and `svd`, `eigh` and `eig` also `complex64`. They are
//! computed on the host, in doubles, one matrix of a batch beside the other; arrays of a GPU go there and back. Gradients are made of operations, so that
//! they have gradients again.
//!
//! ```
//! use wootz::{Array, linalg};
//! let a = Array::new([[2.0f32, 1.0], [1.0, 3.0]])?;
//! let x = linalg::solve(&a, &Array::new([3.0f32, 4.0])?)?;
//! assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0]);
//! # Ok::<(), wootz::Error>(())
//! ```

mod cases;
mod cholesky;
mod dense;
mod determinant;
mod eig;
mod eigh;
mod host;
mod inverse;
mod lu;
mod norm;
mod parts;
mod qr;
mod solve;
mod svd;
#[cfg(test)]
mod tests;

pub(crate) use cases::entries;
pub use cholesky::cholesky;
pub use determinant::{det, slogdet};
pub use eig::{eig, eigvals};
pub use eigh::{Triangle, eigh, eigvalsh};
pub use inverse::{cholesky_inv, inv, pinv, tri_inv};
pub use lu::{lu, lu_factor};
pub use norm::{NormOrder, cross, norm};
pub use qr::qr;
pub use solve::{solve, solve_triangular};
pub use svd::{svd, svdvals};
