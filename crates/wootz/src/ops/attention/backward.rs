//! The backward of attention: operations that compute the scores again, tile by tile.

use super::composed::{self, Optional};
use super::cpu;
use super::forward::{folded, folded_or_composed};
use super::spec::{AttentionSpec, MaskKind, Sizes, expect, wide};
use crate::array::{Array, Meta};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Batch, Metas, Op, expect_contiguous, expect_dtype, expect_float, expect_inputs, expect_shape,
};
use crate::ops::{astype, exp, expand_dims, isneginf, multiply, negative, subtract, sum, where_};

/// The gradients of all inputs of an attention, from its output, its log-sum-exps and the gradients
/// of both.
pub(super) fn gradients(
    spec: &AttentionSpec,
    inputs: &[Array],
    out: &Array,
    lse: &Array,
    dout: &Array,
    dlse: Option<&Option<Array>>,
) -> Result<Vec<Option<Array>>> {
    // dS = P ∘ (dP − D), and the log-sum-exp's gradient adds P times itself.
    let mut d = super::attention_backward_d(out, dout)?;
    if let Some(Some(dlse)) = dlse {
        d = subtract(&d, dlse)?.contiguous()?;
    }
    let lse = lse.contiguous()?;
    let optional = Optional::of(spec, spec.sinks, &inputs[3..]);
    let mut given: Vec<&Array> = inputs[..3].iter().chain([dout, &lse, &d]).collect();
    given.extend(optional.mask);
    given.extend(optional.lengths);
    let spec = AttentionSpec { sinks: false, ..*spec };
    let gradients = Array::apply_all(AttentionBackward::new(spec), &given)?;
    let mut all: Vec<Option<Array>> = gradients.into_iter().map(Some).collect();
    if optional.mask.is_some() {
        all.push(match spec.mask {
            MaskKind::Additive => Some(Array::apply(AttentionBackwardMask::new(spec), &given)?),
            _ => None,
        });
    }
    if let Some(sinks) = optional.sinks {
        let column = expand_dims(&astype(sinks, lse.dtype())?, -1)?;
        // The share of a row that sees nothing is all the sink's, unless there is none.
        let lse = where_(isneginf(&lse)?, f64::INFINITY, &lse)?;
        let share = exp(subtract(&column, &lse)?)?;
        let dsinks = negative(sum(&multiply(&share, &d)?, [0, 2], false)?)?;
        all.push(Some(astype(&dsinks, sinks.dtype())?));
    }
    all.resize(inputs.len(), None);
    Ok(all)
}

/// The sum over each row of the output times its gradient, of row-major arrays of one dtype.
#[derive(Clone, Copy, Debug)]
pub struct AttentionBackwardD;

