//! `gather_qmm`: products with quantized matrices that indices choose, the experts of a sparse model.

use super::quantize::{group_gradients, widened};
use super::{
    Quantized, cpu, dequantize, expect_indices, expect_weights, expect_x, quantized_matmul_with,
    weights_shape,
};
use crate::array::{Array, Meta, broadcast_shapes};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Metas, Op, expect_inputs};
use crate::ops::indexing::offsets::{check_index_dtype, common_index_dtype};
use crate::ops::movement::arange_on;
use crate::ops::{
    GatherMmBackward, Reduce, astype, broadcast_to, expand_dims, matmul, reshape, scatter,
    swapaxes, take, zeros_like,
};
use crate::quant::{Activations, Scheme, activations};

/// What is expected where there is nothing to choose from.
const NO_INDICES: &str = "no indices into axes without matrices";

/// `x[lhs_indices] @ w[rhs_indices].T`, or without the transposition: as [`gather_mm`](crate::gather_mm) with
/// quantized weights. Indices count the matrices of all axes before the last two and broadcast together;
/// those that are not given choose the matrices in their order. `sorted_indices` is there because MLX has it. On
/// the CPU `x` is rounded as [`quant::activations`](activations()) says. What is not finite comes through as in
/// [`quantized_matmul`](super::quantized_matmul).
///
/// ```
/// use wootz::quant::Format;
/// use wootz::{Array, DType, gather_qmm, quantize};
/// let experts = quantize(&Array::ones(&[4, 3, 32], DType::F32)?, Format::Q4_0)?;
/// let tokens = Array::ones(&[2, 1, 32], DType::F32)?;
/// let y = gather_qmm(&tokens, &experts, None, Some(&Array::new([3, 0])?), true, false)?;
/// assert_eq!(y.shape(), [2, 1, 3]);
/// assert_eq!(y.to_vec::<f32>()?, [32.0; 6]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn gather_qmm(
    x: &Array,
    w: &Quantized,
    lhs_indices: Option<&Array>,
    rhs_indices: Option<&Array>,
    transpose: bool,
    _sorted_indices: bool,
) -> Result<Array> {
    gather_qmm_with(x, w, [lhs_indices, rhs_indices], transpose, activations())
}

/// [`gather_qmm`] with a choice of how `x` is rounded.
pub(super) fn gather_qmm_with(
    x: &Array,
    w: &Quantized,
    [lhs_indices, rhs_indices]: [Option<&Array>; 2],
    transpose: bool,
    activations: Activations,
) -> Result<Array> {
    const OP: &str = "gather_qmm";
    if lhs_indices.is_none() && rhs_indices.is_none() {
        return quantized_matmul_with(x, w, transpose, activations);
    }
    let dtype = w.product_dtype(OP, x)?;
    let weights = w.shape();
    for (name, shape) in [("x", x.shape()), ("codes", &weights[..])] {
        if shape.len() < 2 {
            return Err(Error::shape(OP, name, "two axes or more", shape));
        }
    }
    let count = |shape: &[usize]| shape[..shape.len() - 2].iter().product::<usize>();
    let implied = if lhs_indices.is_none() { count(x.shape()) } else { count(&weights) };
    let given = [lhs_indices, rhs_indices].map(|indices| indices.map(Array::dtype));
    let common = common_index_dtype(given, implied);
    let index = |name: &str, indices: Option<&Array>, shape: &[usize]| {
        let Some(indices) = indices else {
            let all = arange_on(0.0, count(shape) as f64, 1.0, common, x.device())?;
            return reshape(&all, &shape[..shape.len() - 2]);
        };
        check_index_dtype(OP, name, indices.dtype())?;
        if indices.size() > 0 && count(shape) == 0 {
            return Err(Error::argument(OP, name, NO_INDICES, indices.size()));
        }
        astype(indices, common)
    };
    let (lhs, rhs) = (
        index("lhs_indices", lhs_indices, x.shape())?,
        index("rhs_indices", rhs_indices, &weights)?,
    );
    let shape = broadcast_shapes(OP, lhs.shape(), rhs.shape())?;
    let flat = |indices: &Array| {
        reshape(&broadcast_to(indices, &shape)?, &[shape.iter().product()])?.contiguous()
    };
    let x = astype(x, dtype)?;
    let x_batch = x.shape()[..x.rank() - 2].iter().product();
    let x = reshape(&x, &[&[x_batch], &x.shape()[x.rank() - 2..]].concat())?;
    let w = w.with_batch(&[weights[..weights.len() - 2].iter().product()])?;
    let op = GatherQmm { scheme: w.scheme, transpose, activations };
    let products = apply(op, &x, &w, &flat(&lhs)?, &flat(&rhs)?)?;
    reshape(&products, &[&shape[..], &products.shape()[1..]].concat())
}

