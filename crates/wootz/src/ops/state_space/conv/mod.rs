//! Causal convolution of each channel by itself, with the last inputs as its state.

mod backward;
#[cfg(feature = "gpu")]
mod gpu;

pub use backward::CausalConv1dBackward;

use super::{Element, Wide, expect, for_dtype, widened};
use crate::array::{Array, DType, Meta};
use crate::autograd::composed_vjp;
use crate::cpu::simd::rows::{self, Float};
use crate::cpu::simd::{Real, Vectorised};
use crate::cpu::{CpuCall, threads};
use crate::device::with_device;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Batch, Case, Entry, Metas, Op, Tolerance, expect_contiguous, expect_float, expect_inputs,
};
use crate::ops::movement::slice_axis;
use crate::ops::{add, astype, concatenate, flatten, full, moveaxis, multiply, reshape, sigmoid};

/// Cases.
pub(super) fn entries() -> Vec<Entry> {
    let case =
        |label: &str, [batch, steps, channels, taps]: [usize; 4], stated: bool, biased: bool| {
            let state: &[usize] = &[batch, taps - 1, channels];
            let mut shapes: Vec<&[usize]> = Vec::new();
            let (x, weight) = ([batch, steps, channels], [channels, taps]);
            shapes.extend([&x[..], &weight]);
            shapes.extend(stated.then_some(state));
            let bias = [channels];
            shapes.extend(biased.then_some(&bias[..]));
            Case::new(label, &shapes, move |x| {
                let (state, bias) = (stated.then(|| &x[2]), biased.then(|| &x[x.len() - 1]));
                let (y, state) = causal_conv1d(&x[0], &x[1], bias, state, biased)?;
                Ok(vec![y, state])
            })
            .tolerance(Tolerance::Contraction)
        };
    let forward = Entry {
        name: "causal_conv1d",
        cases: vec![
            case("from zeros", [2, 5, 7, 4], false, false),
            case("from a state", [2, 5, 7, 4], true, false),
            case("bias and silu", [1, 3, 6, 3], true, true)
                .tolerance(Tolerance::Because(4.0, "a sum of products goes through silu")),
            case("one step", [3, 1, 5, 4], true, false),
            case("no state", [2, 4, 3, 1], false, false),
            case("many", [1, 70, 33, 2], true, false),
            case("17 steps", [2, 17, 6, 4], true, false),
            case("255 steps", [2, 255, 3, 4], true, false),
            case("no steps", [2, 0, 3, 3], true, false),
        ],
    };
    vec![forward, backward::entry()]
}

/// Each channel of `x`, `[batch, steps, channels]`, convolved with its own `weight` of `[channels,
/// taps]` (or `[channels, taps, 1]`, as convolutions have it): a step sees itself and the `taps -
/// 1` before it. Those before the first step are the `state`, `[batch, taps - 1, channels]`, or
/// zeros. The second result is the state behind the last step. With `silu` the first goes through
/// it.
///
/// ```
/// use wootz::{Array, causal_conv1d};
/// let x = Array::new([[[1.0f32], [2.0], [3.0]]])?;
/// let weight = Array::new([[10.0f32, 1.0]])?;
/// let (y, state) = causal_conv1d(&x, &weight, None, None, false)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 12.0, 23.0]);
/// let (next, _) = causal_conv1d(&Array::new([[[4.0f32]]])?, &weight, None, Some(&state), false)?;
/// assert_eq!(next.item::<f32>()?, 34.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn causal_conv1d(
    x: &Array,
    weight: &Array,
    bias: Option<&Array>,
    state: Option<&Array>,
    silu: bool,
) -> Result<(Array, Array)> {
    let weight = match *weight.shape() {
        [channels, taps, 1] => reshape(weight, &[channels, taps])?,
        _ => weight.clone(),
    };
    let given = [Some(x), Some(&weight), state, bias];
    let dtypes = given.into_iter().flatten().map(Array::dtype);
    let dtype = dtypes.reduce(DType::promote).unwrap_or(x.dtype());
    let one = weight.shape().last() == Some(&1);
    // One tap sees nothing before it: a state without steps.
    let op = CausalConv1d { silu, stated: state.is_some() && !one, biased: bias.is_some() };
    if let (Some(state), true) = (state, one)
        && state.size() > 0
    {
        let expected = "one without steps, for one tap";
        return Err(Error::shape(op.name(), "state", expected, state.shape()));
    }
    let given = [Some(x), Some(&weight), state.filter(|_| !one), bias];
    let inputs = (given.into_iter().flatten())
        .map(|input| astype(input, dtype)?.contiguous())
        .collect::<Result<Vec<_>>>()?;
    let outputs = Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?.into_vec();
    match <[Array; 2]>::try_from(outputs) {
        Ok([y, state]) => Ok((y, state)),
        Err(_) => Err(Error::argument("causal_conv1d", "outputs", "two arrays", "others")),
    }
}

