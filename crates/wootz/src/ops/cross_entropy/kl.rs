//! The divergence of two distributions over a vocabulary.

use super::{composed, cpu, expect_logits, expect_numbers, wide};
use crate::array::{Array, DType, Meta};
use crate::cpu::CpuCall;
use crate::error::Result;
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Metas, Op, expect_dtype, expect_inputs, expect_shape};
use crate::ops::astype;

/// The Kullback-Leibler divergence over the last axis, `Σ p · (log p - log q)`, of the targets'
/// distribution `p` from the predictions' `q`, both given as logits; logarithms of probabilities
/// are such. In `float32`, of the logits' shape without the last axis. Gradients flow to both.
///
/// ```
/// use wootz::{Array, kl_divergence};
/// let p = Array::new([[0.5f32, 0.5]])?.log()?;
/// let q = Array::new([[1.0f32, 3.0]])?.log()?;
/// assert!((kl_divergence(&p, &q)?.item::<f32>()? - 0.143841).abs() < 1e-5);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn kl_divergence(targets: &Array, predictions: &Array) -> Result<Array> {
    let dtype = DType::promote(targets.dtype(), predictions.dtype());
    let inputs = [targets, predictions].map(|logits| astype(logits, dtype)?.contiguous());
    let [targets, predictions] = inputs;
    Ok(Array::apply_all(KlDivergence, &[&targets?, &predictions?])?.remove(0))
}

/// Which of [`kl_divergence`]'s arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KlSide {
    /// The first.
    Targets,
    /// The second.
    Predictions,
}

/// [`kl_divergence`] of row-major logits of one dtype: the divergence of each row, and the
/// log-sum-exps of both, in `float32` (or `float64` for `float64`).
#[derive(Clone, Copy, Debug)]
pub struct KlDivergence;

impl Op for KlDivergence {
    fn name(&self) -> &'static str {
        "kl_divergence"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["targets", "predictions", "divergence", "targets' lse", "predictions' lse"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 2)?;
        let rows = expect_both(self, inputs)?;
        Ok(Metas::from_elem(Meta::new(self.name(), rows, wide(inputs[0].dtype))?, 3))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::kl(call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        super::gpu::kl(call)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        // The log-sum-exps are for the backward kernels; of their own they take the long way.
        if cotangents[1..].iter().any(Option::is_some) {
            let composed = |x: &[Array]| self.composed(x);
            return crate::autograd::composed_vjp(
                self.name(),
                composed,
                inputs,
                outputs,
                cotangents,
            );
        }
        let Some(g) = &cotangents[0] else { return Ok(vec![None, None]) };
        let g = g.contiguous()?;
        let mut given: Vec<&Array> = inputs.iter().chain(outputs).collect();
        given.push(&g);
        [KlSide::Targets, KlSide::Predictions]
            .into_iter()
            .map(|side| Array::apply(KlDivergenceBackward(side), &given).map(Some))
            .collect()
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(composed::kl(inputs))
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

/// The gradient of one side of [`KlDivergence`]: inputs are its inputs, its outputs and the gradient
/// of the divergence.
#[derive(Clone, Copy, Debug)]
pub struct KlDivergenceBackward(pub KlSide);

impl Op for KlDivergenceBackward {
    fn name(&self) -> &'static str {
        "kl_divergence_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &[
            "targets",
            "predictions",
            "divergence",
            "targets' lse",
            "predictions' lse",
            "g",
            "gradient",
        ]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 6)?;
        let rows = expect_both(self, inputs)?;
        for index in 2..6 {
            expect_numbers(self, inputs, index, rows)?;
        }
        Ok(Metas::from_elem(Meta::new(self.name(), inputs[0].shape(), inputs[0].dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::kl_backward(call, self.0)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        super::gpu::kl_backward(call, self.0)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(composed::kl_backward(self.0, inputs))
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

/// Checks both arrays of logits and tells the shape of their rows.
fn expect_both<'a>(op: &dyn Op, inputs: &[&'a Meta]) -> Result<&'a [usize]> {
    let rows = expect_logits(op, inputs, 0)?;
    expect_dtype(op, inputs, 1, inputs[0].dtype)?;
    expect_shape(op, inputs, 1, inputs[0].shape())?;
    expect_logits(op, inputs, 1)?;
    Ok(rows)
}
