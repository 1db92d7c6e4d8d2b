//! Where rows of log-probabilities are cut off, on the CPU: found without sorting them. A row is
//! looked through once or twice in vectors; only what may be kept is put in order.

use std::cmp::Reverse;

use half::{bf16, f16};

use crate::array::{Array, DType, Meta};
use crate::cpu::simd::rows::LANES;
use crate::cpu::simd::{Real, dispatch};
use crate::cpu::tile::Storage;
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
    let (values, indices) = call.outputs2::<T, u32>()?;
    threads::chunks2_mut(values, 1, indices, 1, |row, value, index| {
        let mut wide = vec![0.0; length];
        T::widen_slice(&x[row * length..][..length], &mut wide);
        let (least, last) = match cutoff {
            Cutoff::Most(count) => most(&wide, count),
            Cutoff::Mass(part) => mass(&wide, part),
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

fn mass(row: &[f32], part: f64) -> (f32, u32) {
    let maxima = maxima(row);
    let largest = maxima.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (total, above) = masses(row, largest);
    let target = if part < 1.0 { total * part } else { f64::INFINITY };
    if !target.is_finite() {
        return (f32::NEG_INFINITY, ALL);
    }
    // A little more, because sums in different orders differ.
    let enough = above.iter().position(|&mass| mass > target * 1.0001);
    let bound = enough.map_or(f32::NEG_INFINITY, |level| largest - LEVELS[level]);
    let mut kept: Vec<Reverse<u32>> = Vec::new();
    reaching(row, &maxima, bound, |_, value| kept.push(Reverse(key(value))));
    kept.sort_unstable();
    let (mut least, mut sum) = (largest, 0.0);
    for &Reverse(key) in &kept {
        if sum >= target && sum > 0.0 {
            break;
        }
        least = value(key);
        sum += f64::from(least).exp();
        if target <= 0.0 {
            break;
        }
    }
    (least, ALL)
}

/// How far below the largest a row is looked at for what has the mass that is kept.
const LEVELS: [f32; 6] = [1.0, 2.0, 4.0, 7.0, 10.0, 14.0];

/// The sum of the probabilities, and of those within each level.
fn masses(row: &[f32], largest: f32) -> (f64, [f64; LEVELS.len()]) {
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
    let total = |lanes: [f32; LANES]| lanes.iter().map(|&sum| f64::from(sum)).sum::<f64>();
    let mut above = [0.0; LEVELS.len()];
    for (above, lanes) in above.iter_mut().zip(sums) {
        *above = total(lanes);
    }
    (total(sums[LEVELS.len()]), above)
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

const SIGN: u32 = 1 << 31;

/// Rises with the number; the zeros are equal.
fn key(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    if bits & SIGN != 0 { !bits } else { bits | SIGN }
}

/// The number of a key.
fn value(key: u32) -> f32 {
    f32::from_bits(if key & SIGN != 0 { key & !SIGN } else { !key })
}
