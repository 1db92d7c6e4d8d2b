//! Where rows of log-probabilities are cut off, on the CPU: found without sorting them. A row is
//! looked through once or twice in vectors; only what may be kept is put in order.

use std::cmp::Reverse;

use half::{bf16, f16};

use crate::array::{Array, DType, Meta};
use crate::cpu::simd::rows::LANES;
use crate::cpu::simd::{Real, dispatch};
use crate::cpu::tile::{Storage, is_wide};
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};
use crate::op::{Batch, Metas, Op, expect_contiguous, expect_float, expect_inputs};

/// The least element of a row that is kept, and its index; of equal ones the last that is kept. NaN
/// is never kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cutoff {
    /// So many of the largest are kept; of equal ones those with the lowest indices.
    Most(usize),
    /// The largest are kept that together have this part of the row's probability.
    Mass(f64),
}

impl Cutoff {
    /// Whether the kernel knows the array.
    pub(super) fn fits(x: &Array) -> bool {
        !x.device().is_gpu() && x.dtype() != DType::F64
    }

    /// The values and the indices, with a last axis of 1.
    pub(super) fn of(self, x: &Array) -> Result<(Array, Array)> {
        let mut outputs = Array::apply_all(self, &[&x.contiguous()?])?.into_iter();
        match (outputs.next(), outputs.next()) {
            (Some(value), Some(index)) => Ok((value, index)),
            _ => Err(Error::argument(self.name(), "outputs", "two arrays", "fewer")),
        }
    }
}