impl Op for AttentionBackwardD {
    fn name(&self) -> &'static str {
        "attention_backward_d"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["out", "dout", "d"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 2)?;
        let &[batch, heads, queries, dims] = inputs[0].shape() else {
            let expected = "[batch, heads, queries, dims]";
            return Err(Error::shape(self.name(), "out", expected, inputs[0].shape()));
        };
        if dims > super::MOST_DIMS {
            let expected = format!("heads of at most {} dims", super::MOST_DIMS);
            return Err(Error::argument(self.name(), "out", expected, dims));
        }
        expect_float(self, inputs, 0)?;
        expect_shape(self, inputs, 1, inputs[0].shape())?;
        expect_dtype(self, inputs, 1, inputs[0].dtype)?;
        expect_contiguous(self, inputs, 0)?;
        expect_contiguous(self, inputs, 1)?;
        let rows = [batch, heads, queries];
        Ok(Metas::from_elem(Meta::new(self.name(), &rows, wide(inputs[0].dtype))?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::backward_d(call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        super::gpu::backward_d(call)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(d) = &cotangents[0] else { return Ok(vec![None, None]) };
        let column = expand_dims(d, -1)?;
        let gradient = |other: &Array| -> Result<Option<Array>> {
            let product = multiply(astype(other, d.dtype())?, &column)?;
            Ok(Some(astype(&product, other.dtype())?))
        };
        Ok(vec![gradient(&inputs[1])?, gradient(&inputs[0])?])
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let wide = wide(inputs[0].dtype());
            let product = multiply(astype(&inputs[0], wide)?, astype(&inputs[1], wide)?)?;
            Ok(vec![sum(&product, -1, false)?])
        };
        Some(composed())
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        folded(batch, None, &[])
    }
}

/// Inputs of the backward operations before the optional ones.
const GIVEN: usize = 6;

/// The gradients of `q`, `k` and `v` from row-major `q`, `k`, `v`, the output's gradient, the
/// log-sum-exps, the sums of [`AttentionBackwardD`] and the arrays that the [`AttentionSpec`] names
/// but for sinks, whose part is in the log-sum-exps.
#[derive(Clone, Copy, Debug)]
pub struct AttentionBackward {
    spec: AttentionSpec,
}

impl AttentionBackward {
    /// The backward of an attention with this specification.
    pub fn new(spec: AttentionSpec) -> AttentionBackward {
        AttentionBackward { spec: AttentionSpec { sinks: false, ..spec } }
    }
}

impl Op for AttentionBackward {
    fn name(&self) -> &'static str {
        "attention_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        names!(self.spec, ["q", "k", "v", "dout", "lse", "d"], false, ["dq", "dk", "dv"])
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let sizes = check(self, &self.spec, inputs)?;
        (inputs[..3].iter()).map(|x| Meta::new(self.name(), x.shape(), sizes.dtype)).collect()
    }

    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        match check(self, &self.spec, inputs) {
            #[cfg(feature = "gpu")]
            Ok(sizes) if gpu => super::gpu::backward_scratch(&sizes),
            Ok(sizes) if !gpu => cpu::backward_scratch(&sizes),
            _ => 0,
        }
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let sizes = check(self, &self.spec, &metas(call))?;
        cpu::backward(call, &self.spec, &sizes)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let sizes = check(self, &self.spec, &call.input_metas().collect::<Vec<_>>())?;
        super::gpu::backward(call, &self.spec, &sizes)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let optional = Optional::of(&self.spec, false, &inputs[GIVEN..]);
        let gradients = composed::backward(&self.spec, inputs, optional);
        Some(gradients.map(|gradients| vec![gradients.q, gradients.k, gradients.v]))
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        folded_or_composed(self, batch, &self.spec, GIVEN, false)
    }
}

/// The gradient of an additive mask, from the inputs of [`AttentionBackward`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionBackwardMask {
    spec: AttentionSpec,
}

impl AttentionBackwardMask {
    /// The backward of an attention with this specification, which has an additive mask.
    pub fn new(spec: AttentionSpec) -> AttentionBackwardMask {
        AttentionBackwardMask { spec: AttentionSpec { sinks: false, ..spec } }
    }
}

impl Op for AttentionBackwardMask {
    fn name(&self) -> &'static str {
        "attention_backward_mask"
    }

    fn arguments(&self) -> &'static [&'static str] {
        names!(self.spec, ["q", "k", "v", "dout", "lse", "d"], false, ["dmask"])
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        if self.spec.mask != MaskKind::Additive {
            let got = format!("{:?}", self.spec.mask);
            return Err(Error::argument(self.name(), "mask", "an additive one", got));
        }
        check(self, &self.spec, inputs)?;
        let mask = inputs[GIVEN];
        Ok(Metas::from_elem(Meta::new(self.name(), mask.shape(), mask.dtype)?, 1))
    }

    #[cfg(feature = "gpu")]
    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        match check(self, &self.spec, inputs) {
            Ok(sizes) if gpu => super::gpu::mask_scratch(&sizes),
            _ => 0,
        }
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let sizes = check(self, &self.spec, &metas(call))?;
        cpu::backward_mask(call, &self.spec, &sizes)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let sizes = check(self, &self.spec, &call.input_metas().collect::<Vec<_>>())?;
        super::gpu::backward_mask(call, &self.spec, &sizes)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let optional = Optional::of(&self.spec, false, &inputs[GIVEN..]);
        let gradients = composed::backward(&self.spec, inputs, optional);
        Some(gradients.map(|gradients| gradients.mask.into_iter().collect()))
    }
}

/// Checks the inputs of a backward operation.
fn check(op: &dyn Op, spec: &AttentionSpec, inputs: &[&Meta]) -> Result<Sizes> {
    let sizes = Sizes::check(op, spec, inputs, GIVEN, false)?;
    expect(op.name(), "dout", inputs[3], &sizes.output(), sizes.dtype)?;
    expect(op.name(), "lse", inputs[4], &sizes.rows(), sizes.wide())?;
    expect(op.name(), "d", inputs[5], &sizes.rows(), sizes.wide())?;
    Ok(sizes)
}

fn metas<'a>(call: &CpuCall<'a>) -> Vec<&'a Meta> {
    call.inputs.iter().map(|input| input.meta).collect()
}
