//! `quantized_matmul`: products with quantized matrices, which are decoded as they are read.

use super::gather::gather_qmm_with;
use super::quantize::{group_gradients, widened};
use super::{Quantized, cpu, dequantize, expect_weights, expect_x, weights_shape};
use crate::array::{Array, DType, Meta, broadcast_shapes};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Metas, Op, expect_inputs};
use crate::ops::elementwise::sum_to_shape;
use crate::ops::movement::arange_on;
use crate::ops::{astype, broadcast_to, matmul, reshape, squeeze, swapaxes};
use crate::quant::{Activations, Scheme, activations};

/// `x @ w.T` for weights of `[…, out, in]`, or `x @ w` without `transpose`, for any quantized weights. The
/// axes before the last two broadcast. The result has the dtype of `x`, or what it and affine scales promote to;
/// sums are in `float32`. On the CPU `x` is rounded as [`quant::activations`](activations()) says. Results that a NaN or
/// an infinity of `x` or of the weights has part in are not finite, and no others.
///
/// ```
/// use wootz::quant::Format;
/// use wootz::{Array, DType, quantize, quantized_matmul};
/// let w = Array::ones(&[3, 64], DType::F32)?;
/// let x = Array::ones(&[2, 64], DType::F32)?;
/// let y = quantized_matmul(&x, &quantize(&w, Format::Q8_0)?, true)?;
/// assert_eq!(y.shape(), [2, 3]);
/// assert!((y.sum(())?.item::<f32>()? - 384.0).abs() < 0.1);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn quantized_matmul(x: &Array, w: &Quantized, transpose: bool) -> Result<Array> {
    quantized_matmul_with(x, w, transpose, activations())
}

/// [`quantized_matmul`] with a choice of how `x` is rounded.
pub(in crate::ops) fn quantized_matmul_with(
    x: &Array,
    w: &Quantized,
    transpose: bool,
    activations: Activations,
) -> Result<Array> {
    const OP: &str = "quantized_matmul";
    let dtype = w.product_dtype(OP, x)?;
    let weights = w.shape();
    let [batch @ .., rows, columns] = &weights[..] else {
        return Err(Error::shape(OP, "codes", "two axes or more", w.codes().shape()));
    };
    let (inner, outer) = if transpose { (*columns, *rows) } else { (*rows, *columns) };
    if x.shape().last() != Some(&inner) {
        let expected = format!("a last axis of {inner}, for weights of {weights:?}");
        return Err(Error::shape(OP, "x", expected, x.shape()));
    }
    let [x_batch @ .., m, _] = x.shape() else {
        // A vector is a row.
        let row = reshape(x, &[1, inner])?;
        let row = quantized_matmul_with(&row, w, transpose, activations)?;
        return squeeze(&row, -2);
    };
    let (m, shape) = (*m, broadcast_shapes(OP, x_batch, batch)?);
    let count = shape.iter().product();
    let x = astype(x, dtype)?;
    let matrices = batch.iter().product::<usize>();
    if matrices != count && matrices != 1 {
        // Indices repeat those that several share; the weights are not copied.
        let chosen = arange_on(0.0, matrices as f64, 1.0, DType::U32, x.device())?;
        let chosen = reshape(&chosen, batch)?;
        return gather_qmm_with(&x, w, [None, Some(&chosen)], transpose, activations);
    }
    // Weights that all share make the batch part of the rows.
    let (x, w) = if matrices == 1 {
        (reshape(&x, &[1, count * m, inner])?, w.with_batch(&[1])?)
    } else {
        let x = broadcast_to(&x, &[&shape[..], &[m, inner]].concat())?;
        (reshape(&x, &[count, m, inner])?, w.with_batch(&[count])?)
    };
    let product = apply(&x, &w, transpose, activations)?;
    reshape(&product, &[&shape[..], &[m, outer]].concat())
}

/// The operation on row-major arrays.
fn apply(x: &Array, w: &Quantized, transpose: bool, activations: Activations) -> Result<Array> {
    let (x, w) = (x.contiguous()?, w.contiguous()?);
    let inputs: Vec<&Array> = [&x].into_iter().chain(&w.arrays).collect();
    Array::apply(QuantizedMatmul { scheme: w.scheme, transpose, activations }, &inputs)
}

/// `x` of `[b, m, k]` times quantized weights of `[b, n, k]`, transposed, or of `[b, k, n]`; or of
/// one matrix for all. Arrays are row-major: `x`, codes, and what else holds the weights. The lazy
/// function is [`quantized_matmul`].
#[derive(Clone, Copy, Debug)]
pub struct QuantizedMatmul {
    /// How the weights are quantized.
    pub scheme: Scheme,
    /// Whether rows of the weights are columns of the matrix that `x` is multiplied with.
    pub transpose: bool,
    /// How the CPU rounds `x`.
    pub activations: Activations,
}

impl Op for QuantizedMatmul {
    fn name(&self) -> &'static str {
        "quantized_matmul"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.scheme.arrays() {
            1 => &["x", "codes", "output"],
            2 => &["x", "codes", "scales", "output"],
            _ => &["x", "codes", "scales", "biases", "output"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1 + self.scheme.arrays())?;
        expect_weights(self, self.scheme, inputs, 1)?;
        let (x, w) = (inputs[0].shape(), weights_shape(self.scheme, inputs[1]));
        let (&[batch, m, _], &[matrices, rows, columns]) = (x, &w[..]) else {
            return Err(Error::shape(
                self.name(),
                "x",
                "[b, m, k], for weights of as many axes",
                x,
            ));
        };
        let (inner, outer) = if self.transpose { (columns, rows) } else { (rows, columns) };
        let batch = if matrices == 1 { batch } else { matrices };
        expect_x(self, inputs, &[batch, m, inner])?;
        Ok(Metas::from_elem(Meta::new(self.name(), &[batch, m, outer], inputs[0].dtype)?, 1))
    }

    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        match gpu {
            true => 0,
            false => cpu::scratch(self.scheme, self.transpose, self.activations, inputs),
        }
    }

    fn reads_bytes(&self, input: usize) -> bool {
        (1..=self.scheme.arrays()).contains(&input)
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::matmul(call, self.scheme, self.transpose, self.activations)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        super::gpu::matmul(call, self.scheme, self.transpose)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(g) = &cotangents[0] else { return Ok(vec![None; inputs.len()]) };
        let w = Quantized { scheme: self.scheme, arrays: inputs[1..].to_vec() };
        let mut gradients = vec![Some(apply(g, &w, !self.transpose, self.activations)?)];
        gradients.extend(match self.scheme {
            Scheme::Affine { .. } => {
                let (left, right) = if self.transpose { (g, &inputs[0]) } else { (&inputs[0], g) };
                let (left, right) = (widened(left)?, widened(right)?);
                let dw = matmul(&swapaxes(&left, -1, -2)?, &right)?;
                // One matrix for a batch of one or of many.
                let dw = sum_to_shape(&dw, &w.shape())?;
                group_gradients(self.scheme, &inputs[1..], &dw)?
            }
            _ => vec![None; inputs.len() - 1],
        });
        Ok(gradients)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let w = Quantized { scheme: self.scheme, arrays: inputs[1..].to_vec() };
            let w = dequantize(&w, Some(inputs[0].dtype()))?;
            let w = if self.transpose { swapaxes(&w, -1, -2)? } else { w };
            Ok(vec![matmul(&inputs[0], &w)?])
        };
        Some(composed())
    }
}
