//! Cross entropy as an operation.

use super::{CrossEntropyBackward, Labels, composed, cpu, wide};
use crate::array::{Array, Meta};
use crate::cpu::CpuCall;
use crate::error::Result;
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Metas, Op, expect_inputs};
use crate::ops::{add, zeros_like};

/// [`cross_entropy`](super::cross_entropy) of row-major logits, labels and, if there is one, a mask:
/// the loss of each row and its log-sum-exp, in `float32` (or `float64` for `float64`). The
/// log-sum-exp of a row that does not count is 0.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy(pub(super) Labels);

impl CrossEntropy {
    /// With inputs logits, labels, and a mask if `masked`.
    pub fn new(label_smoothing: f64, ignore_index: Option<i64>, masked: bool) -> CrossEntropy {
        CrossEntropy(Labels { smoothing: label_smoothing, ignored: ignore_index, masked })
    }
}

impl Op for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.0.masked {
            true => &["logits", "targets", "mask", "loss", "lse"],
            false => &["logits", "targets", "loss", "lse"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, self.0.inputs())?;
        let rows = self.0.check(self, inputs)?;
        Ok(Metas::from_elem(Meta::new(self.name(), rows, wide(inputs[0].dtype))?, 2))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::forward(call, self.0)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        super::gpu::forward(call, self.0)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let mut gradients = vec![None; inputs.len()];
        let (of_target, of_softmax) = match cotangents {
            [Some(loss), None] => (loss.contiguous()?, loss.contiguous()?),
            [None, Some(lse)] => (zeros_like(lse)?.contiguous()?, lse.contiguous()?),
            [Some(loss), Some(lse)] => (loss.contiguous()?, add(loss, lse)?),
            _ => return Ok(gradients),
        };
        let mut given: Vec<&Array> = inputs.iter().collect();
        given.extend([&outputs[1], &of_target, &of_softmax]);
        gradients[0] = Some(Array::apply(CrossEntropyBackward(self.0), &given)?);
        Ok(gradients)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(composed::forward(self.0, inputs))
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}
