//! Attention to quantized keys and values, which are decoded tile by tile as they are read.

use super::composed::Optional;
use super::forward::{Attention, folded_or_composed};
use super::spec::{AttentionSpec, QUANTIZED, Sizes, wide};
use super::{AttentionOptions, cpu, first, optional_inputs, spec_of};
use crate::array::{Array, DType, Meta};
use crate::cpu::CpuCall;
use crate::device::Device;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Metas, Op};
use crate::ops::{Quantized, astype, dequantize};
use crate::quant::Scheme;

const NAME: &str = "quantized_attention";

/// [`attention`](crate::attention) to keys and values that are quantized with an affine scheme, each with
/// its own: codes of `[batch, key heads, keys, words]`, and scales and biases for each group. They are
/// decoded in tiles as they are read, and nowhere as a whole. The result has the dtype that `q` and the scales
/// promote to; scores and sums are in `float32`. (On a GPU whose kernels bind fewer arrays than there are, keys and
/// values are decoded before.)
///
/// Gradients reach `q`, mask, sinks, scales and biases, through decoded keys and values.
///
/// ```
/// use wootz::quant::Scheme;
/// use wootz::{Array, AttentionOptions, DType, quantize, quantized_attention};
/// let scheme = Scheme::new("affine", Some(32), Some(8))?;
/// let k = quantize(&Array::ones(&[1, 2, 16, 64], DType::F32)?, scheme)?;
/// let q = Array::ones(&[1, 4, 1, 64], DType::F32)?;
/// // Of sixteen keys three are valid.
/// let length = Array::scalar(3.0, DType::I32)?;
/// let options = AttentionOptions { key_length: Some(&length), ..AttentionOptions::new(0.125) };
/// let y = quantized_attention(&q, &k, &k, &options)?;
/// assert!(y.to_vec::<f32>()?.iter().all(|y| (y - 1.0).abs() < 1e-6));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn quantized_attention(
    q: &Array,
    k: &Quantized,
    v: &Quantized,
    options: &AttentionOptions<'_>,
) -> Result<Array> {
    let mut dtype = q.dtype();
    for (argument, weights) in [("k", k), ("v", v)] {
        let scales = match weights.scheme() {
            Scheme::Affine { .. } => weights.scales(),
            _ => None,
        };
        let Some(scales) = scales else {
            let expected = "an affine scheme, with scales and biases";
            return Err(Error::argument(NAME, argument, expected, weights.scheme()));
        };
        dtype = DType::promote(dtype, scales.dtype());
    }
    if !q.dtype().is_float() {
        return Err(Error::dtype(NAME, "q", "a floating-point type", q.dtype()));
    }
    let mut spec = spec_of(NAME, options)?;
    let mut inputs = vec![q.astype(dtype)?.contiguous()?];
    for array in k.arrays().iter().chain(v.arrays()) {
        inputs.push(array.contiguous()?);
    }
    optional_inputs(NAME, q, dtype, options, &mut spec, &mut inputs)?;
    let op = QuantizedAttention { spec, keys: k.scheme(), values: v.scheme() };
    if !op.fits(q.device()) {
        op.sizes(&inputs.iter().map(Array::meta).collect::<Vec<_>>())?;
        return first(NAME, op.plain(&inputs)?);
    }
    first(NAME, Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?)
}

/// Attention on row-major arrays: `q`; codes, scales and biases of the keys, then of the values; and
/// the arrays that the [`AttentionSpec`] names. The lazy function is [`quantized_attention`].
#[derive(Clone, Copy, Debug)]
pub struct QuantizedAttention {
    /// What is done, and which optional arrays there are.
    pub spec: AttentionSpec,
    /// How keys are quantized: an affine scheme.
    pub keys: Scheme,
    /// How values are quantized: an affine scheme.
    pub values: Scheme,
}

impl QuantizedAttention {
    fn schemes(&self) -> [Scheme; 2] {
        [self.keys, self.values]
    }

    fn sizes(&self, inputs: &[&Meta]) -> Result<Sizes> {
        Sizes::check_quantized(self, &self.spec, self.schemes(), inputs)
    }

    /// Whether a device's kernels bind all the arrays at once. On one where they do not, keys and values are decoded
    /// before.
    fn fits(&self, device: &Device) -> bool {
        #[cfg(feature = "gpu")]
        if let Some(gpu) = device.as_gpu() {
            return super::gpu::fits_quantized(gpu, &self.spec, self.schemes());
        }
        let _ = device;
        true
    }

    /// Decodes keys and values, and attends to them in `float32` at least: what kernels compute.
    fn plain(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let dtype = inputs[0].dtype();
        let wide = wide(dtype);
        let decoded = |scheme: Scheme, arrays: &[Array]| {
            let (scales, biases) = (astype(&arrays[1], wide)?, astype(&arrays[2], wide)?);
            dequantize(&Quantized::new(scheme, &arrays[0], Some(&scales), Some(&biases))?, None)
        };
        let mut plain = vec![
            astype(&inputs[0], wide)?,
            decoded(self.keys, &inputs[1..4])?,
            decoded(self.values, &inputs[4..7])?,
        ];
        let optional = Optional::of(&self.spec, self.spec.sinks, &inputs[QUANTIZED..]);
        if let Some(mask) = optional.mask {
            let added = mask.dtype().is_float();
            plain.push(if added { astype(mask, wide)? } else { mask.clone() });
        }
        if let Some(sinks) = optional.sinks {
            plain.push(astype(sinks, wide)?);
        }
        plain.extend_from_slice(optional.lengths);
        for array in &mut plain {
            *array = array.contiguous()?;
        }
        // The backward starts from the log-sum-exps.
        let op = Attention::with_lse(self.spec);
        let out = first(NAME, Array::apply_all(op, &plain.iter().collect::<Vec<_>>())?)?;
        Ok(vec![astype(&out, dtype)?])
    }
}

impl Op for QuantizedAttention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn arguments(&self) -> &'static [&'static str] {
        names!(
            self.spec,
            ["q", "k_codes", "k_scales", "k_biases", "v_codes", "v_scales", "v_biases"],
            self.spec.sinks,
            ["out"]
        )
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let sizes = self.sizes(inputs)?;
        Ok(Metas::from_elem(Meta::new(NAME, &sizes.output(), sizes.dtype)?, 1))
    }

    fn reads_bytes(&self, input: usize) -> bool {
        (1..QUANTIZED).contains(&input)
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
        cpu::forward_quantized(call, &self.spec, &self.sizes(&metas)?, self.schemes())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let sizes = self.sizes(&call.input_metas().collect::<Vec<_>>())?;
        super::gpu::forward_quantized(call, &self.spec, &sizes, self.schemes())
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(self.plain(inputs))
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        folded_or_composed(self, batch, &self.spec, QUANTIZED, self.spec.sinks)
    }
}
