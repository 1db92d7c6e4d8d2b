//! `block_masked_mm`: a product of matrices of which tiles are left out.

use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::op::{Case, Entry, Tolerance};
use crate::ops::{matmul, multiply, repeat, slice, where_};

pub(super) fn entries() -> Vec<Entry> {
    let truths = Case::new("truths", &[&[5, 7], &[7, 6], &[3, 3], &[3, 4], &[4, 3]], |x| {
        let masks = [2, 3, 4].map(|i| x[i].astype(DType::Bool));
        let [out, lhs, rhs] = masks;
        Ok(vec![block_masked_mm(&x[0], &x[1], 2, Some(&out?), Some(&lhs?), Some(&rhs?))?])
    });
    let truths = (2..5).fold(truths, |case, i| case.fixed(i, DType::U8, 0.0..2.0));
    let factors = Case::new("factors", &[&[2, 5, 4], &[4, 3], &[2, 1]], |x| {
        Ok(vec![block_masked_mm(&x[0], &x[1], 3, Some(&x[2]), None, None)?])
    });
    let rounded = Tolerance::Rounded(2.0, "factors of tiles multiply what was rounded, as in MLX");
    let cases = vec![truths.tolerance(Tolerance::Contraction), factors.tolerance(rounded)];
    vec![Entry { name: "block_masked_mm", cases }]
}

/// The product of matrices `a` (`[…, m, k]`) and `b` (`[…, k, n]`) with masks for tiles of `block_size` by
/// `block_size` elements: of the result, of `a` and of `b`. Where a mask of bools is false the tile counts
/// as zeros, whatever is in it; a mask of numbers is a factor.
///
/// ```
/// use wootz::{Array, DType, block_masked_mm};
/// let x = Array::ones(&[4, 4], DType::F32)?;
/// let mask = Array::new([[true, false], [false, true]])?;
/// // mx.block_masked_mm(x, x, block_size, mask_out=mask)
/// let y = block_masked_mm(&x, &x, 2, Some(&mask), None, None)?;
/// assert_eq!(y.to_vec::<f32>()?[..4], [4.0, 4.0, 0.0, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn block_masked_mm(
    a: &Array,
    b: &Array,
    block_size: usize,
    mask_out: Option<&Array>,
    mask_lhs: Option<&Array>,
    mask_rhs: Option<&Array>,
) -> Result<Array> {
    if block_size == 0 {
        return Err(Error::argument(OP, "block_size", "at least 1", block_size));
    }
    let masked = |name: &str, x: &Array, mask: Option<&Array>| match mask {
        Some(mask) => masked(name, x, mask, block_size),
        None => Ok(x.clone()),
    };
    let product = matmul(&masked("mask_lhs", a, mask_lhs)?, &masked("mask_rhs", b, mask_rhs)?)?;
    masked("mask_out", &product, mask_out)
}

const OP: &str = "block_masked_mm";

/// Matrices with a mask for their tiles. The result has the dtype of `x`.
fn masked(name: &str, x: &Array, mask: &Array, block_size: usize) -> Result<Array> {
    let &[.., rows, columns] = x.shape() else {
        return Err(Error::shape(OP, name, "none for a vector", mask.shape()));
    };
    let tiles = [rows, columns].map(|length| length.div_ceil(block_size));
    let batch = &x.shape()[..x.rank() - 2];
    let lead = mask.rank().checked_sub(2);
    let fits = lead.is_some_and(|lead| {
        lead <= batch.len()
            && mask.shape()[lead..] == tiles
            && (mask.shape()[..lead].iter().zip(&batch[batch.len() - lead..]))
                .all(|(&own, &length)| own == 1 || own == length)
    });
    if !fits {
        let expected = format!("{tiles:?} behind axes that broadcast to {batch:?}");
        return Err(Error::shape(OP, name, expected, mask.shape()));
    }
    let mut spread = mask.clone();
    for axis in [-2, -1] {
        // No more than there is, for a block larger than the matrix.
        let length = if axis == -2 { rows } else { columns };
        spread = repeat(&spread, block_size.min(length.max(1)), axis)?;
    }
    let mut stop = spread.shape().to_vec();
    let last = stop.len();
    stop[last - 2..].copy_from_slice(&[rows, columns]);
    let spread = slice(&spread, &vec![0; last], &stop, &vec![1; last])?;
    match mask.dtype() {
        DType::Bool => where_(&spread, x, 0.0)?.astype(x.dtype()),
        _ => multiply(x, spread.astype(x.dtype())?),
    }
}
