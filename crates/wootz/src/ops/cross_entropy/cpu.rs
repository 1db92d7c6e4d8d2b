//! Losses over a vocabulary on the CPU. A thread takes whole rows, in pieces that stay in the first-level
//! cache: the maximum of a piece, and then its powers relative to the largest so far.

use std::ops::Range;

use half::{bf16, f16};

use super::kl::logits_and_mask;
use super::{KlDivergenceBackward, KlSide, Labels, rows_of};
use crate::array::DType;
use crate::cpu::simd::rows::{self, Float, LANES, Lanes};
use crate::cpu::simd::{Ahead, Real, stream};
use crate::cpu::tile::Storage;
use crate::cpu::{CpuCall, threads, typed};
use crate::error::{Error, Result};
use crate::op::argument_name;
use crate::ops::indexing::offsets::by_index;

/// Elements of a piece.
const PIECE: usize = 1024;

/// Runs a kernel for the dtype of the call's first input.
macro_rules! for_dtype {
    ($call:expr, $kernel:ident $(, $argument:expr)*) => {
        match $call.meta(0).dtype {
            DType::F32 => $kernel::<f32>($call $(, $argument)*),
            DType::F64 => $kernel::<f64>($call $(, $argument)*),
            DType::F16 => $kernel::<f16>($call $(, $argument)*),
            DType::BF16 => $kernel::<bf16>($call $(, $argument)*),
            other => Err(Error::dtype($call.op.name(), "logits", "a floating-point type", other)),
        }
    };
}

pub(super) fn forward(call: &mut CpuCall<'_>, labels: Labels) -> Result<()> {
    for_dtype!(call, forward_as, labels)
}

pub(super) fn backward(call: &mut CpuCall<'_>, labels: Labels) -> Result<()> {
    for_dtype!(call, backward_as, labels)
}

pub(super) fn kl(call: &mut CpuCall<'_>, masked: bool) -> Result<()> {
    for_dtype!(call, kl_as, masked)
}

pub(super) fn kl_backward(call: &mut CpuCall<'_>, op: KlDivergenceBackward) -> Result<()> {
    for_dtype!(call, kl_backward_as, op)
}

/// Elements that are computed in one of the float types.
trait Element: Storage<Wide: Float + Real + bytemuck::Pod> + Send + Sync {}
impl<T: Storage<Wide: Float + Real + bytemuck::Pod> + Send + Sync> Element for T {}

/// The column of each row's label; `None` where the row does not count.
fn targets(call: &CpuCall<'_>, labels: Labels, columns: usize) -> Result<Vec<Option<usize>>> {
    let mask = if labels.masked { Some(call.input::<u8>(2)?) } else { None };
    let place = |(row, label): (usize, i128)| {
        let ignored = labels.ignored.is_some_and(|ignored| ignored as i128 == label);
        if ignored || mask.is_some_and(|mask| mask[row] == 0) {
            return Ok(None);
        }
        if !(0..columns as i128).contains(&label) {
            let got = label.clamp(i64::MIN as i128, i64::MAX as i128) as i64;
            let argument = argument_name(call.op, 1);
            return Err(Error::Index { op: call.op.name(), argument, got, length: columns });
        }
        Ok(Some(label as usize))
    };
    macro_rules! body {
        ($index:ty) => {
            (call.input::<$index>(1)?.iter().map(|&label| label as i128).enumerate())
                .map(place)
                .collect()
        };
    }
    by_index!(call.meta(1).dtype, body)
}

