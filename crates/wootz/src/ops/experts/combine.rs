//! The results of each token's experts summed with their weights, and both gradients, which are an
//! operation of their own. Results may be of a narrow dtype beside weights of the wide one: kernels
//! widen them as they read.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;

use crate::array::{Array, DType, Meta};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Batch, Case, Entry, Metas, Op, Tolerance, argument_name, evaluate_argument, expect_contiguous,
    expect_dtype, expect_float, expect_inputs, expect_shape,
};
use crate::ops::{astype, expand_dims, matmul, multiply, squeeze, sum};

/// Cases of both operations.
pub(super) fn entries() -> Vec<Entry> {
    // The last is too long for a GPU to keep its rows in registers.
    let shapes: [&[usize]; 6] =
        [&[2, 3, 4, 5], &[3, 1, 7], &[1025, 2, 3], &[0, 2, 3], &[2, 5, 1030], &[1, 3, 8204]];
    // Where a GPU's bytes are counted.
    const MANY: [usize; 3] = [16, 4, 256];
    const SUMMED: usize = MANY[0] * MANY[2];
    const RESULTS: usize = MANY[1] * SUMMED;
    let forward = |shape: &[usize], wide: bool| {
        let label = if wide { "wide weights, " } else { "" };
        Case::new(format!("{label}{shape:?}"), &[shape, &shape[..shape.len() - 1]], move |x| {
            Ok(vec![combine_experts(&x[0], &weights_as(&x[1], wide)?)?])
        })
        .tolerance(Tolerance::Contraction)
    };
    let backward = |shape: &[usize], wide: bool| {
        let (label, k) = (if wide { "wide weights, " } else { "" }, shape.len() - 2);
        let summed = [&shape[..k], &shape[k + 1..]].concat();
        let shapes = [shape, &shape[..=k], &summed];
        Case::new(format!("{label}{shape:?}"), &shapes, move |x| {
            combine_experts_backward(&x[0], &weights_as(&x[1], wide)?, &x[2])
        })
        .tolerance(Tolerance::Contraction)
    };
    let mut cases: Vec<Case> = shapes.iter().map(|shape| forward(shape, false)).collect();
    cases.extend([&[2, 3, 4, 5][..], &[3, 2, 257]].map(|shape| forward(shape, true)));
    let mut gradients: Vec<Case> = shapes.iter().map(|shape| backward(shape, false)).collect();
    gradients.extend([&[2, 3, 4, 5][..], &[3, 2, 257]].map(|shape| backward(shape, true)));
    for wide in [false, true] {
        cases.push(forward(&MANY, wide).moves(RESULTS + SUMMED, 1.1));
        gradients.push(backward(&MANY, wide).moves(2 * RESULTS + SUMMED, 1.1));
    }
    vec![
        Entry { name: "combine_experts", cases },
        Entry { name: "combine_experts_backward", cases: gradients },
    ]
}

/// The weights of a case, maybe in the dtype of sums.
fn weights_as(weights: &Array, wide: bool) -> Result<Array> {
    if !wide {
        return Ok(weights.clone());
    }
    let weights = astype(weights, sums(weights.dtype()))?;
    evaluate_argument(&weights)?;
    Ok(weights)
}

/// The results of each token's experts, `[…, k, dims]`, summed with `weights` of `[…, k]`. Summed
/// in the wider dtype of both, at least in single precision, and rounded to that of the results.
///
/// ```
/// use wootz::{Array, combine_experts};
/// let y = Array::new([[[1.0f32, 2.0], [10.0, 20.0]]])?;
/// let weights = Array::new([[0.5f32, 0.25]])?;
/// assert_eq!(combine_experts(&y, &weights)?.to_vec::<f32>()?, [3.0, 6.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn combine_experts(y: &Array, weights: &Array) -> Result<Array> {
    const OP: &str = "combine_experts";
    let dtype = y.dtype();
    if y.rank() < 2 || y.shape()[..y.rank() - 1] != *weights.shape() {
        let expected = format!("{:?}", &y.shape()[..y.rank().saturating_sub(1)]);
        return Err(Error::shape(OP, "weights", expected, weights.shape()));
    }
    // Sums have the dtype of the results, and integers would cut them off.
    if !dtype.is_float() {
        return Err(Error::dtype(OP, "y", "a floating-point type", dtype));
    }
    if weights.dtype().is_complex() {
        return Err(Error::dtype(OP, "weights", "a real type", weights.dtype()));
    }
    let wide = DType::promote(sums(dtype), weights.dtype());
    if wide != sums(dtype) {
        return astype(&combine_experts(&astype(y, wide)?, weights)?, dtype);
    }
    if y.size() == 0 {
        return sum(y, -2, false);
    }
    let as_they_are = weights.dtype() == dtype;
    let weights = if as_they_are { weights.clone() } else { astype(weights, wide)? };
    Array::apply(CombineExperts, &[&y.contiguous()?, &weights.contiguous()?])
}

