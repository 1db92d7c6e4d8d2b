//! Normalisation over the last axis: `rms_norm`, `layer_norm` and `l2_norm`, with their backward
//! kernels as operations of their own, and norms of a sum, which save a pass over memory; and
//! `group_norm`, over the positions of a sample, with kernels of its own. Everything accumulates in `float32`, or in `float64` for `float64`.
//!
//! On a GPU rows of up to 32,768 elements, and those of a gradient of up to 8,192 (16,384 in `rms_norm_backward_dx`), are read
//! once, unless it has fewer than 512 threads in a workgroup; longer ones are read again for each sum over them.
//!
//! All but that are one kernel: layer_norm is rms_norm of rows whose mean was taken away, and l2_norm has the
//! sum of the squares for their mean.

mod add_norm;
mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
mod group_norm;
mod l2_norm;
mod layer_norm;
mod norm_add;
mod rms_norm;
mod rows;
#[cfg(test)]
mod tests;

pub use add_norm::*;
pub use group_norm::*;
pub use l2_norm::*;
pub use layer_norm::*;
pub use norm_add::*;
pub use rms_norm::*;

use crate::array::{Array, DType, Meta};
use crate::error::{Error, Result};
use crate::op::{
    Entry, Metas, Op, argument_name, expect_contiguous, expect_dtype, expect_float, expect_shape,
};
use crate::ops::reshape;

/// Which norm a kernel computes, and where its inputs are: `x`, what is added to it, the weight of a norm before that,
/// the weight, the bias; in a gradient `x`, the weight, `dy`, and what is added to the gradient of `x`.
#[derive(Clone, Copy, Debug, Default)]
struct Norm {
    centred: bool,
    /// Squares are summed, not averaged.
    summed: bool,
    added: bool,
    /// `x` is normalised with this eps, and a weight, before the sum.
    first: Option<f32>,
    /// The sum is all that is wanted.
    only_sum: bool,
    weighted: bool,
    biased: bool,
    /// In a gradient: `x` is used beside its norm, too, and the gradient of that is added to the norm's before it is
    /// rounded.
    direct: bool,
    eps: f32,
}

impl Norm {
    /// What sums over a row are divided by.
    fn count(self, columns: usize) -> usize {
        if self.summed { 1 } else { columns }
    }

    #[cfg(feature = "gpu")]
    fn added(self) -> Option<usize> {
        self.added.then_some(1)
    }

    fn first_weight(self) -> Option<usize> {
        self.first.map(|_| 2)
    }

    fn weight(self) -> Option<usize> {
        self.weighted.then_some(1 + self.added as usize + self.first.is_some() as usize)
    }

    fn bias(self) -> Option<usize> {
        let before = self.added as usize + self.first.is_some() as usize;
        self.biased.then_some(1 + before + self.weighted as usize)
    }

    fn cotangent(self) -> usize {
        1 + self.weighted as usize
    }

    fn direct(self) -> Option<usize> {
        self.direct.then_some(self.cotangent() + 1)
    }

    /// How many inputs a gradient has.
    fn backward_inputs(self) -> usize {
        self.cotangent() + 1 + self.direct as usize
    }

    /// Inputs whose memory the gradient of `x` may take.
    fn backward_aliases(self) -> &'static [(usize, usize)] {
        match (self.weighted, self.direct) {
            (true, true) => &[(0, 0), (2, 0), (3, 0)],
            (true, false) => &[(0, 0), (2, 0)],
            (false, true) => &[(0, 0), (1, 0), (2, 0)],
            (false, false) => &[(0, 0), (1, 0)],
        }
    }

    /// How many gradients are sums over the rows.
    fn sums(self) -> usize {
        self.weighted as usize + self.biased as usize
    }
}

/// The shapes of cases. Of one, rows have 512 threads on a GPU, and those of a gradient are too long to be kept in
/// registers; of one all are. The last has more rows than there are blocks of rows on any device.
const SHAPES: [&[usize]; 12] = [
    &[3, 5],
    &[7],
    &[4, 1],
    &[2, 257],
    &[2, 3, 16],
    &[0, 4],
    &[3, 1025],
    &[2, 1030],
    &[2, 8204],
    &[1, 32_774],
    &[130, 6],
    &[515, 3],
];

/// Rows in which a GPU's bytes are counted: so many that what they share is little. A gradient's are
/// shared by blocks of rows.
const MANY: [usize; 2] = [64, 256];
const MANY_BLOCKS: [[usize; 2]; 2] = [[8192, 8], [2048, 32]];
/// As wide as the rows of large models, and the longest rows that are read once. In a gradient, blocks of two rows.
const WIDE: [usize; 2] = [32, 5120];
const WIDEST: [usize; 2] = [2, 32_768];
const WIDE_BLOCKS: [usize; 2] = [66, 5120];

