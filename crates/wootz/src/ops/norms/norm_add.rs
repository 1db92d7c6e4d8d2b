//! A sum with what `rms_norm` makes of the addend, and maybe `rms_norm` of that sum, which is needed, too: the
//! residual stream of a transformer whose layers have norms behind them. Nothing in between is stored.

#[cfg(feature = "gpu")]
use super::gpu;
use super::{
    Norm, RmsNormBackward, SHAPES, cpu, expect_eps, expect_like_x, expect_row, expect_rows, like,
    rms_norm, rms_norm_backward,
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
    const EPS: [f32; 2] = [0.1, 0.2];
    // Many rows: three arrays that have rows, and a fourth if their sum is normalised.
    const MANY: &[usize] = &[32, 256];
    let case = |shape: &[usize], weights: usize| {
        let last = &shape[shape.len() - 1..];
        let call = |x: &[Array]| match x.get(3) {
            Some(weight) => {
                let (y, sum) = rms_norm_add_rms_norm(&x[0], &x[2], &x[1], weight, EPS)?;
                Ok(vec![y, sum])
            }
            None => Ok(vec![rms_norm_add(&x[0], &x[2], &x[1], EPS[0])?]),
        };
        let inputs = [&[shape, shape][..], &vec![last; weights]].concat();
        let reason =
            "normalised values are rounded before they meet a weight, and before they are added";
        Case::new(format!("{shape:?}, {weights}"), &inputs, call)
            .tolerance(Tolerance::Rounded(1.5, reason))
    };
    let entry = |name, weights: usize| {
        let mut cases: Vec<Case> = SHAPES.iter().map(|shape| case(shape, weights)).collect();
        cases.push(case(MANY, weights).moves((2 + weights) * MANY[0] * MANY[1], 1.1));
        Entry { name, cases }
    };
    vec![entry("rms_norm_add", 1), entry("rms_norm_add_rms_norm", 2)]
}

/// `residual` plus [`rms_norm`] of `x`.
///
/// ```
/// use wootz::{Array, rms_norm_add};
/// let (x, residual) = (Array::new([[1.0f32, 7.0]])?, Array::new([[0.0f32, 4.0]])?);
/// let sum = rms_norm_add(&x, &Array::new([5.0f32, 10.0])?, &residual, 0.0)?;
/// assert_eq!(sum.to_vec::<f32>()?, [1.0, 18.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn rms_norm_add(x: &Array, weight: &Array, residual: &Array, eps: f32) -> Result<Array> {
    let mut outputs = NormAdd { first: eps, second: None }.apply(&[x, residual, weight])?;
    outputs.pop().ok_or_else(|| Error::argument("rms_norm_add", "outputs", "an array", "none"))
}

/// [`rms_norm`] of `residual` plus [`rms_norm`] of `x`, and that sum. `x` meets the first weight and the first
/// eps, the sum the second.
///
/// ```
/// use wootz::{Array, rms_norm_add_rms_norm};
/// let (x, residual) = (Array::new([[1.0f32, 7.0]])?, Array::new([[0.0f32, 2.0]])?);
/// let (first, second) = (Array::new([5.0f32, 25.0 / 7.0])?, Array::new([5.0f32, 10.0])?);
/// let (y, sum) = rms_norm_add_rms_norm(&x, &first, &residual, &second, [0.0, 0.0])?;
/// assert_eq!((y.to_vec::<f32>()?, sum.to_vec::<f32>()?), (vec![1.0, 14.0], vec![1.0, 7.0]));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn rms_norm_add_rms_norm(
    x: &Array,
    first_weight: &Array,
    residual: &Array,
    weight: &Array,
    [first_eps, eps]: [f32; 2],
) -> Result<(Array, Array)> {
    let op = NormAdd { first: first_eps, second: Some(eps) };
    let mut outputs = op.apply(&[x, residual, first_weight, weight])?.into_iter();
    match (outputs.next(), outputs.next()) {
        (Some(y), Some(sum)) => Ok((y, sum)),
        _ => Err(Error::argument(op.name(), "outputs", "two arrays", "fewer")),
    }
}

/// [`rms_norm_add`] and [`rms_norm_add_rms_norm`] as an operation on row-major arrays.
#[derive(Clone, Copy, Debug)]
pub struct NormAdd {
    /// The eps of the norm before the sum, and of the one behind it.
    first: f32,
    second: Option<f32>,
}

impl NormAdd {
    fn norm(self) -> Norm {
        Norm {
            added: true,
            first: Some(self.first),
            weighted: self.second.is_some(),
            only_sum: self.second.is_none(),
            eps: self.second.unwrap_or(self.first),
            ..Norm::default()
        }
    }

    fn apply(self, inputs: &[&Array]) -> Result<Vec<Array>> {
        let dtype = inputs.iter().map(|x| x.dtype()).reduce(DType::promote);
        let inputs = (inputs.iter())
            .map(|x| astype(x, dtype.unwrap_or(x.dtype()))?.contiguous())
            .collect::<Result<Vec<_>>>()?;
        Ok(Array::apply_all(self, &inputs.iter().collect::<Vec<_>>())?.into_vec())
    }
}

impl Op for NormAdd {
    fn name(&self) -> &'static str {
        if self.second.is_some() { "rms_norm_add_rms_norm" } else { "rms_norm_add" }
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.second {
            Some(_) => &["x", "residual", "first_weight", "weight", "y", "sum"],
            None => &["x", "residual", "weight", "sum"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 3 + self.second.is_some() as usize)?;
        let columns = expect_rows(self, inputs)?;
        expect_like_x(self, inputs, 1)?;
        for input in 2..inputs.len() {
            expect_row(self, inputs, input, columns)?;
        }
        expect_eps(self, self.first)?;
        let mut outputs = like(self, inputs[0])?;
        if let Some(eps) = self.second {
            expect_eps(self, eps)?;
            outputs.extend(like(self, inputs[0])?);
        }
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
        // The sum's gradient, also by way of its norm.
        let (mut to_sum, mut to_weight) = (cotangents.last().cloned().flatten(), None);
        if let (Some(eps), Some(dy), [_, sum]) = (self.second, &cotangents[0], outputs) {
            let given: Vec<&Array> = [Some(sum), inputs.get(3), Some(dy), to_sum.as_ref()]
                .into_iter()
                .flatten()
                .collect();
            let mut gradients = RmsNormBackward::new(eps).apply(&given)?.into_iter();
            (to_sum, to_weight) = (gradients.next(), gradients.next());
        }
        let Some(to_sum) = to_sum else { return Ok(vec![None; inputs.len()]) };
        let (dx, to_first) = rms_norm_backward(&inputs[0], &inputs[2], &to_sum, self.first)?;
        let mut gradients = vec![Some(dx), Some(to_sum), Some(to_first)];
        if self.second.is_some() {
            gradients.push(to_weight);
        }
        Ok(gradients)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let sum = add(rms_norm(&inputs[0], Some(&inputs[2]), self.first)?, &inputs[1])?;
            Ok(match self.second {
                Some(eps) => vec![rms_norm(&sum, Some(&inputs[3]), eps)?, sum],
                None => vec![sum],
            })
        };
        Some(composed())
    }
}
