//! `rms_norm` and `layer_norm` of a sum that is needed, too: the residual stream of a transformer. The sum
//! is written while its squares are added up, and not read again.

#[cfg(feature = "gpu")]
use super::gpu;
use super::{
    LayerNormBackward, Norm, RmsNormBackward, SHAPES, cpu, expect_eps, expect_like_x, expect_row,
    expect_rows, layer_norm, like, rms_norm,
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
    // Many rows, with a weight and a sum: four arrays that have rows.
    const MANY: &[usize] = &[32, 256];
    let case = |shape: &[usize], rows: usize| {
        let last = &shape[shape.len() - 1..];
        let call = |x: &[Array]| {
            let (y, sum) = match x.get(3) {
                Some(bias) => add_layer_norm(&x[0], &x[1], &x[2], bias, EPS)?,
                None => add_rms_norm(&x[0], &x[1], &x[2], EPS)?,
            };
            Ok(vec![y, sum])
        };
        let inputs = [&[shape, shape][..], &vec![last; rows]].concat();
        let reason = match rows {
            1 => "the sum is rounded, and its normalised values before they meet the weight",
            _ => "the sum is rounded",
        };
        Case::new(format!("{shape:?}, {rows}"), &inputs, call)
            .tolerance(Tolerance::Rounded(1.5, reason))
    };
    let entry = |name, rows: usize| {
        let mut cases: Vec<Case> = SHAPES.iter().map(|shape| case(shape, rows)).collect();
        cases.push(case(MANY, rows).moves(4 * MANY[0] * MANY[1], 1.1));
        Entry { name, cases }
    };
    vec![entry("add_rms_norm", 1), entry("add_layer_norm", 2)]
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
    AddNorm::new(false, eps).apply(&[x, residual, weight])
}

/// [`layer_norm`] of `x + residual`, and that sum.
///
/// ```
/// use wootz::{Array, add_layer_norm};
/// let (x, residual) = (Array::new([[1.0f32, 3.0]])?, Array::new([[0.0f32, 4.0]])?);
/// let (weight, bias) = (Array::new([5.0f32, 10.0])?, Array::new([0.5f32, 0.5])?);
/// let (y, sum) = add_layer_norm(&x, &residual, &weight, &bias, 0.0)?;
/// assert_eq!((y.to_vec::<f32>()?, sum.to_vec::<f32>()?), (vec![-4.5, 10.5], vec![1.0, 7.0]));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn add_layer_norm(
    x: &Array,
    residual: &Array,
    weight: &Array,
    bias: &Array,
    eps: f32,
) -> Result<(Array, Array)> {
    AddNorm::new(true, eps).apply(&[x, residual, weight, bias])
}

/// [`add_rms_norm`] and [`add_layer_norm`] as an operation on row-major arrays.
#[derive(Clone, Copy, Debug)]
pub struct AddNorm(Norm);

impl AddNorm {
    /// With inputs `x`, `residual` and the weight, and a bias if rows are centred.
    fn new(centred: bool, eps: f32) -> AddNorm {
        let biased = centred;
        AddNorm(Norm { added: true, weighted: true, centred, biased, eps, ..Norm::default() })
    }

    fn apply(self, inputs: &[&Array]) -> Result<(Array, Array)> {
        let dtype = inputs.iter().map(|x| x.dtype()).reduce(DType::promote);
        let inputs = (inputs.iter())
            .map(|x| astype(x, dtype.unwrap_or(x.dtype()))?.contiguous())
            .collect::<Result<Vec<_>>>()?;
        let outputs = Array::apply_all(self, &inputs.iter().collect::<Vec<_>>())?;
        let mut outputs = outputs.into_iter();
        match (outputs.next(), outputs.next()) {
            (Some(y), Some(sum)) => Ok((y, sum)),
            _ => Err(Error::argument(self.name(), "outputs", "two arrays", "fewer")),
        }
    }
}

impl Op for AddNorm {
    fn name(&self) -> &'static str {
        if self.0.centred { "add_layer_norm" } else { "add_rms_norm" }
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.0.biased {
            true => &["x", "residual", "weight", "bias", "y", "sum"],
            false => &["x", "residual", "weight", "y", "sum"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 2 + self.0.sums())?;
        let columns = expect_rows(self, inputs)?;
        expect_like_x(self, inputs, 1)?;
        for input in 2..inputs.len() {
            expect_row(self, inputs, input, columns)?;
        }
        expect_eps(self, self.0.eps)?;
        let mut outputs = like(self, inputs[0])?;
        outputs.extend(like(self, inputs[0])?);
        Ok(outputs)
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::forward_of_sum(call, self.0)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::forward(call, self.0)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let (weight, sum, eps, direct) = (&inputs[2], &outputs[1], self.0.eps, &cotangents[1]);
        let mut gradients: Vec<Option<Array>> = match &cotangents[0] {
            Some(dy) => {
                let given: Vec<&Array> = [Some(sum), Some(weight), Some(dy), direct.as_ref()]
                    .into_iter()
                    .flatten()
                    .collect();
                let gradients = match self.0.centred {
                    true => LayerNormBackward::new(eps, true, true).apply(&given)?,
                    false => RmsNormBackward::new(eps).apply(&given)?,
                };
                gradients.into_iter().map(Some).collect()
            }
            None => {
                let mut gradients = vec![None; 1 + self.0.sums()];
                gradients[0] = direct.clone();
                gradients
            }
        };
        gradients.insert(0, gradients[0].clone());
        Ok(gradients)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let sum = add(&inputs[0], &inputs[1])?;
            let y = match inputs.get(3) {
                Some(bias) => layer_norm(&sum, Some(&inputs[2]), Some(bias), self.0.eps)?,
                None => rms_norm(&sum, Some(&inputs[2]), self.0.eps)?,
            };
            Ok(vec![y, sum])
        };
        Some(composed())
    }
}
