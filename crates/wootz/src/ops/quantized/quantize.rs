//! `quantize`, `dequantize` and what is made of both.

use super::{Quantized, cpu, expect_weights, weights_shape};
use crate::array::{Array, DType, Meta};
use crate::autograd::custom;
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Metas, Op, expect_contiguous, expect_float, expect_inputs};
use crate::ops::elementwise::to_device_for;
use crate::ops::{astype, multiply, ones_like, reshape, sum, zeros_like};
use crate::quant::Scheme;

/// Quantizes along the last axis. Affine and float schemes give what MLX gives on the CPU, bit by bit, on the CPU and on GPUs
/// whose division rounds exactly. Others, as Metal with fast math may be, may differ in the last bit of a scale, and in codes
/// of weights that lie in the middle between two; scales and biases then have the dtype of `w`, or `float32` for `float64`. NaN counts as zero, and an infinity as the largest finite
/// `float16` of its sign. Weights that are so large, or so far apart, that the scale of their group could not be held are
/// brought nearer to zero: whatever is quantized decodes to finite numbers, in the dtype of affine scales, else in `float32`. GGUF's blocks are encoded on the CPU, wherever `w` is; so
/// [`compile`](crate::compile) refuses that on a GPU. For MLX's global scale of
/// nvfp4 see [`quantize_global`](super::quantize_global).
///
/// ```
/// use wootz::quant::Scheme;
/// use wootz::{Array, dequantize, quantize};
/// let w = wootz::arange(0.0, 64.0, 1.0, wootz::DType::F32)?.reshape(&[1, 64])?;
/// let q = quantize(&w, Scheme::new("affine", Some(64), Some(8))?)?;
/// let back = dequantize(&q, None)?.to_vec::<f32>()?;
/// assert!(back.iter().enumerate().all(|(i, x)| (x - i as f32).abs() < 0.13));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn quantize(w: &Array, scheme: impl Into<Scheme>) -> Result<Quantized> {
    let scheme = scheme.into();
    let op = Quantize { scheme };
    let w = match w.dtype() {
        DType::F64 => astype(w, DType::F32)?,
        _ => w.clone(),
    };
    let on_cpu = matches!(scheme, Scheme::Blocks(_)) && w.device().is_gpu();
    let device = w.device().clone();
    let w = if on_cpu { to_device_for("quantize", &w, &crate::Device::cpu())? } else { w };
    let arrays = Array::apply_all(op, &[&w.contiguous()?])?;
    let back = |x: Array| if on_cpu { to_device_for("quantize", &x, &device) } else { Ok(x) };
    Ok(Quantized { scheme, arrays: arrays.into_iter().map(back).collect::<Result<_>>()? })
}

/// Decodes quantized weights to a dtype: without one to that of the scales of an affine scheme, else to
/// `bfloat16`, as in MLX; blocks to `float32`.
///
/// Values are what MLX and the `gguf` package give, bit by bit: those of an affine scheme are computed in
/// the dtype of the scales. Scales that are NaN or infinite, as only a damaged file has them, make weights of their
/// group that are so.
///
/// ```
/// use wootz::quant::Format;
/// use wootz::{Array, dequantize, quantize};
/// let q = quantize(&Array::ones(&[2, 32], wootz::DType::F32)?, Format::Q4_0)?;
/// assert_eq!(dequantize(&q, None)?.sum(())?.item::<f32>()?, 64.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn dequantize(q: &Quantized, dtype: Option<DType>) -> Result<Array> {
    let own = match q.scheme {
        Scheme::Affine { .. } => q.arrays[1].dtype(),
        Scheme::Blocks(_) => DType::F32,
        _ => DType::BF16,
    };
    let wanted = dtype.unwrap_or(own);
    if !wanted.is_float() {
        return Err(Error::argument("dequantize", "dtype", "a floating-point type", wanted));
    }
    // Others are decoded once and rounded once.
    let direct = !matches!(q.scheme, Scheme::Affine { .. })
        && matches!(wanted, DType::F32 | DType::F16 | DType::BF16);
    let decoded = match q.scheme {
        Scheme::Affine { .. } => own,
        _ if direct => wanted,
        _ => DType::F32,
    };
    let q = q.contiguous()?;
    let op = Dequantize { scheme: q.scheme, dtype: decoded };
    astype(&Array::apply(op, &q.arrays.iter().collect::<Vec<_>>())?, wanted)
}

/// What `w` is after it was quantized and decoded, in the dtype of `w`: finite, also where `w` is not,
/// other than blocks and floats near the largest `float16` in that dtype. As [`quantize`] it encodes GGUF's blocks on the
/// CPU, which [`compile`](crate::compile) refuses on a GPU. The gradient
/// goes straight through, as if nothing had been rounded: for training that knows of the quantization.
///
/// ```
/// use wootz::quant::Scheme;
/// use wootz::{Array, fake_quantize, grad};
/// let w = wootz::arange(0.0, 32.0, 1.0, wootz::DType::F32)?.reshape(&[1, 32])?;
/// let scheme = Scheme::new("affine", Some(32), Some(2))?;
/// let loss = grad(|w: &[Array]| fake_quantize(&w[0], scheme)?.sum(()));
/// assert_eq!(loss(&[w])?[0].sum(())?.item::<f32>()?, 32.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn fake_quantize(w: &Array, scheme: impl Into<Scheme>) -> Result<Array> {
    let scheme = scheme.into();
    let rounded = custom(move |w: &[Array]| {
        Ok(vec![dequantize(&quantize(&w[0], scheme)?, Some(w[0].dtype()))?])
    });
    let straight = rounded
        .with_vjp(|_, cotangents, _| Ok(cotangents.to_vec()))
        .with_jvp(|_, tangents| Ok(tangents.to_vec()));
    Ok(straight.call(std::slice::from_ref(w))?.remove(0))
}

