//! The router as an operation: scores of rows of logits, the best of them, and their weights.

#[cfg(feature = "gpu")]
mod gpu;

use std::cmp::Ordering;

use super::{ExpertGroups, Router, Routes, Scores, Ties, composed, weights_of};
use crate::array::{Array, DType, Meta};
use crate::autograd::composed_vjp;
use crate::cpu::simd::Real;
use crate::cpu::simd::rows::Float;
use crate::cpu::tile::Storage;
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Metas, Op, argument_name, expect_contiguous, expect_float, expect_inputs, expect_shape,
};
use crate::ops::softmax::softmax_row;

/// Experts of a row that a workgroup of a GPU has room for.
pub(super) const MOST: usize = 1024;

/// [`router`](super::router) as an operation on rows of logits, then maybe the bias, in the logits' dtype or that of
/// sums, then maybe a factor for each expert in the weights' dtype.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) k: usize,
    pub(super) scores: Scores,
    pub(super) renormalise: bool,
    pub(super) groups: Option<ExpertGroups>,
    pub(super) biased: bool,
    pub(super) scaled: bool,
    pub(super) scale: f64,
    pub(super) ties: Ties,
}

impl Route {
    pub(super) fn new(options: &Router<'_>) -> Route {
        let Router { k, scores, renormalise, groups, scale, ties, .. } = *options;
        let groups = groups.filter(|groups| groups.keep < groups.count);
        let (biased, scaled) = (options.bias.is_some(), options.expert_scale.is_some());
        Route { k, scores, renormalise, groups, biased, scaled, scale, ties }
    }

    fn bias(self) -> Option<usize> {
        self.biased.then_some(1)
    }

    fn factors(self) -> Option<usize> {
        self.scaled.then_some(1 + self.biased as usize)
    }

    /// The options of the composition.
    pub(super) fn options(self, inputs: &[Array]) -> Router<'_> {
        Router {
            k: self.k,
            scores: self.scores,
            renormalise: self.renormalise,
            groups: self.groups,
            bias: self.bias().and_then(|input| inputs.get(input)),
            scale: self.scale,
            expert_scale: self.factors().and_then(|input| inputs.get(input)),
            ties: self.ties,
        }
    }
}

/// The dtype of weights.
pub(super) fn weights_dtype(scores: Scores, logits: DType) -> DType {
    match scores {
        Scores::Softmax => logits,
        Scores::Sigmoid => DType::promote(logits, DType::F32),
    }
}

impl Op for Route {
    fn name(&self) -> &'static str {
        "router"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match (self.biased, self.scaled) {
            (true, true) => &["logits", "bias", "expert_scale", "indices", "weights"],
            (true, false) => &["logits", "bias", "indices", "weights"],
            (false, true) => &["logits", "expert_scale", "indices", "weights"],
            (false, false) => &["logits", "indices", "weights"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1 + self.biased as usize + self.scaled as usize)?;
        expect_float(self, inputs, 0)?;
        expect_contiguous(self, inputs, 0)?;
        let &[rows, experts] = inputs[0].shape() else {
            return Err(Error::shape(self.name(), "logits", "[rows, experts]", inputs[0].shape()));
        };
        let logits = inputs[0].dtype;
        let (weights, sums) =
            (weights_dtype(self.scores, logits), DType::promote(logits, DType::F32));
        let dtypes = [(self.bias(), [logits, sums]), (self.factors(), [weights, weights])];
        for (input, dtypes) in dtypes {
            let Some(input) = input else { continue };
            if !dtypes.contains(&inputs[input].dtype) {
                let expected = format!("{} or {}", dtypes[0], dtypes[1]);
                let name = argument_name(self, input);
                return Err(Error::dtype(self.name(), name, expected, inputs[input].dtype));
            }
            expect_shape(self, inputs, input, &[experts])?;
            expect_contiguous(self, inputs, input)?;
        }
        let indices = Meta::new(self.name(), &[rows, self.k], DType::U32)?;
        Ok(Metas::from_iter([indices, Meta::new(self.name(), &[rows, self.k], weights)?]))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        match call.meta(0).dtype {
            DType::F32 => run_as::<f32>(call, *self),
            DType::F64 => run_as::<f64>(call, *self),
            DType::F16 => run_as::<half::f16>(call, *self),
            DType::BF16 => run_as::<half::bf16>(call, *self),
            other => Err(Error::dtype("router", "logits", "a floating-point type", other)),
        }
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::run(call, *self)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let [indices, weights] = outputs else { return Ok(vec![None; inputs.len()]) };
        if cotangents[1].is_none() {
            return Ok(vec![None; inputs.len()]);
        }
        // The choice stays as it was; the weights follow from it.
        let function = |x: &[Array]| {
            Some(weights_of(&x[0], indices, &self.options(x)).map(|weights| vec![weights]))
        };
        let outputs = std::slice::from_ref(weights);
        composed_vjp(self.name(), function, inputs, outputs, &cotangents[1..])
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let routes = composed(&inputs[0], &self.options(inputs));
        Some(routes.map(|Routes { indices, weights }| vec![indices, weights]))
    }
}