/// The operation on row-major arrays.
fn apply(op: GatherQmm, x: &Array, w: &Quantized, lhs: &Array, rhs: &Array) -> Result<Array> {
    let (x, w) = (x.contiguous()?, w.contiguous()?);
    let inputs: Vec<&Array> = [&x].into_iter().chain(&w.arrays).chain([lhs, rhs]).collect();
    Array::apply(op, &inputs)
}

/// `out[i] = x[lhs_indices[i]] @ w[rhs_indices[i]]` for `x` of `[a, m, k]` and weights as
/// [`QuantizedMatmul`](super::QuantizedMatmul) takes them, all row-major: `x`, the arrays of the weights,
/// and two vectors of indices of one dtype, which count from the front. The lazy function is
/// [`gather_qmm`].
#[derive(Clone, Copy, Debug)]
pub struct GatherQmm {
    /// How the weights are quantized.
    pub scheme: Scheme,
    /// Whether rows of the weights are columns of the matrices that `x` is multiplied with.
    pub transpose: bool,
    /// How the CPU rounds `x`.
    pub activations: Activations,
}

impl Op for GatherQmm {
    fn name(&self) -> &'static str {
        "gather_qmm"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.scheme.arrays() {
            1 => &["x", "codes", "lhs_indices", "rhs_indices", "output"],
            2 => &["x", "codes", "scales", "lhs_indices", "rhs_indices", "output"],
            _ => &["x", "codes", "scales", "biases", "lhs_indices", "rhs_indices", "output"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let arrays = self.scheme.arrays();
        expect_inputs(self, inputs, 3 + arrays)?;
        expect_weights(self, self.scheme, inputs, 1)?;
        let count = expect_indices(self, inputs, 1 + arrays)?;
        let (x, w) = (inputs[0].shape(), weights_shape(self.scheme, inputs[1]));
        let (&[lefts, m, _], &[_, rows, columns]) = (x, &w[..]) else {
            return Err(Error::shape(
                self.name(),
                "x",
                "[a, m, k], for weights of as many axes",
                x,
            ));
        };
        let (inner, outer) = if self.transpose { (columns, rows) } else { (rows, columns) };
        expect_x(self, inputs, &[lefts, m, inner])?;
        for (name, matrices) in [("lhs_indices", lefts), ("rhs_indices", w[0])] {
            if count > 0 && matrices == 0 {
                return Err(Error::argument(self.name(), name, NO_INDICES, count));
            }
        }
        Ok(Metas::from_elem(Meta::new(self.name(), &[count, m, outer], inputs[0].dtype)?, 1))
    }

    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        match gpu {
            #[cfg(feature = "gpu")]
            true => super::gpu::gather_scratch(self.scheme, self.transpose, inputs),
            _ => cpu::scratch(self.scheme, self.transpose, self.activations, inputs),
        }
    }

    fn reads_bytes(&self, input: usize) -> bool {
        (1..=self.scheme.arrays()).contains(&input)
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::gather(call, self.scheme, self.transpose, self.activations)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        super::gpu::gather(call, self.scheme, self.transpose)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(g) = &cotangents[0] else { return Ok(vec![None; inputs.len()]) };
        let [x, arrays @ .., lhs, rhs] = inputs else { return Ok(vec![None; inputs.len()]) };
        let w = Quantized { scheme: self.scheme, arrays: arrays.to_vec() };
        let order = arange_on(0.0, lhs.size() as f64, 1.0, lhs.dtype(), lhs.device())?;
        let op = GatherQmm { transpose: !self.transpose, ..*self };
        let each = apply(op, g, &w, &order, rhs)?;
        let dx = scatter(&zeros_like(x)?, &[lhs], &expand_dims(&each, 1)?, &[0], Reduce::Add)?;
        let mut gradients = vec![Some(dx)];
        gradients.extend(match self.scheme {
            Scheme::Affine { .. } => {
                let op = GatherMmBackward::new(w.shape()[0], self.transpose);
                let dw = Array::apply(op, &[&widened(x)?, &widened(g)?, lhs, rhs])?;
                group_gradients(self.scheme, arrays, &dw)?
            }
            _ => vec![None; arrays.len()],
        });
        gradients.extend([None, None]);
        Ok(gradients)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let [x, arrays @ .., lhs, rhs] = inputs else { return Ok(Vec::new()) };
            let w = Quantized { scheme: self.scheme, arrays: arrays.to_vec() };
            let w = take(&dequantize(&w, Some(x.dtype()))?, rhs, Some(0))?;
            let w = if self.transpose { swapaxes(&w, -1, -2)? } else { w };
            Ok(vec![matmul(&take(x, lhs, Some(0))?, &w)?])
        };
        Some(composed())
    }
}