impl Array {
    /// See [`quantize`].
    pub fn quantize(&self, scheme: impl Into<Scheme>) -> Result<Quantized> {
        quantize(self, scheme)
    }
}

/// Quantizes the rows of a row-major array: codes, and the scales and biases that the scheme has. The
/// lazy function is [`quantize`].
#[derive(Clone, Copy, Debug)]
pub struct Quantize {
    /// How.
    pub scheme: Scheme,
}

impl Op for Quantize {
    fn name(&self) -> &'static str {
        "quantize"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["w", "codes", "scales", "biases"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        expect_float(self, inputs, 0)?;
        expect_contiguous(self, inputs, 0)?;
        self.scheme.check(self.name())?;
        let (w, granule) = (inputs[0], self.scheme.granule());
        if let Scheme::Blocks(format) = self.scheme
            && !format.encodes()
        {
            return Err(format.cannot_encode(self.name()));
        }
        let width = match w.shape() {
            [.., _, width] if width % granule == 0 => *width,
            shape => {
                let expected = format!("two axes or more, the last a multiple of {granule}");
                return Err(Error::shape(self.name(), "w", expected, shape));
            }
        };
        let rows = &w.shape()[..w.shape().len() - 1];
        let scales = match self.scheme {
            Scheme::Affine { .. } => w.dtype,
            _ => DType::U8,
        };
        let codes = if self.scheme.bits().is_some() { DType::U32 } else { DType::U8 };
        let mut outputs = vec![(self.scheme.codes(width), codes)];
        if let Some(group) = self.scheme.group_size() {
            outputs.resize(self.scheme.arrays(), (width / group, scales));
        }
        let meta = |(width, dtype)| Meta::new(self.name(), &[rows, &[width]].concat(), dtype);
        outputs.into_iter().map(meta).collect()
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::quantize(call, self.scheme)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        super::gpu::quantize(call, self.scheme)
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        let reason = "codes are whole numbers; fake_quantize has a straight-through gradient";
        Err(Error::not_differentiable(self.name(), reason))
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

/// Decodes row-major quantized weights. An affine scheme's dtype is that of its scales. The lazy function
/// is [`dequantize`].
#[derive(Clone, Copy, Debug)]
pub struct Dequantize {
    /// How the weights are quantized.
    pub scheme: Scheme,
    /// The dtype of the result: `float32`, `float16` or `bfloat16`.
    pub dtype: DType,
}

impl Op for Dequantize {
    fn name(&self) -> &'static str {
        "dequantize"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.scheme.arrays() {
            1 => &["codes", "w"],
            2 => &["codes", "scales", "w"],
            _ => &["codes", "scales", "biases", "w"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, self.scheme.arrays())?;
        expect_weights(self, self.scheme, inputs, 0)?;
        let fits = match self.scheme {
            Scheme::Affine { .. } => self.dtype == inputs[1].dtype,
            _ => matches!(self.dtype, DType::F32 | DType::F16 | DType::BF16),
        };
        if !fits {
            let expected = "that of affine scales, or of 32 or 16 bits";
            return Err(Error::dtype(self.name(), "dtype", expected, self.dtype));
        }
        let shape = weights_shape(self.scheme, inputs[0]);
        Ok(Metas::from_elem(Meta::new(self.name(), &shape, self.dtype)?, 1))
    }

    fn reads_bytes(&self, _: usize) -> bool {
        true
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::dequantize(call, self.scheme)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        super::gpu::dequantize(call, self.scheme)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        match &cotangents[0] {
            Some(g) => group_gradients(self.scheme, inputs, g),
            None => Ok(vec![None; inputs.len()]),
        }
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

/// In single precision at least: what is multiplied and summed in it fits, where it would not in a narrow dtype.
pub(super) fn widened(x: &Array) -> Result<Array> {
    astype(x, DType::promote(x.dtype(), DType::F32))
}

/// The gradients of the arrays that hold weights, given that of the weights: scales and biases of an affine
/// scheme have one.
pub(super) fn group_gradients(
    scheme: Scheme,
    arrays: &[Array],
    gradient: &Array,
) -> Result<Vec<Option<Array>>> {
    let Scheme::Affine { group_size, .. } = scheme else { return Ok(vec![None; arrays.len()]) };
    let (codes, scales) = (&arrays[0], &arrays[1]);
    // The codes themselves are weights of scale 1, which narrow dtypes hold: they have eight bits at most.
    let (one, zero) = (ones_like(scales)?.contiguous()?, zeros_like(scales)?.contiguous()?);
    let op = Dequantize { scheme, dtype: scales.dtype() };
    let codes = Array::apply(op, &[codes, &one, &zero])?;
    let grouped = [scales.shape(), &[group_size]].concat();
    // Products and sums are of single precision, and are rounded once.
    let wide = DType::promote(scales.dtype(), DType::F32);
    let gradient = astype(gradient, wide)?;
    let over_groups = |x: &Array| astype(&sum(&reshape(x, &grouped)?, -1, false)?, scales.dtype());
    let to_scales = over_groups(&multiply(&gradient, astype(&codes, wide)?)?)?;
    Ok(vec![None, Some(to_scales), Some(over_groups(&gradient)?)])
}
