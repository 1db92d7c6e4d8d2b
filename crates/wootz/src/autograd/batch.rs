//! What an operation's rule for batches receives, and helps for it.

use super::vmap::vmap_batch;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::op::OpRef;
use crate::ops;

/// An operation to be applied to a batch.
pub struct Batch<'a> {
    /// The operation.
    pub op: &'a OpRef,
    /// Its inputs; those of the batch have it as their first axis.
    pub inputs: &'a [Array],
    /// Which inputs those are; at least one.
    pub batched: &'a [bool],
    /// The length of the batch.
    pub size: usize,
}

impl Batch<'_> {
    /// The shape of one element of input `index`.
    pub fn shape(&self, index: usize) -> &[usize] {
        &self.inputs[index].shape()[self.batched[index] as usize..]
    }

    /// Input `index` with the batch as its first axis: as a view, if it is the same for all.
    pub fn spread(&self, index: usize) -> Result<Array> {
        let input = &self.inputs[index];
        if self.batched[index] {
            return Ok(input.clone());
        }
        ops::broadcast_to(input, &[&[self.size], input.shape()].concat())
    }

    /// All inputs with the batch as their first axis.
    pub fn spread_all(&self) -> Result<Vec<Array>> {
        (0..self.inputs.len()).map(|index| self.spread(index)).collect()
    }

    /// All inputs with the batch as their first axis, row-major.
    pub fn dense(&self) -> Result<Vec<Array>> {
        self.spread_all()?.iter().map(Array::contiguous).collect()
    }

    /// The inputs with axes of length 1 behind the batch, so that the elements broadcast as they
    /// would alone.
    pub fn aligned(&self) -> Result<Vec<Array>> {
        let rank = (0..self.inputs.len()).map(|index| self.shape(index).len()).max().unwrap_or(0);
        let align = |(index, input): (usize, &Array)| {
            let (shape, missing) = (self.shape(index), rank - self.shape(index).len());
            match self.batched[index] && missing > 0 {
                true => input.reshape(&[&[self.size], &vec![1; missing][..], shape].concat()),
                false => Ok(input.clone()),
            }
        };
        self.inputs.iter().enumerate().map(align).collect()
    }

    /// The same operation with other inputs.
    pub fn again(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        self.apply(self.op.clone(), inputs)
    }

    /// Another operation.
    pub fn apply(&self, op: impl Into<OpRef>, inputs: &[Array]) -> Result<Vec<Array>> {
        Ok(Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?.into_vec())
    }

    /// A function of the inputs that has rules for batches, in place of the operation `name`.
    pub fn composed(
        &self,
        name: &'static str,
        function: impl Fn(&[Array]) -> Option<Result<Vec<Array>>>,
    ) -> Result<Vec<Array>> {
        let missing = || {
            let reason = format!("{name} has neither a rule for batches nor a composition");
            Err(Error::Transform { transform: "vmap", reason })
        };
        let function = |inputs: &[Array]| function(inputs).unwrap_or_else(missing);
        let outputs = vmap_batch(function, self.inputs, self.batched, self.size)?;
        outputs
            .into_iter()
            .map(|(output, batched)| match batched {
                true => Ok(output),
                false => ops::broadcast_to(&output, &[&[self.size], output.shape()].concat()),
            })
            .collect()
    }
}
