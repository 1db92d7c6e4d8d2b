//! `rms_norm` of a sum that is needed, too: the residual stream of a transformer. The sum is written
//! while its squares are added up, and not read again.

#[cfg(feature = "gpu")]
use super::gpu;
use super::{
    Norm, SHAPES, cpu, expect_eps, expect_like_x, expect_row, expect_rows, like, rms_norm,
    rms_norm_backward,
};
use crate::array::{Array, DType, Meta};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Case, Entry, Metas, Op, Tolerance, expect_inputs};
use crate::ops::{add, astype};

/// Cases.
pub(super) fn entries() -> Vec<Entry> {
    // Large enough that finite differences of short rows stay smooth.
    const EPS: f32 = 0.1;
    // Many rows, with a weight and a sum: five arrays, of which four have rows.
    const MANY: &[usize] = &[32, 256];
    let case = |shape: &[usize]| {
        let last = &shape[shape.len() - 1..];
        let call = |x: &[Array]| {
            let (y, sum) = add_rms_norm(&x[0], &x[1], &x[2], EPS)?;
            Ok(vec![y, sum])
        };
        Case::new(format!("{shape:?}"), &[shape, shape, last], call).tolerance(Tolerance::Reduction)
    };
    let mut cases: Vec<Case> = SHAPES.iter().map(|shape| case(shape)).collect();
    cases.push(case(MANY).moves(4 * MANY[0] * MANY[1], 1.1));
    vec![Entry { name: "add_rms_norm", cases }]
}

/// [`rms_norm`] of `x + residual`, and that sum.
///
/// ```
/// use wootz::{Array, add_rms_norm};
/// let (x, residual) = (Array::new([[1.0f32, 3.0]])?, Array::new([[0.0f32, 4.0]])?);
/// let (y, sum) = add_rms_norm(&x, &residual, &Array::new([5.0f32, 10.0])?, 0.0)?;
/// assert_eq!((y.to_vec::<f32>()?, sum.to_vec::<f32>()?), (vec![1.0, 14.0], vec![1.0, 7.0]));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn add_rms_norm(
    x: &Array,
    residual: &Array,
    weight: &Array,
    eps: f32,
) -> Result<(Array, Array)> {
    let dtype = DType::promote(DType::promote(x.dtype(), residual.dtype()), weight.dtype());
    let inputs = [x, residual, weight].map(|x| astype(x, dtype)?.contiguous());
    let [x, residual, weight] = inputs;
    let op = AddRmsNorm { eps };
    let mut outputs = Array::apply_all(op, &[&x?, &residual?, &weight?])?.into_iter();
    match (outputs.next(), outputs.next()) {
        (Some(y), Some(sum)) => Ok((y, sum)),
        _ => Err(Error::argument("add_rms_norm", "outputs", "two arrays", "fewer")),
    }
}

/// [`add_rms_norm`] as an operation on row-major arrays `x`, `residual` and `weight`.
#[derive(Clone, Copy, Debug)]
pub struct AddRmsNorm {
    eps: f32,
}

impl AddRmsNorm {
    fn norm(self) -> Norm {
        Norm { added: true, weighted: true, eps: self.eps, ..Norm::default() }
    }
}

impl Op for AddRmsNorm {
    fn name(&self) -> &'static str {
        "add_rms_norm"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "residual", "weight", "y", "sum"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 3)?;
        let columns = expect_rows(self, inputs)?;
        expect_like_x(self, inputs, 1)?;
        expect_row(self, inputs, 2, columns)?;
        expect_eps(self, self.eps)?;
        let mut outputs = like(self, inputs[0])?;
        outputs.extend(like(self, inputs[0])?);
        Ok(outputs)
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::forward_of_sum(call, self.norm())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::forward(call, self.norm())
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let weight = &inputs[2];
        let (to_sum, to_weight) = match &cotangents[0] {
            Some(dy) => {
                let (dx, dw) = rms_norm_backward(&outputs[1], weight, dy, self.eps)?;
                (Some(dx), Some(dw))
            }
            None => (None, None),
        };
        let to_sum = match (to_sum, &cotangents[1]) {
            (Some(a), Some(b)) => Some(add(a, b)?),
            (a, b) => a.or_else(|| b.clone()),
        };
        Ok(vec![to_sum.clone(), to_sum, to_weight])
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let sum = add(&inputs[0], &inputs[1])?;
            Ok(vec![rms_norm(&sum, Some(&inputs[2]), self.eps)?, sum])
        };
        Some(composed())
    }
}