fn forward_as<T: Element>(call: &mut CpuCall<'_>, labels: Labels) -> Result<()> {
    let (rows, columns) = rows_of(call.meta(0));
    let targets = targets(call, labels, columns)?;
    let logits = call.input::<T>(0)?;
    let [kept, even] = [1.0 - labels.smoothing, labels.smoothing / columns as f64];
    let [kept, even] = [kept, even].map(T::Wide::from_f64);
    let per_task = rows::per_task(rows, columns);
    let (losses, sums) = call.outputs2::<T::Wide, T::Wide>()?;
    threads::chunks2_mut(losses, per_task, sums, per_task, |task, losses, sums| {
        let mut tile = [T::Wide::ZERO; PIECE];
        for (row, (loss, lse)) in (task * per_task..).zip(losses.iter_mut().zip(sums)) {
            let Some(target) = targets[row] else {
                (*loss, *lse) = (T::Wide::ZERO, T::Wide::ZERO);
                continue;
            };
            let x = &logits[row * columns..(row + 1) * columns];
            let summed = labels.smoothing > 0.0;
            let (found, sum) = crate::cpu::simd::run(Forward { x, summed, tile: &mut tile });
            *lse = found.lse(x);
            *loss = *lse - kept * x[target].widen();
            if summed {
                *loss = *loss - even * sum;
            }
        }
    });
    Ok(())
}

/// Maximum and sum of powers of a row; if asked for, also the sum of its elements.
struct Forward<'a, T: Storage> {
    x: &'a [T],
    summed: bool,
    tile: &'a mut [T::Wide; PIECE],
}

impl<T: Element> pulp::WithSimd for Forward<'_, T> {
    type Output = (Online<T::Wide>, T::Wide);

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) -> Self::Output {
        let Forward { x, summed, tile } = self;
        let (mut online, mut sum) = (Online::new(), Lanes::zero());
        for piece in pieces(x.len()) {
            // The row that follows lies behind this one.
            let next = Ahead::of(&x[piece.start..]);
            let piece = widened(&x[piece], tile);
            online.raise(piece);
            online.add(piece, next);
            if summed {
                sum.add(piece);
            }
        }
        (online, sum.sum())
    }
}

/// The largest element so far, and the sum of `e^(x - largest)`.
#[derive(Clone, Copy)]
struct Online<W> {
    most: W,
    sum: W,
}

impl<W: Float + Real> Online<W> {
    #[inline(always)]
    fn new() -> Self {
        Online { most: W::NEG_INFINITY, sum: W::ZERO }
    }

    /// What powers are relative to: the largest element, if that is a number.
    #[inline(always)]
    fn shift(&self) -> W {
        if Float::is_finite(self.most) { self.most } else { W::ZERO }
    }

    /// Takes the maximum of a piece, and tells the factor of what was summed before.
    #[inline(always)]
    fn raise(&mut self, piece: &[W]) -> W {
        let most = rows::max(piece);
        if most > self.most {
            let factor = Real::exp_nonpositive(self.most - most);
            self.most = most;
            self.sum = self.sum * factor;
            return factor;
        }
        W::ONE
    }

    /// Adds the powers of a piece, while what comes a piece later is fetched.
    #[inline(always)]
    fn add(&mut self, piece: &[W], next: Ahead) {
        let (shift, mut sums) = (self.shift(), Lanes::zero());
        let (whole, rest) = piece.as_chunks::<LANES>();
        for (index, x) in whole.iter().enumerate() {
            next.fetch(PIECE + index * LANES);
            for lane in 0..LANES {
                sums.0[lane] = sums.0[lane] + Real::exp_nonpositive(x[lane] - shift);
            }
        }
        for (sum, &x) in sums.0.iter_mut().zip(rest) {
            *sum = *sum + Real::exp_nonpositive(x - shift);
        }
        self.sum = self.sum + sums.sum();
    }

    /// The log-sum-exp of `row`, whose pieces were added. That of a row with +∞ is +∞, unless it
    /// has NaN.
    fn lse<T: Storage<Wide = W>>(&self, row: &[T]) -> W {
        let infinite = !Float::is_finite(self.most) && self.most > W::ZERO;
        if infinite && row.iter().all(|x| x.widen() <= self.most) {
            return self.most;
        }
        self.shift() + Real::log(self.sum)
    }
}

/// The pieces of a row.
#[inline(always)]
fn pieces(columns: usize) -> impl Iterator<Item = Range<usize>> {
    (0..columns).step_by(PIECE).map(move |start| start..(start + PIECE).min(columns))
}

