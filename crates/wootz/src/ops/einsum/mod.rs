//! `einsum`: sums of products over named axes, contracted pair by pair as products of matrices.

mod contract;
mod path;
mod subscripts;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::fmt;

use self::path::Path;
use self::subscripts::{Asked, Equation};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::op::{Case, Entry, Tolerance};

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    let case = |subscripts: &'static str, shapes: &[&[usize]]| {
        Case::new(subscripts, shapes, move |x| Ok(vec![einsum(subscripts, x)?]))
            .tolerance(Tolerance::Contraction)
    };
    let cases = vec![
        case("ij,jk->ik", &[&[3, 5], &[5, 7]]),
        case("...ij,...kj->...ki", &[&[2, 1, 3, 4], &[3, 2, 4]]),
        case("aab,cbc->ca", &[&[2, 2, 5], &[3, 5, 3]]),
        case("ij,ij", &[&[3, 5], &[1, 5]]),
        case("b...a->...b", &[&[3, 2, 4]]),
        // In narrow dtypes what pairs come to is rounded before it is multiplied again.
        case("ij,jk,kl->il", &[&[2, 3], &[3, 4], &[4, 2]]).dtypes(&[DType::F32]),
        case("eb,cb,fb->cef", &[&[2, 5], &[3, 5], &[4, 5]]).dtypes(&[DType::F32]),
    ];
    vec![Entry { name: "einsum", cases }]
}

/// Sums of products over named axes, as MLX's `mx.einsum` has it: each axis of an operand is a letter, an
/// axis that the output lacks is summed over, and `...` stands for the axes that are not named. Without
/// `->` the output has the letters that occur once, in the order of the alphabet.
///
/// Several operands are contracted in the order that [`einsum_path`] tells, and pairs as products of
/// matrices: what is summed over must be floats, as for [`matmul`](crate::matmul()).
///
/// ```
/// use wootz::{Array, einsum};
/// let a = Array::new([[1.0f32, 2.0], [3.0, 4.0]])?;
/// let x = Array::new([1.0f32, 10.0])?;
/// // mx.einsum("ij,j->i", a, x)
/// assert_eq!(einsum("ij,j->i", &[&a, &x])?.to_vec::<f32>()?, [21.0, 43.0]);
/// // mx.einsum("ii", a)
/// assert_eq!(einsum("ii", &[&a])?.item::<f32>()?, 5.0);
/// // mx.einsum("i,j->ij", x, x)
/// assert_eq!(einsum("i,j->ij", &[&x, &x])?.to_vec::<f32>()?, [1.0, 10.0, 10.0, 100.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn einsum(subscripts: &str, operands: &[impl Borrow<Array>]) -> Result<Array> {
    let asked = Asked { op: "einsum", subscripts };
    let equation = Equation::new(asked, &shapes(operands))?;
    let path = Path::new(&equation);
    let operands = operands.iter().map(|operand| operand.borrow().clone()).collect();
    contract::contract(asked, &equation, &path.steps, operands)
}

/// The order in which [`einsum`] contracts its operands, and what that costs. Nothing is computed.
///
/// ```
/// use wootz::{Array, DType, einsum_path};
/// let x = |shape: &[usize]| Array::zeros(shape, DType::F32);
/// // mx.einsum_path("ij,jk,kl->il", a, b, c)
/// let path = einsum_path("ij,jk,kl->il", &[x(&[2, 3])?, x(&[3, 4])?, x(&[4, 5])?])?;
/// assert_eq!(path.contractions, [[1, 2], [0, 1]]);
/// assert_eq!((path.naive_flops, path.optimized_flops), (360, 180));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn einsum_path(subscripts: &str, operands: &[impl Borrow<Array>]) -> Result<EinsumPath> {
    let equation = Equation::new(Asked { op: "einsum_path", subscripts }, &shapes(operands))?;
    let Path { steps, naive, optimized } = Path::new(&equation);
    Ok(EinsumPath {
        subscripts: subscripts.to_string(),
        contractions: steps.into_iter().map(|step| step.positions).collect(),
        naive_scaling: naive.scaling,
        optimized_scaling: optimized.scaling,
        naive_flops: naive.flops,
        optimized_flops: optimized.flops,
    })
}

fn shapes(operands: &[impl Borrow<Array>]) -> Vec<&[usize]> {
    operands.iter().map(|operand| operand.borrow().shape()).collect()
}

/// What [`einsum_path`] tells. Printed, it is MLX's text.
#[derive(Clone, Debug, PartialEq)]
pub struct EinsumPath {
    /// The subscripts.
    pub subscripts: String,
    /// Which operands are contracted together, by their places among those that are left; the result
    /// is put behind them.
    pub contractions: Vec<Vec<usize>>,
    /// Axes of a contraction of all operands at once.
    pub naive_scaling: usize,
    /// The most axes that a contraction of the path has.
    pub optimized_scaling: usize,
    /// Operations of a contraction of all operands at once.
    pub naive_flops: u128,
    /// Operations of the path.
    pub optimized_flops: u128,
}

impl fmt::Display for EinsumPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  Complete contraction:  {}", self.subscripts)?;
        writeln!(f, "         Naive scaling:  {}", self.naive_scaling)?;
        writeln!(f, "     Optimized scaling:  {}", self.optimized_scaling)?;
        writeln!(f, "      Naive FLOP count:  {}", self.naive_flops)?;
        writeln!(f, "  Optimized FLOP count:  {}", self.optimized_flops)
    }
}
