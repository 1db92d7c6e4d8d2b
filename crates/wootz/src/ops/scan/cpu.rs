//! Scans on the CPU: element after element along the axis, for many lines side by side where these
//! are neighbours in memory.

use std::marker::PhantomData;

use bytemuck::Pod;
use num_complex::Complex32;

use super::{Scan, Start, around};
use crate::array::DType;
use crate::cpu::tile::{Storage, with_types};
use crate::cpu::{CpuCall, threads};
use crate::error::Result;
use crate::ops::reduce::fold::Fold;

/// Elements that are worth handing to another thread.
const TASK: usize = 32 * 1024;

/// Runs a scan.
pub(super) fn run<K>(call: &mut CpuCall<'_>, scan: &Scan) -> Result<()>
where
    K: Fold<u32, Acc = u32>
        + Fold<u64, Acc = u64>
        + Fold<i32, Acc = i32>
        + Fold<i64, Acc = i64>
        + Fold<f32, Acc = f32>
        + Fold<f64, Acc = f64>
        + Fold<Complex32, Acc = Complex32>,
{
    use half::{bf16, f16};
    macro_rules! body {
        ($narrow:ty, $wide:ty) => {
            lines::<$narrow, $narrow, K>(call, scan)
        };
    }
    match (call.meta(0).dtype, call.output_meta(0).dtype) {
        // Counts are never negative.
        (DType::Bool, DType::I32) => lines::<u8, u32, K>(call, scan),
        (dtype, _) => with_types!(dtype, body),
    }
}

fn lines<T, O, K>(call: &mut CpuCall<'_>, scan: &Scan) -> Result<()>
where
    T: Storage + Send + Sync,
    O: Storage<Wide = T::Wide> + Send + Sync,
    K: Fold<T::Wide, Acc = T::Wide>,
{
    let x = call.input::<T>(0)?;
    let meta = call.meta(0);
    let (_, length, inner) = around(meta.shape(), scan.axis);
    let first = edge(meta.dtype, scan.row.start).unwrap_or(O::narrow(K::IDENTITY));
    let slab = length * inner;
    if slab == 0 {
        return Ok(());
    }
    let chunk = slab * (TASK / slab).max(1);
    threads::chunks_mut(call.output::<O>(0)?, chunk, |index, out| {
        let x = &x[index * chunk..][..out.len()];
        for (x, out) in x.chunks_exact(slab).zip(out.chunks_exact_mut(slab)) {
            crate::cpu::simd::run(Line::<T, O, K> {
                x,
                out,
                inner,
                reverse: scan.reverse,
                inclusive: scan.inclusive,
                first,
                kind: PhantomData,
            });
        }
    });
    Ok(())
}

/// All lines that share the axes before the scanned one.
struct Line<'a, T, O, K> {
    x: &'a [T],
    out: &'a mut [O],
    inner: usize,
    reverse: bool,
    inclusive: bool,
    first: O,
    kind: PhantomData<fn() -> K>,
}

impl<T, O, K> pulp::WithSimd for Line<'_, T, O, K>
where
    T: Storage,
    O: Storage<Wide = T::Wide>,
    K: Fold<T::Wide, Acc = T::Wide>,
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Line { x, out, inner, reverse, inclusive, first, .. } = self;
        let length = x.len() / inner;
        let mut running = vec![K::IDENTITY; inner];
        for step in 0..length {
            let at = if reverse { length - 1 - step } else { step } * inner;
            let (x, out) = (&x[at..at + inner], &mut out[at..at + inner]);
            for j in 0..inner {
                let next = K::combine(running[j], K::map(x[j].widen()));
                let shown = if inclusive { next } else { running[j] };
                out[j] = O::narrow(shown);
                running[j] = next;
            }
            if step == 0 && !inclusive {
                out.fill(first);
            }
        }
    }
}

/// The limits of types whose widened limits do not fit them.
fn edge<T: Pod>(dtype: DType, start: Start) -> Option<T> {
    let bytes: &[u8] = match (dtype, start) {
        (DType::Bool, Start::Highest) => &[1],
        (DType::I8, Start::Lowest) => &[0x80],
        (DType::I8, Start::Highest) => &[0x7f],
        (DType::I16, Start::Lowest) => &[0x00, 0x80],
        (DType::I16, Start::Highest) => &[0xff, 0x7f],
        _ => return None,
    };
    bytemuck::try_pod_read_unaligned(bytes).ok()
}
