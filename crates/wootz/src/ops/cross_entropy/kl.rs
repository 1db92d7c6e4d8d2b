//! The divergence of two distributions over a vocabulary.

use super::{composed, cpu, expect_logits, expect_numbers, wide};
use crate::array::{Array, DType, Meta};
use crate::cpu::CpuCall;
use crate::error::Result;
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Metas, Op, expect_contiguous, expect_dtype, expect_inputs, expect_shape};
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
    kl_divergence_with(targets, predictions, &KlDivergenceOptions::default())
}

/// What [`kl_divergence_with`] takes beside both arrays of logits.
#[derive(Clone, Copy, Debug, Default)]
pub struct KlDivergenceOptions<'a> {
    /// Rows where this is false, of the divergence's shape, have no divergence and no gradient, whatever they hold.
    pub mask: Option<&'a Array>,
}

/// As [`kl_divergence`], with rows that do not count.
///
/// ```
/// use wootz::{Array, KlDivergenceOptions, kl_divergence_with};
/// let p = Array::new([[0.5f32, 0.5], [f32::NAN, 0.0]])?.log()?;
/// let q = Array::new([[1.0f32, 3.0], [1.0, 1.0]])?.log()?;
/// let mask = Array::new([true, false])?;
/// let divergence = kl_divergence_with(&p, &q, &KlDivergenceOptions { mask: Some(&mask) })?;
/// assert_eq!(divergence.to_vec::<f32>()?[1], 0.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn kl_divergence_with(
    targets: &Array,
    predictions: &Array,
    options: &KlDivergenceOptions<'_>,
) -> Result<Array> {
    let dtype = DType::promote(targets.dtype(), predictions.dtype());
    let mut inputs =
        vec![astype(targets, dtype)?.contiguous()?, astype(predictions, dtype)?.contiguous()?];
    if let Some(mask) = options.mask {
        inputs.push(astype(mask, DType::Bool)?.contiguous()?);
    }
    let op = KlDivergence { masked: options.mask.is_some() };
    Ok(Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?.remove(0))
}

/// Which of [`kl_divergence`]'s arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KlSide {
    /// The first.
    Targets,
    /// The second.
    Predictions,
}

/// [`kl_divergence`] of row-major logits of one dtype and, if there is one, a mask: the divergence of each row, and the
/// log-sum-exps of both, in `float32` (or `float64` for `float64`). All are 0 of a row that does not count.
#[derive(Clone, Copy, Debug)]
pub struct KlDivergence {
    /// Whether there is a mask.
    pub masked: bool,
}

impl Op for KlDivergence {
    fn name(&self) -> &'static str {
        "kl_divergence"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.masked {
            true => &[
                "targets",
                "predictions",
                "mask",
                "divergence",
                "targets' lse",
                "predictions' lse",
            ],
            false => &["targets", "predictions", "divergence", "targets' lse", "predictions' lse"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, logits_and_mask(self.masked))?;
        let rows = expect_both(self, inputs, self.masked)?;
        Ok(Metas::from_elem(Meta::new(self.name(), rows, wide(inputs[0].dtype))?, 3))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::kl(call, self.masked)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        super::gpu::kl(call, self.masked)
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
        let mut gradients = vec![None; inputs.len()];
        let Some(g) = &cotangents[0] else { return Ok(gradients) };
        let g = g.contiguous()?;
        let mut given: Vec<&Array> = inputs.iter().chain(outputs).collect();
        given.push(&g);
        for (input, side) in [KlSide::Targets, KlSide::Predictions].into_iter().enumerate() {
            let op = KlDivergenceBackward { side, masked: self.masked };
            gradients[input] = Some(Array::apply(op, &given)?);
        }
        Ok(gradients)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(composed::kl(self.masked, inputs))
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

/// The gradient of one side of [`KlDivergence`]: inputs are its inputs, its outputs and the gradient
/// of the divergence.
#[derive(Clone, Copy, Debug)]
pub struct KlDivergenceBackward {
    /// Whose gradient it is.
    pub side: KlSide,
    /// Whether there is a mask.
    pub masked: bool,
}

impl Op for KlDivergenceBackward {
    fn name(&self) -> &'static str {
        "kl_divergence_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        const ALL: [&str; 8] = [
            "targets",
            "predictions",
            "mask",
            "divergence",
            "targets' lse",
            "predictions' lse",
            "g",
            "gradient",
        ];
        const UNMASKED: [&str; 7] = [ALL[0], ALL[1], ALL[3], ALL[4], ALL[5], ALL[6], ALL[7]];
        if self.masked { &ALL } else { &UNMASKED }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let first = logits_and_mask(self.masked);
        expect_inputs(self, inputs, first + 4)?;
        let rows = expect_both(self, inputs, self.masked)?;
        for index in first..first + 4 {
            expect_numbers(self, inputs, index, rows)?;
        }
        Ok(Metas::from_elem(Meta::new(self.name(), inputs[0].shape(), inputs[0].dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::kl_backward(call, *self)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        super::gpu::kl_backward(call, *self)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(composed::kl_backward(*self, inputs))
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

/// How many inputs there are before the numbers of rows.
pub(super) fn logits_and_mask(masked: bool) -> usize {
    2 + masked as usize
}

/// Checks both arrays of logits and the mask, if there is one, and tells the shape of the rows.
fn expect_both<'a>(op: &dyn Op, inputs: &[&'a Meta], masked: bool) -> Result<&'a [usize]> {
    let rows = expect_logits(op, inputs, 0)?;
    expect_dtype(op, inputs, 1, inputs[0].dtype)?;
    expect_shape(op, inputs, 1, inputs[0].shape())?;
    expect_logits(op, inputs, 1)?;
    if masked {
        expect_dtype(op, inputs, 2, DType::Bool)?;
        expect_shape(op, inputs, 2, rows)?;
        expect_contiguous(op, inputs, 2)?;
    }
    Ok(rows)
}