/// [`causal_conv1d`] as an operation on row-major arrays of one dtype: `x`, the weight, and then
/// the state and the bias if it has them.
#[derive(Clone, Copy, Debug)]
pub struct CausalConv1d {
    /// Whether the result goes through silu.
    pub silu: bool,
    /// Whether it has a state; else the steps before the first are zeros.
    pub stated: bool,
    /// Whether it has a bias.
    pub biased: bool,
}

impl CausalConv1d {
    fn bias(self) -> Option<usize> {
        self.biased.then_some(2 + self.stated as usize)
    }

    /// The steps of the state and then those of `x`.
    fn whole(self, inputs: &[Array]) -> Result<Array> {
        let (x, weight) = (&inputs[0], &inputs[1]);
        let Sizes { batch, channels, kept, .. } = Sizes::new(x.meta(), weight.meta());
        let zeros = || full(&[batch, kept, channels], 0, x.dtype());
        let state = match self.stated {
            true => inputs[2].clone(),
            false => with_device(x.device(), zeros)?,
        };
        concatenate(&[state, x.clone()], 1)
    }
}

/// Sizes of a call.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    steps: usize,
    channels: usize,
    /// Steps of the state.
    kept: usize,
}

impl Sizes {
    fn new(x: &Meta, weight: &Meta) -> Sizes {
        let (x, weight) = (x.shape(), weight.shape());
        Sizes { batch: x[0], steps: x[1], channels: x[2], kept: weight[1] - 1 }
    }
}

impl Op for CausalConv1d {
    fn name(&self) -> &'static str {
        "causal_conv1d"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match (self.stated, self.biased) {
            (true, true) => &["x", "weight", "state", "bias", "y", "next_state"],
            (true, false) => &["x", "weight", "state", "y", "next_state"],
            (false, true) => &["x", "weight", "bias", "y", "next_state"],
            (false, false) => &["x", "weight", "y", "next_state"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 2 + self.stated as usize + self.biased as usize)?;
        expect_float(self, inputs, 0)?;
        expect_contiguous(self, inputs, 0)?;
        let &[batch, _, channels] = inputs[0].shape() else {
            let expected = "[batch, steps, channels]";
            return Err(Error::shape(self.name(), "x", expected, inputs[0].shape()));
        };
        let taps = match *inputs[1].shape() {
            [_, taps] if taps > 0 => taps,
            _ => {
                let expected = format!("[{channels}, taps], with at least one tap");
                return Err(Error::shape(self.name(), "weight", expected, inputs[1].shape()));
            }
        };
        let dtype = inputs[0].dtype;
        let state = [batch, taps - 1, channels];
        expect(self, inputs, 1, dtype, &[channels, taps])?;
        if self.stated {
            expect(self, inputs, 2, dtype, &state)?;
        }
        if let Some(bias) = self.bias() {
            expect(self, inputs, bias, dtype, &[channels])?;
        }
        let y = Meta::new(self.name(), inputs[0].shape(), dtype)?;
        Ok(Metas::from_iter([y, Meta::new(self.name(), &state, dtype)?]))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        for_dtype!(call, run_as(*self))
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::forward(call, *self)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let (Some(dy), true) = (&cotangents[0], inputs[0].size() > 0) else {
            let composed = |x: &[Array]| self.composed(x);
            return composed_vjp(self.name(), composed, inputs, outputs, cotangents);
        };
        let op = CausalConv1dBackward { forward: *self, continued: cotangents[1].is_some() };
        let given = inputs.iter().chain([dy]).chain(&cotangents[1]);
        let given = given.map(Array::contiguous).collect::<Result<Vec<_>>>()?;
        let gradients = Array::apply_all(op, &given.iter().collect::<Vec<_>>())?;
        Ok(gradients.into_iter().map(Some).collect())
    }

    /// Channels do not meet, so those of the whole batch are as many more channels.
    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let inputs = batch.spread_all()?;
        let of_channels = |x: &Array| flatten(&moveaxis(x, 0, 2)?, 2, 3)?.contiguous();
        let mut together = Vec::with_capacity(inputs.len());
        for (index, input) in inputs.iter().enumerate() {
            together.push(match index {
                1 => flatten(input, 0, 1)?.contiguous()?,
                _ if self.bias() == Some(index) => flatten(input, 0, 1)?.contiguous()?,
                _ => of_channels(input)?,
            });
        }
        let apart = |y: &Array| {
            let (channels, shape) = (y.shape()[2] / batch.size.max(1), y.shape());
            moveaxis(&reshape(y, &[shape[0], shape[1], batch.size, channels])?, 2, 0)
        };
        batch.again(&together)?.iter().map(apart).collect()
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let (x, weight) = (&inputs[0], &inputs[1]);
            let Sizes { steps, channels, kept, .. } = Sizes::new(x.meta(), weight.meta());
            let whole = self.whole(inputs)?;
            let wide = super::wide(x.dtype());
            let mut y: Option<Array> = None;
            for tap in 0..=kept {
                let x = astype(&slice_axis(&whole, 1, tap, tap + steps, 1)?, wide)?;
                let weight = reshape(&slice_axis(weight, 1, tap, tap + 1, 1)?, &[channels])?;
                let term = multiply(x, astype(&weight, wide)?)?;
                y = Some(y.map_or(Ok(term.clone()), |y| add(y, &term))?);
            }
            let mut y = y.unwrap_or_else(|| x.clone());
            if let Some(bias) = self.bias() {
                y = add(y, astype(&inputs[bias], wide)?)?;
            }
            if self.silu {
                y = multiply(&y, sigmoid(&y)?)?;
            }
            let state = slice_axis(&whole, 1, steps, steps + kept, 1)?;
            Ok(vec![astype(&y, x.dtype())?, state])
        };
        Some(composed())
    }
}