/// A piece in the type it is computed in: where it lies, or widened into the tile.
#[inline(always)]
fn widened<'a, T: Element>(piece: &'a [T], tile: &'a mut [T::Wide; PIECE]) -> &'a [T::Wide] {
    if size_of::<T>() == size_of::<T::Wide>() {
        return bytemuck::cast_slice(piece);
    }
    let tile = &mut tile[..piece.len()];
    T::widen_slice(piece, tile);
    tile
}

fn backward_as<T: Element>(call: &mut CpuCall<'_>, labels: Labels) -> Result<()> {
    let (rows, columns) = rows_of(call.meta(0));
    let targets = targets(call, labels, columns)?;
    let logits = if call.aliased(0) { None } else { Some(call.input::<T>(0)?) };
    let first = labels.inputs();
    let lse = call.input::<T::Wide>(first)?;
    let (g, h) = (call.input::<T::Wide>(first + 1)?, call.input::<T::Wide>(first + 2)?);
    let [kept, even] = [1.0 - labels.smoothing, labels.smoothing / columns as f64];
    let [kept, even] = [kept, even].map(T::Wide::from_f64);
    let streamed = logits.is_some() && stream::pays(call.output_meta(0).bytes());
    let per_task = rows::per_task(rows, columns);
    threads::chunks_mut(call.output::<T>(0)?, per_task * columns, |task, out| {
        let mut tiles = Tiles::<T>::new();
        for (row, out) in (task * per_task..).zip(out.chunks_exact_mut(columns)) {
            let Some(target) = targets[row] else {
                out.fill(T::zeroed());
                continue;
            };
            crate::cpu::simd::run(Backward {
                x: logits.map(|logits| &logits[row * columns..(row + 1) * columns]),
                out,
                lse: lse[row],
                h: h[row],
                even: even * g[row],
                target: (target, kept * g[row]),
                streamed,
                tiles: &mut tiles,
            });
        }
        stream::finish_if(streamed);
    });
    Ok(())
}

/// What is between memory and arithmetic.
struct Tiles<T: Storage> {
    inputs: [[T::Wide; PIECE]; 2],
    result: [T::Wide; PIECE],
    narrow: [T; PIECE],
}

impl<T: Element> Tiles<T> {
    fn new() -> Self {
        let zero = [T::Wide::ZERO; PIECE];
        Tiles { inputs: [zero; 2], result: zero, narrow: [T::zeroed(); PIECE] }
    }
}

/// One row of the gradient. Without `x` the row is in `out`.
struct Backward<'a, T: Storage> {
    x: Option<&'a [T]>,
    out: &'a mut [T],
    lse: T::Wide,
    h: T::Wide,
    /// What every class has of the target's gradient.
    even: T::Wide,
    /// The label, and what it has.
    target: (usize, T::Wide),
    streamed: bool,
    tiles: &'a mut Tiles<T>,
}

impl<T: Element> pulp::WithSimd for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Backward { x, out, lse, h, even, target: (target, at_target), streamed, tiles } = self;
        let Tiles { inputs: [x_tile, _], result, narrow } = tiles;
        for piece in pieces(out.len()) {
            let next = Ahead::of(&x.unwrap_or(out)[piece.start..]);
            let x = widened(&x.unwrap_or(out)[piece.clone()], x_tile);
            let result = &mut result[..x.len()];
            let (xs, x_rest) = x.as_chunks::<LANES>();
            let (results, result_rest) = result.as_chunks_mut::<LANES>();
            for (index, (result, x)) in results.iter_mut().zip(xs).enumerate() {
                next.fetch(PIECE + index * LANES);
                let mut values = [T::Wide::ZERO; LANES];
                for lane in 0..LANES {
                    values[lane] = power(x[lane] - lse) * h - even;
                }
                *result = values;
            }
            for (result, &x) in result_rest.iter_mut().zip(x_rest) {
                *result = power(x - lse) * h - even;
            }
            if piece.contains(&target) {
                let place = target - piece.start;
                result[place] = result[place] - at_target;
            }
            store(result, narrow, &mut out[piece], streamed);
        }
    }
}