impl Op for Cutoff {
    fn name(&self) -> &'static str {
        "cutoff"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["logprobs", "value", "index"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        expect_float(self, inputs, 0)?;
        expect_contiguous(self, inputs, 0)?;
        let mut shape = inputs[0].shape().to_vec();
        match shape.last_mut() {
            Some(length) if (1..=u32::MAX as usize).contains(length) => *length = 1,
            _ => {
                let shape = inputs[0].shape();
                return Err(Error::shape(self.name(), "logprobs", "a last axis of tokens", shape));
            }
        }
        let value = Meta::new(self.name(), &shape, inputs[0].dtype)?;
        Ok(Metas::from_iter([value, Meta::new(self.name(), &shape, DType::U32)?]))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        match call.meta(0).dtype {
            DType::F32 => cut::<f32>(call, *self),
            DType::F16 => cut::<f16>(call, *self),
            DType::BF16 => cut::<bf16>(call, *self),
            other => Err(Error::dtype(self.name(), "logprobs", "float32 or narrower", other)),
        }
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        Ok(vec![None])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

fn cut<T: Storage<Wide = f32> + Send + Sync>(call: &mut CpuCall<'_>, cutoff: Cutoff) -> Result<()> {
    let x = call.input::<T>(0)?;
    let length = call.meta(0).shape().last().copied().unwrap_or(1);
    // As they are, if they are stored as they are computed.
    let stored = if is_wide(call.meta(0).dtype) { bytemuck::try_cast_slice(x).ok() } else { None };
    let (values, indices) = call.outputs2::<T, u32>()?;
    threads::chunks2_mut(values, 1, indices, 1, |row, value, index| {
        let range = row * length..(row + 1) * length;
        let mut wide = vec![0.0; if stored.is_some() { 0 } else { length }];
        T::widen_slice(&x[range.clone()], &mut wide);
        let elements = stored.map_or(&wide[..], |x: &[f32]| &x[range]);
        let (least, last) = match cutoff {
            Cutoff::Most(count) => most(elements, count),
            Cutoff::Mass(part) => mass(elements, part),
        };
        T::narrow_slice(&[least], value);
        index[0] = last;
    });
    Ok(())
}

/// Elements that are passed over together if their largest is too small.
const BLOCK: usize = 2 * LANES;

/// Of equal ones, the last index there is.
const ALL: u32 = u32::MAX;

fn most(row: &[f32], count: usize) -> (f32, u32) {
    let maxima = maxima(row);
    // There are at least as many elements as blocks whose largest reaches this.
    let bound = if count > 0 && count <= maxima.len() / 2 {
        let mut sorted = maxima.clone();
        *sorted.select_nth_unstable_by_key(count - 1, |&x| Reverse(key(x))).1
    } else {
        f32::NEG_INFINITY
    };
    let mut kept: Vec<(Reverse<u32>, u32)> = Vec::with_capacity(4 * count.min(row.len()));
    reaching(row, &maxima, bound, |index, value| kept.push((Reverse(key(value)), index)));
    if count == 0 || count > kept.len() {
        return (f32::NEG_INFINITY, ALL);
    }
    let index = kept.select_nth_unstable(count - 1).1.1;
    (row[index as usize], index)
}

/// Elements of a row that one thread looks through at a time. A multiple of a block.
const PIECE: usize = 1 << 13;

fn mass(row: &[f32], part: f64) -> (f32, u32) {
    let maxima = maxima(row);
    let largest = maxima.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (total, above) = masses(row, largest);
    let target = if part < 1.0 { total * part } else { f64::INFINITY };
    if !target.is_finite() {
        return (f32::NEG_INFINITY, ALL);
    }
    // A little more, because sums in different orders differ. What has no mass is never needed.
    let enough = above.iter().position(|&mass| mass > target * 1.0001);
    let bound = enough.map_or(f32::MIN, |level| largest - LEVELS[level]);
    let mut pieces = vec![Vec::new(); row.len().div_ceil(PIECE)];
    threads::chunks_mut(&mut pieces, 1, |number, kept| {
        let maxima = &maxima[number * (PIECE / BLOCK)..];
        kept[0] = at_least(piece(row, number), maxima, bound);
    });
    let (mut kept, mut sum) = (pieces.concat(), 0.0);
    if kept.len() > FEW {
        sum = narrow_down(&mut kept, largest, target);
    }
    kept.sort_unstable_by(|a, b| b.total_cmp(a));
    let mut least = largest;
    for value in kept {
        if sum >= target && sum > 0.0 {
            break;
        }
        least = value;
        sum += f64::from(Real::exp(value));
        if target <= 0.0 {
            break;
        }
    }
    (least, ALL)
}

/// Part of a row.
fn piece(row: &[f32], number: usize) -> &[f32] {
    &row[number * PIECE..row.len().min((number + 1) * PIECE)]
}

/// So few are put in order at once.
const FEW: usize = 128;
/// Intervals between the largest and the least.
const BINS: usize = 512;

/// Keeps only the interval of values in which the sum of the probabilities, from the largest on, reaches the
/// target, and returns the sum of those before it.
fn narrow_down(kept: &mut Vec<f32>, largest: f32, target: f64) -> f64 {
    let least = kept.iter().copied().fold(largest, f32::min);
    let scale = BINS as f32 / (largest - least).max(f32::MIN_POSITIVE);
    let bin = |value: f32| (((largest - value) * scale) as usize).min(BINS - 1);
    let mut masses = [0.0; BINS];
    let mut last = 0;
    for &value in &*kept {
        masses[bin(value)] += f64::from(Real::exp(value));
        last = last.max(bin(value));
    }
    let mut sum = 0.0;
    // Rounding may leave the target behind all of them.
    let reaching = masses[..last].iter().position(|mass| {
        let reached = sum + mass >= target;
        if !reached {
            sum += mass;
        }
        reached
    });
    let reaching = reaching.unwrap_or(last);
    kept.retain(|&value| bin(value) == reaching);
    sum
}

/// How far below the largest a row is looked at for what has the mass that is kept.
const LEVELS: [f32; 6] = [1.0, 2.0, 4.0, 7.0, 10.0, 14.0];

/// The sums of the probabilities within each level, and of all.
type Masses = [f64; LEVELS.len() + 1];

/// The sum of the probabilities, and of those within each level.
fn masses(row: &[f32], largest: f32) -> (f64, [f64; LEVELS.len()]) {
    let mut pieces = vec![Masses::default(); row.len().div_ceil(PIECE)];
    threads::chunks_mut(&mut pieces, 1, |number, masses| {
        masses[0] = masses_of(piece(row, number), largest);
    });
    let sum = |level: usize| pieces.iter().map(|masses| masses[level]).sum::<f64>();
    (sum(LEVELS.len()), std::array::from_fn(sum))
}

fn masses_of(row: &[f32], largest: f32) -> Masses {
    let mut sums = [[0.0f32; LANES]; LEVELS.len() + 1];
    dispatch(|| {
        let (chunks, rest) = row.as_chunks::<LANES>();
        let mut last = [f32::NEG_INFINITY; LANES];
        last[..rest.len()].copy_from_slice(rest);
        for chunk in chunks.iter().chain([&last]) {
            for lane in 0..LANES {
                let probability = Real::exp(chunk[lane]);
                sums[LEVELS.len()][lane] += probability;
                for (level, depth) in LEVELS.iter().enumerate() {
                    let inside = chunk[lane] >= largest - depth;
                    sums[level][lane] += if inside { probability } else { 0.0 };
                }
            }
        }
    });
    sums.map(|lanes| lanes.iter().map(|&sum| f64::from(sum)).sum())
}

/// The largest element of each block; NaN is passed over.
fn maxima(row: &[f32]) -> Vec<f32> {
    let mut maxima = vec![f32::NEG_INFINITY; row.len().div_ceil(BLOCK)];
    dispatch(|| {
        for (most, block) in maxima.iter_mut().zip(row.chunks(BLOCK)) {
            let mut lanes = [f32::NEG_INFINITY; LANES];
            for part in block.chunks(LANES) {
                for (lane, &x) in lanes.iter_mut().zip(part) {
                    *lane = if x > *lane { x } else { *lane };
                }
            }
            *most = lanes.iter().copied().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a });
        }
    });
    maxima
}

/// Calls `f` with the index and the value of each element that is no less than `bound`.
fn reaching(row: &[f32], maxima: &[f32], bound: f32, mut f: impl FnMut(u32, f32)) {
    for (block, (elements, &most)) in row.chunks(BLOCK).zip(maxima).enumerate() {
        if most < bound {
            continue;
        }
        for (i, &value) in elements.iter().enumerate() {
            if value >= bound {
                f((block * BLOCK + i) as u32, value);
            }
        }
    }
}

/// The elements that are no less than `bound`.
fn at_least(row: &[f32], maxima: &[f32], bound: f32) -> Vec<f32> {
    let mut kept = vec![0.0; row.len()];
    let mut count = 0;
    for (elements, &most) in row.chunks(BLOCK).zip(maxima) {
        if most < bound {
            continue;
        }
        // Written always and counted sometimes: no processor foresees which.
        for &value in elements {
            kept[count] = value;
            count += usize::from(value >= bound);
        }
    }
    kept.truncate(count);
    kept
}

const SIGN: u32 = 1 << 31;

/// Rises with the number; the zeros are equal.
fn key(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    if bits & SIGN != 0 { !bits } else { bits | SIGN }
}
