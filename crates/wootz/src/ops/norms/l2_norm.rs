//! Rows divided by their length, and the gradient as an operation of its own.

#[cfg(feature = "gpu")]
use super::gpu;
use super::{MANY, Norm, SHAPES, cpu, expect_eps, expect_like_x, expect_rows, like, wide};
use crate::array::{Array, Meta};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Case, Entry, Metas, Op, Tolerance, expect_inputs};
use crate::ops::{add, astype, multiply, rsqrt, square, subtract, sum_keepdims};

/// Cases of both operations.
pub(super) fn entries() -> Vec<Entry> {
    // Large enough that finite differences of short rows stay smooth.
    const EPS: f32 = 0.1;
    let case = |shape: &[usize], arrays: usize, call: fn(&[Array]) -> Result<Vec<Array>>| {
        Case::new(format!("{shape:?}"), &vec![shape; arrays], call).tolerance(Tolerance::Reduction)
    };
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    for shape in SHAPES {
        forward.push(case(shape, 1, |x| Ok(vec![l2_norm(&x[0], EPS)?])));
        backward.push(case(shape, 2, |x| Ok(vec![l2_norm_backward(&x[0], &x[1], EPS)?])));
    }
    let counted = MANY[0] * MANY[1];
    forward.push(case(&MANY, 1, |x| Ok(vec![l2_norm(&x[0], EPS)?])).moves(2 * counted, 1.1));
    let gradient = case(&MANY, 2, |x| Ok(vec![l2_norm_backward(&x[0], &x[1], EPS)?]));
    backward.push(gradient.moves(3 * counted, 1.1));
    vec![
        Entry { name: "l2_norm", cases: forward },
        Entry { name: "l2_norm_backward", cases: backward },
    ]
}

/// `x` divided by the root of the sum of its squares (and `eps`) along the last axis, as queries and
/// keys of delta rules are.
///
/// On a GPU rows of up to 32,768 elements, and in the gradient of up to 8,192, are read once (of 8,192 and 4,096 where a
/// workgroup has fewer than 512 threads); longer ones are read again for each sum over them.
///
/// ```
/// use wootz::{Array, l2_norm};
/// let x = Array::new([[3.0f32, 4.0], [0.0, 0.0]])?;
/// assert_eq!(l2_norm(&x, 0.0)?.to_vec::<f32>()?[..2], [0.6, 0.8]);
/// assert_eq!(l2_norm(&x, 1e-6)?.to_vec::<f32>()?[2..], [0.0, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn l2_norm(x: &Array, eps: f32) -> Result<Array> {
    if !x.dtype().is_float() {
        return Err(Error::dtype("l2_norm", "x", "a floating-point type", x.dtype()));
    }
    Array::apply(L2Norm { eps }, &[&x.contiguous()?])
}

/// The gradient of [`l2_norm`]'s `x` in one pass over memory.
///
/// ```
/// use wootz::{Array, l2_norm_backward};
/// let (x, dy) = (Array::new([[3.0f32, 4.0]])?, Array::new([[4.0f32, -3.0]])?);
/// assert_eq!(l2_norm_backward(&x, &dy, 0.0)?.to_vec::<f32>()?, [0.8, -0.6]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn l2_norm_backward(x: &Array, dy: &Array, eps: f32) -> Result<Array> {
    Array::apply(L2NormBackward { eps }, &[&x.contiguous()?, &dy.contiguous()?])
}

fn norm(eps: f32) -> Norm {
    Norm { summed: true, eps, ..Norm::default() }
}

/// [`l2_norm`] as an operation on a row-major array.
#[derive(Clone, Copy, Debug)]
pub struct L2Norm {
    eps: f32,
}

impl Op for L2Norm {
    fn name(&self) -> &'static str {
        "l2_norm"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "y"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        expect_rows(self, inputs)?;
        expect_eps(self, self.eps)?;
        like(self, inputs[0])
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::forward(call, norm(self.eps))
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::forward(call, norm(self.eps))
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let gradient = |dy: &Array| l2_norm_backward(&inputs[0], dy, self.eps);
        Ok(vec![cotangents[0].as_ref().map(gradient).transpose()?])
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let (x, r) = widened(&inputs[0], self.eps)?;
            Ok(vec![astype(&multiply(&x, &r)?, inputs[0].dtype())?])
        };
        Some(composed())
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

/// The gradient of [`L2Norm`]'s `x`, of `x` and `dy`.
#[derive(Clone, Copy, Debug)]
pub struct L2NormBackward {
    eps: f32,
}

impl Op for L2NormBackward {
    fn name(&self) -> &'static str {
        "l2_norm_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "dy", "dx"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 2)?;
        expect_rows(self, inputs)?;
        expect_like_x(self, inputs, 1)?;
        expect_eps(self, self.eps)?;
        like(self, inputs[0])
    }

    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        // The kernel binds memory for sums over rows, of which there are none.
        if gpu { wide(inputs[0].dtype).size() } else { 0 }
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (1, 0)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::backward(call, norm(self.eps))
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::backward(call, norm(self.eps))
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let (x, r) = widened(&inputs[0], self.eps)?;
            let dy = astype(&inputs[1], x.dtype())?;
            let slope = multiply(sum_keepdims(&multiply(&dy, &x)?, &[-1])?, square(&r)?)?;
            let dx = multiply(&r, subtract(&dy, multiply(&x, slope)?)?)?;
            Ok(vec![astype(&dx, inputs[0].dtype())?])
        };
        Some(composed())
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

/// Rows in the dtype of sums, and one over their length.
fn widened(x: &Array, eps: f32) -> Result<(Array, Array)> {
    let x = astype(x, wide(x.dtype()))?;
    let r = rsqrt(add(sum_keepdims(&square(&x)?, &[-1])?, eps as f64)?)?;
    Ok((x, r))
}
