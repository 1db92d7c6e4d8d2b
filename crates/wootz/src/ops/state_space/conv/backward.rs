//! The gradients of causal convolution in one pass: those of the steps, of the weight, of the state and of the bias.

use std::ops::Range;

use super::{CausalConv1d, Element, Sizes, Whole, by_tap, expect, for_dtype, widened};
use crate::array::{Array, Meta};
use crate::autograd::composed_vjp;
use crate::cpu::simd::rows::Float;
use crate::cpu::simd::{Real, Vectorised};
use crate::cpu::{CpuCall, threads, typed};
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Case, Entry, Metas, Op, Tolerance, expect_inputs};
use crate::ops::state_space::wide;

/// Cases.
pub(super) fn entry() -> Entry {
    let case = |label: &str,
                [batch, steps, channels, taps]: [usize; 4],
                forward: CausalConv1d,
                continued: bool| {
        let CausalConv1d { stated, biased, .. } = forward;
        let (x, state) = ([batch, steps, channels], [batch, taps - 1, channels]);
        let (weight, bias) = ([channels, taps], [channels]);
        let mut shapes: Vec<&[usize]> = vec![&x, &weight];
        shapes.extend(stated.then_some(&state[..]));
        shapes.extend(biased.then_some(&bias[..]));
        shapes.push(&x);
        shapes.extend(continued.then_some(&state[..]));
        let op = CausalConv1dBackward { forward, continued };
        Case::new(label, &shapes, move |x| {
            let inputs = x.iter().map(Array::contiguous).collect::<Result<Vec<_>>>()?;
            Ok(Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?.into_vec())
        })
        .tolerance(Tolerance::Contraction)
    };
    let plain = CausalConv1d { silu: false, stated: false, biased: false };
    let stated = CausalConv1d { stated: true, ..plain };
    let all = CausalConv1d { silu: true, stated: true, biased: true };
    let silu = |case: Case| {
        case.tolerance(Tolerance::Because(4.0, "a sum of products goes through silu's derivative"))
    };
    Entry {
        name: "causal_conv1d_backward",
        cases: vec![
            case("from zeros", [2, 5, 7, 4], plain, false),
            case("from a state", [2, 5, 7, 4], stated, true),
            case("from a state that is dropped", [2, 5, 6, 3], stated, false),
            silu(case("bias and silu", [1, 9, 6, 3], all, true)),
            case("fewer steps than a state has", [3, 2, 5, 5], stated, true),
            case("one step", [3, 1, 5, 4], stated, true),
            case("one tap", [2, 4, 3, 1], CausalConv1d { biased: true, ..plain }, false),
            // Blocks of rows that begin and end within sequences, and more channels than are computed at a time.
            silu(case("255 steps", [2, 255, 3, 4], all, true)),
            case("many channels", [1, 70, 259, 2], stated, true),
            case("no steps", [2, 0, 3, 3], stated, true),
        ],
    }
}

/// The gradients of the first inputs of a [`CausalConv1d`] (all that it has), given these and the gradient of its first
/// result; and that of the second, the next state, if the convolution is continued.
#[derive(Clone, Copy, Debug)]
pub struct CausalConv1dBackward {
    /// The convolution.
    pub forward: CausalConv1d,
    /// Whether the next state has a gradient.
    pub continued: bool,
}

impl CausalConv1dBackward {
    /// The input that is the gradient of the result.
    pub(super) fn dy(self) -> usize {
        2 + self.forward.stated as usize + self.forward.biased as usize
    }

    pub(super) fn dnext(self) -> Option<usize> {
        self.continued.then_some(self.dy() + 1)
    }

    /// Sums over rows for a channel: the gradients of its weights, and of its bias.
    pub(super) fn sums(self, taps: usize) -> usize {
        taps + self.forward.biased as usize
    }
}

/// How many blocks rows are cut into for sums over rows, and how many rows each has: only shapes decide, so that the order
/// of sums never changes.
pub(super) fn blocks_of(rows: usize, gpu: bool) -> (usize, usize) {
    let each = if gpu { 32 } else { rows.div_ceil(64).max(16) };
    (rows.div_ceil(each), each)
}