/// The steps of a sequence behind those of its state.
struct Whole<'a, T> {
    x: &'a [T],
    state: Option<&'a [T]>,
    sizes: Sizes,
}

impl<T: Copy> Whole<'_, T> {
    /// The channels of a step, if they are not zeros.
    fn step(&self, batch: usize, step: usize) -> Option<&[T]> {
        let Sizes { steps, channels, kept, .. } = self.sizes;
        match step.checked_sub(kept) {
            Some(step) => Some(&self.x[(batch * steps + step) * channels..][..channels]),
            None => Some(&self.state?[(batch * kept + step) * channels..][..channels]),
        }
    }
}

fn run_as<T: Element>(call: &mut CpuCall<'_>, op: CausalConv1d) -> Result<()> {
    let sizes = Sizes::new(call.meta(0), call.meta(1));
    let Sizes { steps, channels, kept, .. } = sizes;
    let state = if op.stated { Some(call.input::<T>(2)?) } else { None };
    let whole = Whole { x: call.input::<T>(0)?, state, sizes };
    let weights = by_tap(call.input::<T>(1)?, channels);
    let bias = match op.bias() {
        Some(bias) => widened(call.input::<T>(bias)?),
        None => vec![T::Wide::ZERO; channels],
    };
    let (y, next) = call.outputs2::<T, T>()?;
    if channels == 0 {
        return Ok(());
    }
    let each = rows::per_task(y.len() / channels, channels);
    threads::chunks_mut(y, each * channels, |task, y| {
        let mut sums = vec![T::Wide::ZERO; channels];
        // The last steps, widened; the next step takes the place of the first of them.
        let mut ring = vec![T::Wide::ZERO; (kept + 1) * channels];
        let fill = |ring: &mut [T::Wide], batch: usize, step: usize| {
            let place = &mut ring[step % (kept + 1) * channels..][..channels];
            match whole.step(batch, step) {
                Some(x) => T::widen_slice(x, place),
                None => place.fill(T::Wide::ZERO),
            }
        };
        for (i, y) in y.chunks_exact_mut(channels).enumerate() {
            let (batch, step) = ((task * each + i) / steps, (task * each + i) % steps);
            if i == 0 || step == 0 {
                (step..step + kept).for_each(|step| fill(&mut ring, batch, step));
            }
            fill(&mut ring, batch, step + kept);
            let (weights, bias, silu) = (&weights[..], &bias[..], op.silu);
            T::Wide::run(Row { sums: &mut sums, ring: &ring, weights, bias, step, silu });
            T::narrow_slice(&sums, y);
        }
    });
    // Without a state there are no rows.
    for (row, next) in next.chunks_exact_mut(channels).enumerate() {
        match whole.step(row / kept, steps + row % kept) {
            Some(x) => next.copy_from_slice(x),
            None => next.fill(T::zeroed()),
        }
    }
    Ok(())
}

/// Weights of a tap side by side, as channels are.
fn by_tap<T: Element>(weight: &[T], channels: usize) -> Vec<T::Wide> {
    let taps = weight.len() / channels.max(1);
    let mut weights = vec![T::Wide::ZERO; weight.len()];
    for (i, weight) in widened(weight).into_iter().enumerate() {
        weights[i % taps * channels + i / taps] = weight;
    }
    weights
}

/// One step of all channels.
struct Row<'a, W> {
    sums: &'a mut [W],
    ring: &'a [W],
    weights: &'a [W],
    bias: &'a [W],
    step: usize,
    silu: bool,
}

impl<W: Wide> pulp::WithSimd for Row<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Row { sums, ring, weights, bias, step, silu } = self;
        let channels = sums.len();
        let taps = weights.len() / channels;
        for tap in 0..taps {
            let x = &ring[(step + tap) % taps * channels..][..channels];
            let weight = &weights[tap * channels..][..channels];
            if tap == 0 {
                for ((sum, &x), &weight) in sums.iter_mut().zip(x).zip(weight) {
                    *sum = x * weight;
                }
                continue;
            }
            for ((sum, &x), &weight) in sums.iter_mut().zip(x).zip(weight) {
                *sum = *sum + x * weight;
            }
        }
        for (sum, &bias) in sums.iter_mut().zip(bias) {
            *sum = *sum + bias;
        }
        if silu {
            for sum in sums.iter_mut() {
                *sum = *sum * Real::sigmoid(*sum);
            }
        }
    }
}