/// What a gradient of wide rows moves at best, in elements of a dtype: `arrays` of them, and what each block leaves
/// behind for each of `sums`, in `float32`, written and read.
fn wide_gradient_moves(arrays: usize, sums: usize, dtype: DType) -> usize {
    let [rows, columns] = WIDE_BLOCKS;
    columns * (arrays * rows + 2 * sums * blocks_of(rows, true).0 * 4 / dtype.size())
}

/// The dtypes in which wide rows are counted.
const WIDE_DTYPES: [&[DType]; 2] = [&[DType::F32], &[DType::BF16]];

/// Cases of all operations.
pub(crate) fn entries() -> Vec<Entry> {
    let mut entries = rms_norm::entries();
    entries.extend(layer_norm::entries());
    entries.extend(l2_norm::entries());
    entries.extend(add_norm::entries());
    entries.extend(norm_add::entries());
    entries.extend(group_norm::entries());
    entries
}

/// The dtype that sums are kept in.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// One value for each row as a last axis of length 1.
fn as_column(r: &Array) -> Result<Array> {
    let mut shape = r.shape().to_vec();
    shape.push(1);
    reshape(r, &shape)
}

fn columns_of(x: &Array) -> usize {
    x.shape().last().copied().unwrap_or(1)
}

/// How many blocks the rows are cut into for the weight's gradient, and how many rows a block has.
/// Only the shape decides, so that the order of the sum never changes. On a GPU a block has up to 32 rows
/// while there are 64 blocks, so that what blocks leave behind is little beside the rows.
fn blocks_of(rows: usize, gpu: bool) -> (usize, usize) {
    let rows_per_block = match gpu {
        true => rows.div_ceil(256).max(rows.div_ceil(64).min(32)),
        false => rows.div_ceil(64),
    };
    let rows_per_block = rows_per_block.max(1);
    (rows.div_ceil(rows_per_block), rows_per_block)
}

/// Scratch memory for `sums` gradients of a row's length that the blocks find.
fn partials_bytes(x: &Meta, sums: usize, gpu: bool) -> usize {
    let columns = x.shape().last().copied().unwrap_or(1);
    let rows = x.size() / columns.max(1);
    sums * blocks_of(rows, gpu).0.max(1) * columns * wide(x.dtype).size()
}

/// Checks the first input, `x`, and tells its columns.
fn expect_rows(op: &dyn Op, inputs: &[&Meta]) -> Result<usize> {
    expect_float(op, inputs, 0)?;
    expect_contiguous(op, inputs, 0)?;
    inputs[0].shape().last().copied().ok_or_else(|| {
        Error::shape(op.name(), argument_name(op, 0), "one of at least one axis", &[])
    })
}

/// Checks an input that has one value for each column: a weight or a bias.
fn expect_row(op: &dyn Op, inputs: &[&Meta], index: usize, columns: usize) -> Result<()> {
    expect_dtype(op, inputs, index, inputs[0].dtype)?;
    expect_shape(op, inputs, index, &[columns])?;
    expect_contiguous(op, inputs, index)
}

/// Checks an input that has the shape and dtype of `x`.
fn expect_like_x(op: &dyn Op, inputs: &[&Meta], index: usize) -> Result<()> {
    expect_dtype(op, inputs, index, inputs[0].dtype)?;
    expect_shape(op, inputs, index, inputs[0].shape())?;
    expect_contiguous(op, inputs, index)
}

/// Checks `r`, which has one value for each row of `x`.
fn expect_factors(op: &dyn Op, inputs: &[&Meta], index: usize) -> Result<()> {
    let shape = inputs[0].shape();
    expect_dtype(op, inputs, index, wide(inputs[0].dtype))?;
    expect_shape(op, inputs, index, &shape[..shape.len() - 1])?;
    expect_contiguous(op, inputs, index)
}

fn expect_eps(op: &dyn Op, eps: f32) -> Result<()> {
    if eps.is_finite() && eps >= 0.0 {
        return Ok(());
    }
    Err(Error::argument(op.name(), "eps", "a finite number of at least 0", eps))
}

/// An output like `x`.
fn like(op: &dyn Op, x: &Meta) -> Result<Metas> {
    Ok(Metas::from_elem(Meta::new(op.name(), x.shape(), x.dtype)?, 1))
}