/// What logits are computed in.
trait Wide: Float + Real + bytemuck::Pod {}
impl<T: Float + Real + bytemuck::Pod> Wide for T {}

fn run_as<T>(call: &mut CpuCall<'_>, op: Route) -> Result<()>
where
    T: Storage<Wide: Wide> + Send + Sync,
{
    let experts = call.meta(0).shape().last().copied().unwrap_or(1).max(1);
    let logits = call.input::<T>(0)?;
    let numbers = |input: Option<usize>| -> Result<Option<Vec<T::Wide>>> {
        let Some(input) = input else { return Ok(None) };
        Ok(Some(match call.meta(input).dtype == call.meta(0).dtype {
            true => call.input::<T>(input)?.iter().map(|x| x.widen()).collect(),
            false => call.input::<T::Wide>(input)?.to_vec(),
        }))
    };
    let (bias, factors) = (numbers(op.bias())?, numbers(op.factors())?);
    // What is narrow is rounded after every step, as the composition does it.
    let narrow = op.scores == Scores::Softmax;
    let narrow_bias = op.bias().is_none_or(|input| call.meta(input).dtype == call.meta(0).dtype);
    let (narrowed, same): (fn(T::Wide) -> T::Wide, fn(T::Wide) -> T::Wide) =
        (|x| T::narrow(x).widen(), |x| x);
    let row = Row::<T::Wide> {
        op,
        bias: bias.as_deref(),
        factors: factors.as_deref(),
        round: if narrow { narrowed } else { same },
        round_preferred: if narrow && narrow_bias { narrowed } else { same },
    };
    let wide_weights = call.output_meta(1).dtype != call.meta(0).dtype;
    let run = |first: usize, indices: &mut [u32], write: &mut dyn FnMut(usize, T::Wide)| {
        let zero = <T::Wide as Float>::ZERO;
        let mut space = [vec![zero; experts], vec![zero; experts], vec![zero; experts]];
        let mut weights = vec![zero; op.k];
        for (number, indices) in indices.chunks_exact_mut(op.k).enumerate() {
            let start = (first + number) * experts;
            T::widen_slice(&logits[start..start + experts], &mut space[0]);
            row.choose(&mut space, indices, &mut weights);
            for (i, &weight) in weights.iter().enumerate() {
                write(number * op.k + i, weight);
            }
        }
    };
    const PER_TASK: usize = 16;
    let chunk = PER_TASK * op.k;
    if wide_weights {
        let (indices, weights) = call.outputs2::<u32, T::Wide>()?;
        threads::chunks2_mut(indices, chunk, weights, chunk, |task, indices, weights| {
            run(task * PER_TASK, indices, &mut |i, weight| weights[i] = weight);
        });
    } else {
        let (indices, weights) = call.outputs2::<u32, T>()?;
        threads::chunks2_mut(indices, chunk, weights, chunk, |task, indices, weights| {
            run(task * PER_TASK, indices, &mut |i, weight| weights[i] = T::narrow(weight));
        });
    }
    Ok(())
}

/// How a row is routed.
struct Row<'a, W> {
    op: Route,
    bias: Option<&'a [W]>,
    factors: Option<&'a [W]>,
    round: fn(W) -> W,
    round_preferred: fn(W) -> W,
}