impl Op for CausalConv1dBackward {
    fn name(&self) -> &'static str {
        "causal_conv1d_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match (self.forward.stated, self.forward.biased) {
            (true, true) => &["x", "weight", "state", "bias", "dy", "dnext_state"],
            (true, false) => &["x", "weight", "state", "dy", "dnext_state"],
            (false, true) => &["x", "weight", "bias", "dy", "dnext_state"],
            (false, false) => &["x", "weight", "dy", "dnext_state"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let dy = self.dy();
        expect_inputs(self, inputs, dy + 1 + self.continued as usize)?;
        let results = self.forward.infer(&inputs[..dy])?;
        for (input, result) in (dy..inputs.len()).zip(&results) {
            expect(self, inputs, input, result.dtype, result.shape())?;
        }
        inputs[..dy].iter().map(|x| Meta::new(self.name(), x.shape(), x.dtype)).collect()
    }

    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        let Sizes { batch, steps, channels, kept } = Sizes::new(inputs[0], inputs[1]);
        let (blocks, _) = blocks_of(batch * steps, gpu);
        blocks.max(1) * self.sums(kept + 1) * channels * wide(inputs[0].dtype).size()
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        for_dtype!(call, run_as(*self))
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        super::gpu::backward(call, *self)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let (given, rest) = inputs.split_at(self.dy());
        let gradients = || {
            let outputs = match self.forward.composed(given) {
                Some(outputs) => outputs?,
                None => Vec::new(),
            };
            let cotangents = [rest.first().cloned(), rest.get(1).cloned()];
            let forward = |x: &[Array]| self.forward.composed(x);
            composed_vjp(self.name(), forward, given, &outputs, &cotangents)
        };
        Some(gradients().map(|gradients| gradients.into_iter().flatten().collect()))
    }
}

fn run_as<T: Element>(call: &mut CpuCall<'_>, op: CausalConv1dBackward) -> Result<()> {
    let sizes = Sizes::new(call.meta(0), call.meta(1));
    let Sizes { batch, steps, channels, kept } = sizes;
    let CausalConv1d { silu, stated, .. } = op.forward;
    let state = if stated { Some(call.input::<T>(2)?) } else { None };
    let bias = op.forward.bias().map(|bias| call.input::<T>(bias)).transpose()?;
    let walk = Walk {
        whole: Whole { x: call.input::<T>(0)?, state, sizes },
        dy: call.input::<T>(op.dy())?,
        dnext: op.dnext().map(|dnext| call.input::<T>(dnext)).transpose()?,
        weights: by_tap(call.input::<T>(1)?, channels),
        bias: bias.map(widened),
        silu,
    };
    let sums = op.sums(kept + 1) * channels;
    let (blocks, each) = blocks_of(batch * steps, false);
    let (scratch, whole) = (&mut *call.scratch, blocks * sums * size_of::<T::Wide>());
    let partials: &mut [T::Wide] = typed(&op, scratch.get_mut(..whole).unwrap_or_default())?;
    let [dx, dweight, others @ ..] = &mut call.outputs[..] else {
        return Err(Error::argument("causal_conv1d_backward", "outputs", "two arrays", "fewer"));
    };
    if channels == 0 {
        return Ok(());
    }
    let rows = each * channels;
    threads::chunks2_mut(typed::<T>(&op, dx.bytes)?, rows, partials, sums, |block, dx, partial| {
        partial.fill(T::Wide::ZERO);
        let (mut row, end) = (block * each, block * each + dx.len() / channels);
        let mut rest = dx;
        // Parts of one sequence each.
        while row < end {
            let (batch, first) = (row / steps, row % steps);
            let last = steps.min(first + end - row);
            let (part, others) = rest.split_at_mut((last - first) * channels);
            let (steps, seen) = (kept + first..kept + last, first..last);
            T::Wide::run(Part { walk: &walk, batch, steps, seen, to: part, sums: partial });
            (row, rest) = (row + last - first, others);
        }
    });
    let (of_state, of_bias) = others.split_at_mut(stated as usize);
    if let [dstate] = of_state {
        threads::chunks_mut(typed::<T>(&op, dstate.bytes)?, kept * channels, |batch, to| {
            let (steps, seen) = (0..to.len() / channels, 0..0);
            T::Wide::run(Part { walk: &walk, batch, steps, seen, to, sums: &mut [] });
        });
    }
    let total = |at: usize| partials.chunks_exact(sums).map(move |partial| partial[at]);
    let sum = |at: usize| T::narrow(total(at).fold(T::Wide::ZERO, |sum, part| sum + part));
    let taps = kept + 1;
    threads::chunks_mut(typed::<T>(&op, dweight.bytes)?, TILE * taps, |tile, to| {
        for (i, to) in to.iter_mut().enumerate() {
            *to = sum(i % taps * channels + tile * TILE + i / taps);
        }
    });
    if let [dbias] = of_bias {
        threads::chunks_mut(typed::<T>(&op, dbias.bytes)?, TILE, |tile, to| {
            for (i, to) in to.iter_mut().enumerate() {
                *to = sum(taps * channels + tile * TILE + i);
            }
        });
    }
    Ok(())
}