/// The gradients of `y` and `weights`, given that of the sums.
fn combine_experts_backward(y: &Array, weights: &Array, dy: &Array) -> Result<Vec<Array>> {
    if y.size() == 0 {
        return composed_backward(y, weights, dy);
    }
    let inputs = [y.contiguous()?, weights.contiguous()?, dy.contiguous()?];
    Ok(Array::apply_all(CombineExpertsBackward, &inputs.each_ref())?.into_vec())
}

/// The dtype that products are summed in.
fn sums(dtype: DType) -> DType {
    DType::promote(dtype, DType::F32)
}

/// Experts of a token, and the elements of a result.
fn sizes(y: &Meta) -> (usize, usize) {
    match *y.shape() {
        [.., experts, columns] => (experts, columns),
        _ => (1, 1),
    }
}

/// Checks `y` and `weights`, and tells the shape of the sums.
fn expect_results(op: &dyn Op, inputs: &[&Meta]) -> Result<Vec<usize>> {
    let (y, weights) = (inputs[0], inputs[1]);
    expect_float(op, inputs, 0)?;
    let [tokens @ .., experts, columns] = y.shape() else {
        let expected = "one of at least two axes";
        return Err(Error::shape(op.name(), argument_name(op, 0), expected, y.shape()));
    };
    if weights.dtype != y.dtype {
        expect_dtype(op, inputs, 1, sums(y.dtype))?;
    }
    expect_shape(op, inputs, 1, &[tokens, &[*experts]].concat())?;
    expect_contiguous(op, inputs, 0)?;
    expect_contiguous(op, inputs, 1)?;
    Ok([tokens, &[*columns]].concat())
}

/// The lazy function is [`combine_experts`]: `y`, `[…, k, dims]`, summed with `weights` of `[…, k]`, in the dtype of
/// `y` or that of its sums. Both are row-major.
#[derive(Clone, Copy, Debug)]
pub struct CombineExperts;

/// The gradients of [`CombineExperts`]' inputs, given `y`, `weights`, and the gradient of the sums in the dtype of `y`.
/// All are row-major.
#[derive(Clone, Copy, Debug)]
pub struct CombineExpertsBackward;

impl Op for CombineExperts {
    fn name(&self) -> &'static str {
        "combine_experts"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["y", "weights", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 2)?;
        let shape = expect_results(self, inputs)?;
        Ok(Metas::from_elem(Meta::new(self.name(), &shape, inputs[0].dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::forward(call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::forward(call)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let ([y, weights], [Some(dy)]) = (inputs, cotangents) else {
            return Ok(vec![None; inputs.len()]);
        };
        let gradients = combine_experts_backward(y, weights, dy)?;
        Ok(gradients.into_iter().map(Some).collect())
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let (y, weights) = (&inputs[0], &inputs[1]);
            let combined = matmul(&expand_dims(weights, -2)?, y)?;
            Ok(vec![astype(&squeeze(&combined, -2)?, y.dtype())?])
        };
        Some(composed())
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

impl Op for CombineExpertsBackward {
    fn name(&self) -> &'static str {
        "combine_experts_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["y", "weights", "dy", "y_gradient", "weights_gradient"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 3)?;
        let shape = expect_results(self, inputs)?;
        expect_dtype(self, inputs, 2, inputs[0].dtype)?;
        expect_shape(self, inputs, 2, &shape)?;
        expect_contiguous(self, inputs, 2)?;
        let like = |input: &Meta| Meta::new(self.name(), input.shape(), input.dtype);
        Ok(Metas::from_iter([like(inputs[0])?, like(inputs[1])?]))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::backward(call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::backward(call)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(composed_backward(&inputs[0], &inputs[1], &inputs[2]))
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

fn composed_backward(y: &Array, weights: &Array, dy: &Array) -> Result<Vec<Array>> {
    let wide = sums(y.dtype());
    let dy = expand_dims(&astype(dy, wide)?, -2)?;
    let of_y = multiply(&dy, expand_dims(&astype(weights, wide)?, -1)?)?;
    let of_weights = sum(&multiply(&dy, astype(y, wide)?)?, -1, false)?;
    Ok(vec![astype(&of_y, y.dtype())?, astype(&of_weights, weights.dtype())?])
}
