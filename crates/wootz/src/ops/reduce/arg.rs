//! `argmax` and `argmin` on the CPU: the first of the best elements; a NaN is better than any
//! number. The result is exact, so the order of comparisons is free.

use bytemuck::Pod;
use num_complex::Complex32;

use super::cpu::{Cursor, LANES, PANEL, Plan, Source, TASK, feed, tree};
use super::fold::{Fold, Max, Min};
use crate::array::DType;
use crate::cpu::simd::Complex;
use crate::cpu::tile::{Storage, TILE, with_types};
use crate::cpu::{CpuCall, simd, threads};
use crate::error::Result;

/// A fold that chooses one of its elements.
pub(crate) trait Choice<W: Pod>: Fold<W, Acc = W> {
    /// Whether `b` is chosen over an `a` that came before it.
    fn better(a: W, b: W) -> bool;
    /// Whether both are the same choice.
    fn same(a: W, b: W) -> bool;
}

macro_rules! choices {
    ($is_nan:expr, $($type:ident),*) => {$(
        impl Choice<$type> for Max {
            #[inline(always)]
            fn better(a: $type, b: $type) -> bool {
                let is_nan: fn($type) -> bool = $is_nan;
                b > a || (is_nan(b) && !is_nan(a))
            }
            #[inline(always)]
            fn same(a: $type, b: $type) -> bool {
                let is_nan: fn($type) -> bool = $is_nan;
                a == b || (is_nan(a) && is_nan(b))
            }
        }
        impl Choice<$type> for Min {
            #[inline(always)]
            fn better(a: $type, b: $type) -> bool {
                let is_nan: fn($type) -> bool = $is_nan;
                b < a || (is_nan(b) && !is_nan(a))
            }
            #[inline(always)]
            fn same(a: $type, b: $type) -> bool {
                <Max as Choice<$type>>::same(a, b)
            }
        }
    )*};
}
choices!(|_| false, u32, u64, i32, i64);
choices!(|x| x.is_nan(), f32, f64);

impl Choice<Complex32> for Max {
    #[inline(always)]
    fn better(a: Complex32, b: Complex32) -> bool {
        a.less(b) || (Complex::is_nan(b) && !Complex::is_nan(a))
    }
    #[inline(always)]
    fn same(a: Complex32, b: Complex32) -> bool {
        a == b || (Complex::is_nan(a) && Complex::is_nan(b))
    }
}

impl Choice<Complex32> for Min {
    #[inline(always)]
    fn better(a: Complex32, b: Complex32) -> bool {
        b.less(a) || (Complex::is_nan(b) && !Complex::is_nan(a))
    }
    #[inline(always)]
    fn same(a: Complex32, b: Complex32) -> bool {
        <Max as Choice<Complex32>>::same(a, b)
    }
}

/// Writes the place of the best element over `axes`.
pub(super) fn run<K>(call: &mut CpuCall<'_>, axes: &[usize], _: f64) -> Result<()>
where
    K: Choice<u32>
        + Choice<u64>
        + Choice<i32>
        + Choice<i64>
        + Choice<f32>
        + Choice<f64>
        + Choice<Complex32>,
{
    use half::{bf16, f16};
    macro_rules! body {
        ($narrow:ty, $wide:ty) => {
            choose::<$narrow, K>(call, axes)
        };
    }
    with_types!(call.meta(0).dtype, body)
}

fn choose<T: Storage + Sync, K: Choice<T::Wide>>(
    call: &mut CpuCall<'_>,
    axes: &[usize],
) -> Result<()> {
    let input = call.strided::<T>(0)?;
    let plan = Plan::new(&input.meta.layout, axes);
    let source = Source { data: input.data, dtype: input.meta.dtype };
    let chunk = (TASK / plan.length.max(1)).clamp(if plan.column { PANEL } else { 1 }, TASK);
    threads::chunks_mut(call.output::<u32>(0)?, chunk, |index, out| {
        let first = index * chunk;
        if plan.column {
            for (panel, out) in out.chunks_mut(PANEL).enumerate() {
                let first = first + panel * PANEL;
                simd::run(Column::<T, K> { source, plan: &plan, first, out, kind: K::IDENTITY });
            }
        } else {
            simd::run(Row::<T, K> { source, plan: &plan, first, out, kind: K::IDENTITY });
        }
    });
    Ok(())
}

/// One output after the other: the best value of a tile decides whether its place is looked for.
struct Row<'a, T: Storage, K: Fold<T::Wide>> {
    source: Source<'a, T>,
    plan: &'a Plan,
    first: usize,
    out: &'a mut [u32],
    kind: K::Acc,
}

impl<T: Storage, K: Choice<T::Wide>> pulp::WithSimd for Row<'_, T, K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Row { source, plan, first, out, kind: identity } = self;
        let mut buffer = [<T::Wide as bytemuck::Zeroable>::zeroed(); TILE];
        let mut cursor = Cursor::new(&plan.kept, first, plan.offset());
        for out in out {
            let (mut best, mut place) = (identity, 0);
            for at in (0..plan.length).step_by(TILE) {
                let count = TILE.min(plan.length - at);
                let run = source.load(plan, cursor.position, at, &mut buffer[..count]);
                let mut lanes = [identity; LANES];
                feed::<T::Wide, K>(&mut lanes, run);
                let value = tree::<T::Wide, K>(&mut lanes, count);
                if at == 0 || K::better(best, value) {
                    best = value;
                    place = at + run.iter().position(|&x| K::same(x, value)).unwrap_or(0);
                }
            }
            *out = place as u32;
            cursor.advance();
        }
    }
}

/// Neighbouring outputs side by side.
struct Column<'a, T: Storage, K: Fold<T::Wide>> {
    source: Source<'a, T>,
    plan: &'a Plan,
    first: usize,
    out: &'a mut [u32],
    kind: K::Acc,
}

impl<T: Storage, K: Choice<T::Wide>> pulp::WithSimd for Column<'_, T, K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Column { source, plan, first, out, kind: identity } = self;
        let last = plan.kept.0.len() - 1;
        let (inner, stride) = (plan.kept.0[last], plan.kept.1[last]);
        let mut buffer = [<T::Wide as bytemuck::Zeroable>::zeroed(); PANEL];
        let mut best = [identity; PANEL];
        let mut done = 0;
        while done < out.len() {
            let index = first + done;
            let run = (inner - index % inner).min(out.len() - done);
            let base = Cursor::new(&plan.kept, index, plan.offset()).position;
            let mut cursor = Cursor::new(&plan.reduced, 0, base);
            let (best, out) = (&mut best[..run], &mut out[done..done + run]);
            for i in 0..plan.length {
                let row = source.row(cursor.position, stride, &mut buffer[..run]);
                if i == 0 {
                    best.copy_from_slice(row);
                    out.fill(0);
                }
                for ((best, place), &x) in best.iter_mut().zip(out.iter_mut()).zip(row) {
                    let better = K::better(*best, x);
                    *best = if better { x } else { *best };
                    *place = if better { i as u32 } else { *place };
                }
                cursor.advance();
            }
            done += run;
        }
    }
}