/// What all parts read.
struct Walk<'a, T: Element> {
    whole: Whole<'a, T>,
    dy: &'a [T],
    dnext: Option<&'a [T]>,
    /// Those of a tap side by side.
    weights: Vec<T::Wide>,
    bias: Option<Vec<T::Wide>>,
    silu: bool,
}

/// Channels that are computed at a time: what they need lies in the first cache.
const TILE: usize = 256;

/// The gradients of some steps of one sequence, counted from the first of its state on, and what the results of `seen`
/// add to the sums.
struct Part<'a, T: Element> {
    walk: &'a Walk<'a, T>,
    batch: usize,
    steps: Range<usize>,
    seen: Range<usize>,
    to: &'a mut [T],
    sums: &'a mut [T::Wide],
}

impl<T: Element> pulp::WithSimd for Part<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Part { walk, batch, steps: range, seen: counted, to, sums } = self;
        let Sizes { steps, channels, kept, .. } = walk.whole.sizes;
        let taps = kept + 1;
        // The last steps, and the gradients of the sums of the last results; each takes the place of the first of them.
        let mut ring = vec![T::Wide::ZERO; taps * TILE];
        let mut slopes = vec![T::Wide::ZERO; taps * TILE];
        let mut row = [T::Wide::ZERO; TILE];
        for first in (0..channels).step_by(TILE) {
            let columns = first..channels.min(first + TILE);
            let n = columns.len();
            let fill = |ring: &mut [T::Wide], step: usize| {
                let place = &mut ring[step % taps * TILE..][..n];
                match walk.whole.step(batch, step) {
                    Some(x) => T::widen_slice(&x[columns.clone()], place),
                    None => place.fill(T::Wide::ZERO),
                }
            };
            slopes.fill(T::Wide::ZERO);
            let start = range.start.saturating_sub(kept);
            if start < steps {
                (start..start + kept).for_each(|step| fill(&mut ring, step));
            }
            for step in start..range.end {
                let slope = &mut slopes[step % taps * TILE..][..n];
                if step < steps {
                    fill(&mut ring, step + kept);
                    let at = (batch * steps + step) * channels;
                    T::widen_slice(&walk.dy[at + columns.start..at + columns.end], slope);
                    let seen = |tap: usize| &ring[(step + tap) % taps * TILE..][..n];
                    if walk.silu {
                        let row = &mut row[..n];
                        match &walk.bias {
                            Some(bias) => row.copy_from_slice(&bias[columns.clone()]),
                            None => row.fill(T::Wide::ZERO),
                        }
                        for tap in 0..taps {
                            let weights = &walk.weights[tap * channels..][columns.clone()];
                            add_products(row, seen(tap), weights);
                        }
                        through_silu(slope, row);
                    }
                    if counted.contains(&step) {
                        for tap in 0..taps {
                            let sums = &mut sums[tap * channels..][columns.clone()];
                            add_products(sums, seen(tap), slope);
                        }
                        if walk.bias.is_some() {
                            let sums = &mut sums[taps * channels..][columns.clone()];
                            for (sum, &slope) in sums.iter_mut().zip(&*slope) {
                                *sum = *sum + slope;
                            }
                        }
                    }
                } else {
                    slope.fill(T::Wide::ZERO);
                }
                if step < range.start {
                    continue;
                }
                let row = &mut row[..n];
                match (walk.dnext, step.checked_sub(steps)) {
                    (Some(dnext), Some(step)) => {
                        let at = (batch * kept + step) * channels;
                        T::widen_slice(&dnext[at + columns.start..at + columns.end], row);
                    }
                    _ => row.fill(T::Wide::ZERO),
                }
                // Before the first result and behind the last there is none that saw the step.
                for tap in (step + 1).saturating_sub(steps)..taps.min(step + 1) {
                    let weights = &walk.weights[tap * channels..][columns.clone()];
                    add_products(row, &slopes[(step - tap) % taps * TILE..][..n], weights);
                }
                let at = (step - range.start) * channels;
                T::narrow_slice(row, &mut to[at + columns.start..at + columns.end]);
            }
        }
    }
}

#[inline(always)]
fn add_products<W: Float>(sums: &mut [W], a: &[W], b: &[W]) {
    for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
        *sum = *sum + a * b;
    }
}

/// Gradients of the results become those of the sums: silu' = s + x·s·(1 - s).
#[inline(always)]
fn through_silu<W: Float + Real>(slopes: &mut [W], sums: &[W]) {
    for (slope, &sum) in slopes.iter_mut().zip(sums) {
        let part = Real::sigmoid(sum);
        *slope = *slope * (part + sum * part * (W::ONE - part));
    }
}
