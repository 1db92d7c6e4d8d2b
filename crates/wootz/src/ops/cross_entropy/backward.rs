//! The gradient of cross entropy as an operation.

use super::{Labels, composed, cpu, expect_numbers};
use crate::array::{Array, Meta};
use crate::cpu::CpuCall;
use crate::error::Result;
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Metas, Op, expect_inputs};

/// The gradient of [`CrossEntropy`](super::CrossEntropy)'s logits, `softmax · h - target · g`: inputs are
/// those of the forward operation, its log-sum-exps, and for each row `g` and `h`. The loss's gradient is
/// both of them; that of the log-sum-exps is added to `h`.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropyBackward(pub(super) Labels);

impl CrossEntropyBackward {
    /// With inputs logits, labels, a mask if `masked`, log-sum-exps, `g` and `h`.
    pub fn new(
        label_smoothing: f64,
        ignore_index: Option<i64>,
        masked: bool,
    ) -> CrossEntropyBackward {
        CrossEntropyBackward(Labels { smoothing: label_smoothing, ignored: ignore_index, masked })
    }
}

impl Op for CrossEntropyBackward {
    fn name(&self) -> &'static str {
        "cross_entropy_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.0.masked {
            true => &["logits", "targets", "mask", "lse", "g", "h", "dlogits"],
            false => &["logits", "targets", "lse", "g", "h", "dlogits"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let first = self.0.inputs();
        expect_inputs(self, inputs, first + 3)?;
        let rows = self.0.check(self, inputs)?;
        for index in first..first + 3 {
            expect_numbers(self, inputs, index, rows)?;
        }
        Ok(Metas::from_elem(Meta::new(self.name(), inputs[0].shape(), inputs[0].dtype)?, 1))
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::backward(call, self.0)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        super::gpu::backward(call, self.0)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(composed::backward(self.0, inputs))
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}