/// A power that is at most 1, whatever the log-sum-exp was rounded to.
#[inline(always)]
fn power<W: Float + Real>(x: W) -> W {
    Real::exp_nonpositive(if x > W::ZERO { W::ZERO } else { x })
}

/// Stores computed values, past the caches if they are streamed.
#[inline(always)]
fn store<T: Element>(values: &[T::Wide], narrow: &mut [T; PIECE], out: &mut [T], streamed: bool) {
    if size_of::<T>() == size_of::<T::Wide>() {
        return stream::copy_if(streamed, values, bytemuck::cast_slice_mut(out));
    }
    let narrow = &mut narrow[..values.len()];
    T::narrow_slice(values, narrow);
    stream::copy_if(streamed, narrow, out);
}

fn kl_as<T: Element>(call: &mut CpuCall<'_>, masked: bool) -> Result<()> {
    let (rows, columns) = rows_of(call.meta(0));
    let (p, q) = (call.input::<T>(0)?, call.input::<T>(1)?);
    let mask = if masked { Some(call.input::<u8>(2)?) } else { None };
    let per_task = rows::per_task(rows, columns);
    let op = call.op;
    let mut outputs = Vec::new();
    for output in &mut call.outputs {
        outputs.push((typed::<T::Wide>(op, output.bytes)?, per_task));
    }
    threads::chunks_all_mut(outputs.into_iter(), |task, outputs| {
        let [divergences, p_sums, q_sums] = outputs else { return };
        let mut tiles = Tiles::<T>::new();
        for (place, divergence) in divergences.iter_mut().enumerate() {
            let row = task * per_task + place;
            if mask.is_some_and(|mask| mask[row] == 0) {
                *divergence = T::Wide::ZERO;
                (p_sums[place], q_sums[place]) = (T::Wide::ZERO, T::Wide::ZERO);
                continue;
            }
            let [p, q] = [p, q].map(|x| &x[row * columns..(row + 1) * columns]);
            let (p_found, q_found, cross) = crate::cpu::simd::run(Kl { p, q, tiles: &mut tiles });
            let (p_lse, q_lse) = (p_found.lse(p), q_found.lse(q));
            (p_sums[place], q_sums[place]) = (p_lse, q_lse);
            // Without distributions there is no divergence.
            *divergence = match Float::is_finite(p_lse) && Float::is_finite(q_lse) {
                true => cross / p_found.sum - p_lse + q_lse,
                false => T::Wide::from_f64(f64::NAN),
            };
        }
    });
    Ok(())
}

/// The sums of powers of two rows, and that of `e^(p - largest) · (p - q)`.
struct Kl<'a, T: Storage> {
    p: &'a [T],
    q: &'a [T],
    tiles: &'a mut Tiles<T>,
}

impl<T: Element> pulp::WithSimd for Kl<'_, T> {
    type Output = (Online<T::Wide>, Online<T::Wide>, T::Wide);

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) -> Self::Output {
        let Kl { p, q, tiles: Tiles { inputs: [p_tile, q_tile], .. } } = self;
        let (mut p_found, mut q_found) = (Online::new(), Online::new());
        let mut cross = T::Wide::ZERO;
        for piece in pieces(p.len()) {
            let next = [p, q].map(|x| Ahead::of(&x[piece.start..]));
            let (p, q) = (widened(&p[piece.clone()], p_tile), widened(&q[piece], q_tile));
            let factor = p_found.raise(p);
            q_found.raise(q);
            q_found.add(q, next[1]);
            let shift = p_found.shift();
            let (mut sums, mut crosses) = (Lanes::zero(), Lanes::zero());
            let ((ps, p_rest), (qs, q_rest)) = (p.as_chunks::<LANES>(), q.as_chunks::<LANES>());
            for (index, (p, q)) in ps.iter().zip(qs).enumerate() {
                next[0].fetch(PIECE + index * LANES);
                for lane in 0..LANES {
                    let power = Real::exp_nonpositive(p[lane] - shift);
                    sums.0[lane] = sums.0[lane] + power;
                    crosses.0[lane] = crosses.0[lane] + weighted(power, p[lane] - q[lane]);
                }
            }
            for (lane, (&p, &q)) in p_rest.iter().zip(q_rest).enumerate() {
                let power = Real::exp_nonpositive(p - shift);
                sums.0[lane] = sums.0[lane] + power;
                crosses.0[lane] = crosses.0[lane] + weighted(power, p - q);
            }
            p_found.sum = p_found.sum + sums.sum();
            cross = weighted(factor, cross) + crosses.sum();
        }
        (p_found, q_found, cross)
    }
}

