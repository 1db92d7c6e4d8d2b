//! Attention as an operation.

use super::backward::gradients;
use super::composed::{self, Optional};
use super::spec::{AttentionSpec, Lengths, MaskKind, Sizes};
use super::{NAME, cpu};
use crate::array::{Array, Meta};
use crate::cpu::CpuCall;
use crate::error::Result;
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Metas, Op};
use crate::ops::{broadcast_to, reshape, zeros_like};

/// Attention on row-major `q`, `k`, `v` of one dtype and the arrays that its [`AttentionSpec`]
/// names: the output and, if asked for, the log-sum-exp of each row of scores.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    spec: AttentionSpec,
    lse: bool,
}

impl Attention {
    /// With the output alone.
    pub fn new(spec: AttentionSpec) -> Attention {
        Attention { spec, lse: false }
    }

    /// With the output and the log-sum-exps, in `float32` (or `float64` for `float64`).
    pub fn with_lse(spec: AttentionSpec) -> Attention {
        Attention { spec, lse: true }
    }

    fn sizes(&self, inputs: &[&Meta]) -> Result<Sizes> {
        Sizes::check(self, &self.spec, inputs, 3, self.spec.sinks)
    }
}

impl Op for Attention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn arguments(&self) -> &'static [&'static str] {
        names!(self.spec, ["q", "k", "v"], self.spec.sinks, ["out", "lse"])
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let sizes = self.sizes(inputs)?;
        let mut outputs = Metas::from_elem(Meta::new(NAME, &sizes.output(), sizes.dtype)?, 1);
        if self.lse {
            outputs.push(Meta::new(NAME, &sizes.rows(), sizes.wide())?);
        }
        Ok(outputs)
    }

    #[cfg(feature = "gpu")]
    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        match self.sizes(inputs) {
            Ok(sizes) if gpu => super::gpu::forward_scratch(&sizes),
            _ => 0,
        }
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let metas: Vec<&Meta> = call.inputs.iter().map(|input| input.meta).collect();
        cpu::forward(call, &self.spec, &self.sizes(&metas)?)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let sizes = self.sizes(&call.input_metas().collect::<Vec<_>>())?;
        super::gpu::forward(call, &self.spec, &sizes, self.lse)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        if cotangents.iter().all(Option::is_none) {
            return Ok(vec![None; inputs.len()]);
        }
        let again = match outputs {
            [out, lse] => (out.clone(), lse.clone()),
            _ => {
                let op = Attention::with_lse(self.spec);
                super::two(NAME, Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?)?
            }
        };
        let dout = match &cotangents[0] {
            Some(dout) => dout.contiguous()?,
            None => zeros_like(&outputs[0])?.contiguous()?,
        };
        gradients(&self.spec, inputs, &again.0, &again.1, &dout, cotangents.get(1))
    }

    fn jvp(
        &self,
        inputs: &[Array],
        _: &[Array],
        tangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let tangents = (inputs.iter().zip(tangents))
            .map(|(input, tangent)| tangent.clone().map_or_else(|| zeros_like(input), Ok))
            .collect::<Result<Vec<_>>>()?;
        let function = |x: &[Array]| self.composed(x).unwrap_or_else(|| Ok(Vec::new()));
        let (_, along) = crate::autograd::jvp(function, inputs, &tangents)?;
        Ok(along.into_iter().map(Some).collect())
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let optional = Optional::of(&self.spec, self.spec.sinks, &inputs[3..]);
        let result = composed::forward(&self.spec, &inputs[0], &inputs[1], &inputs[2], optional);
        Some(result.map(|(out, lse)| if self.lse { vec![out, lse] } else { vec![out] }))
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        folded_or_composed(self, batch, &self.spec, 3, self.spec.sinks)
    }
}

/// An attention operation for a batch that is made part of its own, unless what has no batch differs
/// between the elements.
pub(super) fn folded_or_composed(
    op: &dyn Op,
    batch: &Batch<'_>,
    spec: &AttentionSpec,
    optional: usize,
    sinks: bool,
) -> Result<Vec<Array>> {
    let mask = (spec.mask != MaskKind::None).then_some(optional);
    let mut next = optional + mask.is_some() as usize;
    let mut without = Vec::new();
    if sinks {
        without.push(next);
        next += 1;
    }
    if spec.lengths == Lengths::Sequences {
        without.extend([next, next + 1]);
    }
    if without.iter().any(|&index| batch.batched[index]) {
        return batch.composed(op.name(), |inputs| op.composed(inputs));
    }
    folded(batch, mask, &without)
}

/// The operation with the batch as part of its inputs' own, which is their first axis. A mask that is
/// the same for all stays as it is, and so do the inputs of `without`, which have no batch.
pub(super) fn folded(
    batch: &Batch<'_>,
    mask: Option<usize>,
    without: &[usize],
) -> Result<Vec<Array>> {
    let own = batch.shape(0)[0];
    let fold = |index: usize| {
        let shape = batch.shape(index);
        let same = Some(index) == mask && shape[0] == 1 && !batch.batched[index];
        if same || without.contains(&index) {
            return Ok(batch.inputs[index].clone());
        }
        let mut whole = [&[batch.size], shape].concat();
        whole[1] = own;
        let spread = broadcast_to(&batch.spread(index)?, &whole)?;
        whole.remove(0);
        whole[0] *= batch.size;
        reshape(&spread, &whole)?.contiguous()
    };
    let inputs = (0..batch.inputs.len()).map(fold).collect::<Result<Vec<_>>>()?;
    let unfold =
        |output: Array| reshape(&output, &[&[batch.size, own], &output.shape()[1..]].concat());
    batch.again(&inputs)?.into_iter().map(unfold).collect()
}