impl<W: Wide> Row<'_, W> {
    /// The experts of a row of logits, and their weights.
    fn choose(
        &self,
        [logits, scores, preferred]: &mut [Vec<W>; 3],
        indices: &mut [u32],
        weights: &mut [W],
    ) {
        let Route { k, ties, scale, renormalise, .. } = self.op;
        match self.op.scores {
            Scores::Softmax => softmax_row(logits, scores),
            Scores::Sigmoid => {
                scores.iter_mut().zip(&*logits).for_each(|(score, &x)| *score = Real::sigmoid(x))
            }
        }
        scores.iter_mut().for_each(|score| *score = (self.round)(*score));
        preferred.copy_from_slice(scores);
        if let Some(bias) = self.bias {
            for (preferred, &bias) in preferred.iter_mut().zip(bias) {
                *preferred = (self.round_preferred)(*preferred + bias);
            }
        }
        if let Some(groups) = self.op.groups {
            self.mask_groups(groups, preferred);
        }
        let chosen = best(preferred, k, ties);
        for (i, index) in indices.iter_mut().enumerate() {
            *index = match ties {
                Ties::LowerFirst => chosen[i],
                Ties::HigherFirst => chosen[k - 1 - i],
            } as u32;
        }
        for (weight, &index) in weights.iter_mut().zip(&*indices) {
            *weight = scores[index as usize];
        }
        if renormalise {
            let mut all = weights.iter().fold(W::ZERO, |sum, &weight| sum + weight);
            all = (self.round)(all);
            if self.op.scores == Scores::Sigmoid {
                all = all + W::from_f64(1e-20);
            }
            weights.iter_mut().for_each(|weight| *weight = (self.round)(*weight / all));
        }
        if scale != 1.0 {
            let scale = (self.round)(W::from_f64(scale));
            weights.iter_mut().for_each(|weight| *weight = (self.round)(*weight * scale));
        }
        if let Some(factors) = self.factors {
            for (weight, &index) in weights.iter_mut().zip(&*indices) {
                *weight = (self.round)(*weight * factors[index as usize]);
            }
        }
    }

    /// Makes the scores of all groups but the best the lowest there are.
    fn mask_groups(&self, groups: ExpertGroups, preferred: &mut [W]) {
        let ExpertGroups { count, keep, best: taken } = groups;
        let size = preferred.len() / count;
        let of_group = |group: &[W]| {
            let chosen = best(group, taken, Ties::HigherFirst);
            let sum = chosen.iter().fold(W::ZERO, |sum, &i| sum + group[i]);
            (self.round_preferred)(sum)
        };
        let scores: Vec<W> = preferred.chunks_exact(size).map(of_group).collect();
        let kept = best(&scores, keep, self.op.ties);
        for (group, scores) in preferred.chunks_exact_mut(size).enumerate() {
            if !kept.contains(&group) {
                scores.fill(W::NEG_INFINITY);
            }
        }
    }
}

/// The `k` highest, the best first. Of equal ones those of `ties` come first; NaN is larger than everything where
/// sorting puts the best last, and comes after everything where it puts the best first.
fn best<W: Wide>(scores: &[W], k: usize, ties: Ties) -> Vec<usize> {
    let compare = |&a: &usize, &b: &usize| {
        let (x, y) = (scores[a], scores[b]);
        // Only NaN cannot be compared.
        let nan = |x: W| x.partial_cmp(&x).is_none();
        match ties {
            Ties::LowerFirst => {
                let order = y.partial_cmp(&x).unwrap_or_else(|| nan(x).cmp(&nan(y)));
                order.then(a.cmp(&b))
            }
            Ties::HigherFirst => {
                let order = y.partial_cmp(&x).unwrap_or_else(|| nan(y).cmp(&nan(x)));
                order.then(b.cmp(&a))
            }
        }
    };
    let mut order: Vec<usize> = (0..scores.len()).collect();
    if k < order.len() {
        order.select_nth_unstable_by(k, compare);
        order.truncate(k);
    }
    order.sort_unstable_by(compare);
    debug_assert!(order.windows(2).all(|pair| compare(&pair[0], &pair[1]) == Ordering::Less));
    order
}