/// `weight · value`, and nothing of a value without weight, be it infinite.
#[inline(always)]
fn weighted<W: Float>(weight: W, value: W) -> W {
    if weight == W::ZERO { W::ZERO } else { weight * value }
}

fn kl_backward_as<T: Element>(call: &mut CpuCall<'_>, op: KlDivergenceBackward) -> Result<()> {
    let KlDivergenceBackward { side, masked } = op;
    let (rows, columns) = rows_of(call.meta(0));
    let (p, q) = (call.input::<T>(0)?, call.input::<T>(1)?);
    let mask = if masked { Some(call.input::<u8>(2)?) } else { None };
    let mut numbers: [&[T::Wide]; 4] = [&[]; 4];
    for (index, numbers) in numbers.iter_mut().enumerate() {
        *numbers = call.input::<T::Wide>(logits_and_mask(masked) + index)?;
    }
    let streamed = stream::pays(call.output_meta(0).bytes());
    let per_task = rows::per_task(rows, columns);
    threads::chunks_mut(call.output::<T>(0)?, per_task * columns, |task, out| {
        let mut tiles = Tiles::<T>::new();
        for (row, out) in (task * per_task..).zip(out.chunks_exact_mut(columns)) {
            if mask.is_some_and(|mask| mask[row] == 0) {
                out.fill(T::zeroed());
                continue;
            }
            let [p, q] = [p, q].map(|x| &x[row * columns..(row + 1) * columns]);
            let numbers = numbers.map(|numbers| numbers[row]);
            let tiles = &mut tiles;
            crate::cpu::simd::run(KlBackward { p, q, out, side, numbers, streamed, tiles });
        }
        stream::finish_if(streamed);
    });
    Ok(())
}

/// One row of a side's gradient; the numbers are divergence, log-sum-exps and the gradient.
struct KlBackward<'a, T: Storage> {
    p: &'a [T],
    q: &'a [T],
    out: &'a mut [T],
    side: KlSide,
    numbers: [T::Wide; 4],
    streamed: bool,
    tiles: &'a mut Tiles<T>,
}

impl<T: Element> pulp::WithSimd for KlBackward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let KlBackward { p, q, out, side, numbers, streamed, tiles } = self;
        let [divergence, p_lse, q_lse, g] = numbers;
        let Tiles { inputs: [p_tile, q_tile], result, narrow } = tiles;
        for piece in pieces(out.len()) {
            let next = [p, q].map(|x| Ahead::of(&x[piece.start..]));
            let p = widened(&p[piece.clone()], p_tile);
            let q = widened(&q[piece.clone()], q_tile);
            let result = &mut result[..p.len()];
            let of = result.iter_mut().zip(p.iter().zip(q));
            match side {
                KlSide::Predictions => {
                    for (result, (&p, &q)) in of {
                        let [p, q] = [p - p_lse, q - q_lse].map(power);
                        *result = (q - p) * g;
                    }
                }
                KlSide::Targets => {
                    for (result, (&p, &q)) in of {
                        let (p, q) = (p - p_lse, q - q_lse);
                        *result = weighted(power(p), p - q - divergence) * g;
                    }
                }
            }
            next.iter().for_each(|next| next.fetch_all(PIECE..2 * PIECE));
            store(result, narrow, &mut out[piece], streamed);
        }
    }
}
