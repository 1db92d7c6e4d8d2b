//! Losses over a vocabulary that never hold a softmax: [`cross_entropy`] of class labels, and
//! [`kl_divergence`] of two rows of logits. The forward pass reads logits once and keeps the
//! log-sum-exp of each row, from which the backward pass, an operation of its own, makes the gradient
//! by reading once and writing once.

mod backward;
mod cases;
mod composed;
mod cpu;
mod forward;
#[cfg(feature = "gpu")]
mod gpu;
mod kl;
#[cfg(test)]
mod tests;

pub use backward::CrossEntropyBackward;
pub(crate) use cases::entries;
pub use forward::CrossEntropy;
pub use kl::{
    KlDivergence, KlDivergenceBackward, KlDivergenceOptions, KlSide, kl_divergence,
    kl_divergence_with,
};

use crate::array::{Array, DType, Meta};
use crate::error::{Error, Result};
use crate::op::{Op, argument_name, expect_contiguous, expect_dtype, expect_float, expect_shape};
use crate::ops::astype;
use crate::ops::indexing::offsets::check_index_dtype;

/// What [`cross_entropy_with`] takes beside logits and labels.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrossEntropyOptions<'a> {
    /// The part of the target that is spread evenly over all classes, in [0, 1).
    pub label_smoothing: f64,
    /// Rows with this label have no loss and no gradient.
    pub ignore_index: Option<i64>,
    /// Rows where this is false, of the labels' shape, have no loss and no gradient.
    pub mask: Option<&'a Array>,
}

/// Cross entropy over the last axis: `logsumexp(logits) - logits[label]`, in `float32`, of the
/// labels' shape. Labels out of range are an error, and so are negative ones, which MLX counts from the end: -100
/// marks padding in other libraries, see [`cross_entropy_with`].
///
/// ```
/// use wootz::{Array, fast};
/// let logits = Array::new([[2.0f32, -1.0], [-1.0, 2.0]])?;
/// let loss = fast::cross_entropy(&logits, &Array::new([0, 1])?)?.to_vec::<f32>()?;
/// assert!((loss[0] - 0.0485873).abs() < 1e-6 && loss[0] == loss[1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn cross_entropy(logits: &Array, targets: &Array) -> Result<Array> {
    cross_entropy_with(logits, targets, &CrossEntropyOptions::default())
}

/// As [`cross_entropy`], with smoothed labels and rows that do not count.
///
/// ```
/// use wootz::{Array, CrossEntropyOptions, cross_entropy_with};
/// let logits = Array::new([[2.0f32, -1.0], [-1.0, 2.0]])?;
/// let options = CrossEntropyOptions { ignore_index: Some(-100), ..Default::default() };
/// let loss = cross_entropy_with(&logits, &Array::new([-100, 1])?, &options)?;
/// assert_eq!(loss.to_vec::<f32>()?[0], 0.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn cross_entropy_with(
    logits: &Array,
    targets: &Array,
    options: &CrossEntropyOptions<'_>,
) -> Result<Array> {
    let op = CrossEntropy(Labels {
        smoothing: options.label_smoothing,
        ignored: options.ignore_index,
        masked: options.mask.is_some(),
    });
    let mut inputs = vec![logits.contiguous()?, targets.contiguous()?];
    if let Some(mask) = options.mask {
        inputs.push(astype(mask, DType::Bool)?.contiguous()?);
    }
    Ok(Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?.remove(0))
}

/// What labels mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Labels {
    smoothing: f64,
    ignored: Option<i64>,
    masked: bool,
}

impl Labels {
    /// Logits, labels and maybe a mask.
    fn inputs(self) -> usize {
        2 + self.masked as usize
    }

    /// Checks logits, labels and mask, which come first, and tells the shape of the rows.
    fn check<'a>(self, op: &dyn Op, inputs: &[&'a Meta]) -> Result<&'a [usize]> {
        if !(0.0..1.0).contains(&self.smoothing) {
            let expected = "a number of [0, 1)";
            return Err(Error::argument(op.name(), "label_smoothing", expected, self.smoothing));
        }
        let rows = expect_logits(op, inputs, 0)?;
        check_index_dtype(op.name(), &argument_name(op, 1), inputs[1].dtype)?;
        if self.masked {
            expect_dtype(op, inputs, 2, DType::Bool)?;
        }
        for index in 1..self.inputs() {
            expect_shape(op, inputs, index, rows)?;
            expect_contiguous(op, inputs, index)?;
        }
        Ok(rows)
    }
}

/// Checks an input of logits and tells the shape of its rows.
fn expect_logits<'a>(op: &dyn Op, inputs: &[&'a Meta], index: usize) -> Result<&'a [usize]> {
    expect_float(op, inputs, index)?;
    expect_contiguous(op, inputs, index)?;
    match inputs[index].shape() {
        [rows @ .., classes] if *classes > 0 => Ok(rows),
        shape => {
            let expected = "one whose last axis has elements";
            Err(Error::shape(op.name(), argument_name(op, index), expected, shape))
        }
    }
}

/// Checks an input with one number for each row of logits.
fn expect_numbers(op: &dyn Op, inputs: &[&Meta], index: usize, rows: &[usize]) -> Result<()> {
    expect_dtype(op, inputs, index, wide(inputs[0].dtype))?;
    expect_shape(op, inputs, index, rows)?;
    expect_contiguous(op, inputs, index)
}

/// The dtype of losses and sums.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Rows and columns of logits.
fn rows_of(logits: &Meta) -> (usize, usize) {
    let columns = logits.shape().last().copied().unwrap_or(1).max(1);
    (logits.size() / columns, columns)
}
