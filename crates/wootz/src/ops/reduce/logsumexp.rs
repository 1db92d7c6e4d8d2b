//! `logsumexp` on the CPU: tile by tile, each tile's sum taken relative to its own maximum, and
//! tiles joined in order in double precision. Elements are read from memory once.

use super::cpu::{Cursor, LANES, Plan, Source, TASK, feed, tree};
use super::fold::{Fold, Max, Sum};
use crate::array::DType;
use crate::cpu::simd::Real;
use crate::cpu::tile::{Storage, TILE};
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};

/// Computes the call's output over `axes`.
pub(super) fn run(call: &mut CpuCall<'_>, axes: &[usize], _: f64) -> Result<()> {
    match call.meta(0).dtype {
        DType::F16 => rows::<half::f16>(call, axes),
        DType::BF16 => rows::<half::bf16>(call, axes),
        DType::F32 => rows::<f32>(call, axes),
        DType::F64 => rows::<f64>(call, axes),
        other => Err(Error::dtype("logsumexp", "x", "a floating-point type", other)),
    }
}

fn rows<T: Storage + Sync + Send>(call: &mut CpuCall<'_>, axes: &[usize]) -> Result<()>
where
    T::Wide: Float,
    Max: Fold<T::Wide, Acc = T::Wide>,
    Sum: Fold<T::Wide, Acc = T::Wide>,
{
    let input = call.strided::<T>(0)?;
    let plan = Plan::new(&input.meta.layout, axes);
    let source = Source { data: input.data, dtype: input.meta.dtype };
    let chunk = (TASK / 4 / plan.length.max(1)).max(1);
    threads::chunks_mut(call.output::<T>(0)?, chunk, |index, out| {
        let first = index * chunk;
        crate::cpu::simd::run(Row { source, plan: &plan, first, out });
    });
    Ok(())
}

/// What is needed of `f32` and `f64` beside the fold's functions.
trait Float: Real + std::ops::Sub<Output = Self> {
    const ZERO: Self;
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;
}

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Float for $type {
            const ZERO: $type = 0.0;
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn from_f64(value: f64) -> $type {
                value as $type
            }
        }
    )*};
}
floats!(f32, f64);

struct Row<'a, T> {
    source: Source<'a, T>,
    plan: &'a Plan,
    first: usize,
    out: &'a mut [T],
}

impl<T: Storage> pulp::WithSimd for Row<'_, T>
where
    T::Wide: Float,
    Max: Fold<T::Wide, Acc = T::Wide>,
    Sum: Fold<T::Wide, Acc = T::Wide>,
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Row { source, plan, first, out } = self;
        let mut buffer = [T::Wide::ZERO; TILE];
        let mut powers = [T::Wide::ZERO; TILE];
        let mut cursor = Cursor::new(&plan.kept, first, plan.offset());
        for out in out {
            let (mut top, mut sum) = (f64::NEG_INFINITY, 0.0);
            for at in (0..plan.length).step_by(TILE) {
                let count = TILE.min(plan.length - at);
                let run = source.load(plan, cursor.position, at, &mut buffer[..count]);
                let mut lanes = [<Max as Fold<T::Wide>>::IDENTITY; LANES];
                feed::<T::Wide, Max>(&mut lanes, run);
                let tile_top = tree::<T::Wide, Max>(&mut lanes, count);
                let wide_top = tile_top.to_f64();
                // Infinities and NaN decide alone: their differences mean nothing.
                if wide_top.is_nan() || top.is_nan() {
                    top = f64::NAN;
                    continue;
                }
                if wide_top.is_infinite() || top == f64::INFINITY {
                    top = top.max(wide_top);
                    continue;
                }
                let powers = &mut powers[..count];
                for (power, &x) in powers.iter_mut().zip(run) {
                    *power = Real::exp(x - tile_top);
                }
                let mut lanes = [<Sum as Fold<T::Wide>>::IDENTITY; LANES];
                feed::<T::Wide, Sum>(&mut lanes, powers);
                let tile_sum = tree::<T::Wide, Sum>(&mut lanes, count).to_f64();
                if wide_top > top {
                    sum = sum * f64::exp(top - wide_top) + tile_sum;
                    top = wide_top;
                } else {
                    sum += tile_sum * f64::exp(wide_top - top);
                }
            }
            let value = if top.is_finite() { top + sum.ln() } else { top };
            *out = T::narrow(T::Wide::from_f64(value));
            cursor.advance();
        }
    }
}
