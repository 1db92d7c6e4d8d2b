//! Softmax on the CPU: a thread takes whole rows, which stay in its cache between the passes.

use half::{bf16, f16};

use crate::array::DType;
use crate::cpu::CpuCall;
use crate::cpu::simd::Real;
use crate::cpu::simd::rows::{self, Float, LANES, Lanes};
use crate::cpu::threads;
use crate::cpu::tile::Storage;
use crate::error::{Error, Result};

/// Elements a thread takes at a time, at least one row.
const CHUNK: usize = 16 * 1024;

pub(super) fn softmax(call: &mut CpuCall<'_>) -> Result<()> {
    match call.output_meta(0).dtype {
        DType::F32 => each_row::<f32, 1>(call, |[x], y| forward(x, y)),
        DType::F64 => each_row::<f64, 1>(call, |[x], y| forward(x, y)),
        DType::F16 => each_row::<f16, 1>(call, |[x], y| forward(x, y)),
        DType::BF16 => each_row::<bf16, 1>(call, |[x], y| forward(x, y)),
        other => Err(Error::dtype("softmax", "x", "a floating-point type", other)),
    }
}

pub(super) fn softmax_backward(call: &mut CpuCall<'_>) -> Result<()> {
    match call.output_meta(0).dtype {
        DType::F32 => each_row::<f32, 2>(call, |[y, dy], dx| backward(y, dy, dx)),
        DType::F64 => each_row::<f64, 2>(call, |[y, dy], dx| backward(y, dy, dx)),
        DType::F16 => each_row::<f16, 2>(call, |[y, dy], dx| backward(y, dy, dx)),
        DType::BF16 => each_row::<bf16, 2>(call, |[y, dy], dx| backward(y, dy, dx)),
        other => Err(Error::dtype("softmax_backward", "y", "a floating-point type", other)),
    }
}

/// Calls `kernel` with each row of the inputs and of the output, widened if they are narrow.
fn each_row<T: Storage + Send + Sync, const N: usize>(
    call: &mut CpuCall<'_>,
    kernel: impl Fn([&[T::Wide]; N], &mut [T::Wide]) + Sync,
) -> Result<()> {
    let columns = call.output_meta(0).shape().last().copied().unwrap_or(1);
    let mut inputs: [Option<&[T]>; N] = [None; N];
    for (input, slot) in inputs.iter_mut().enumerate() {
        *slot = if call.aliased(input) { None } else { Some(call.input::<T>(input)?) };
    }
    // Wide elements are used where they lie.
    let direct = size_of::<T>() == size_of::<T::Wide>() && inputs.iter().all(Option::is_some);
    let rows_per_chunk = (CHUNK / columns).max(1);
    let zero = <T::Wide as bytemuck::Zeroable>::zeroed();
    threads::chunks_mut(call.output::<T>(0)?, rows_per_chunk * columns, |chunk, out| {
        let first = chunk * rows_per_chunk * columns;
        let mut wide: [Vec<T::Wide>; N] = std::array::from_fn(|_| Vec::new());
        let mut result: Vec<T::Wide> = Vec::new();
        if !direct {
            wide = std::array::from_fn(|_| vec![zero; columns]);
            result = vec![zero; columns];
        }
        for (row, out) in out.chunks_mut(columns).enumerate() {
            let start = first + row * columns;
            let source = |input: usize| inputs[input].map(|x| &x[start..start + columns]);
            if direct {
                let rows = std::array::from_fn(|input| {
                    source(input).map_or(&[][..], |row| bytemuck::cast_slice(row))
                });
                kernel(rows, bytemuck::cast_slice_mut(out));
            } else {
                for (input, wide) in wide.iter_mut().enumerate() {
                    T::widen_slice(source(input).unwrap_or(out), wide);
                }
                kernel(std::array::from_fn(|input| &wide[input][..]), &mut result);
                T::narrow_slice(&result, out);
            }
        }
    });
    Ok(())
}

/// Maximum, powers with their sum, and the division, over a row in the cache.
fn forward<T: Float + Real>(x: &[T], y: &mut [T]) {
    struct Row<'a, T>(&'a [T], &'a mut [T]);
    impl<T: Float + Real> pulp::WithSimd for Row<'_, T> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, _: S) {
            let Row(x, y) = self;
            // Where the maximum is infinite or missing, NaNs come out by themselves.
            let most = rows::max(x);
            let mut sums = Lanes::zero();
            let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks_mut::<LANES>());
            for (x, y) in xs.iter().zip(ys) {
                for lane in 0..LANES {
                    y[lane] = Real::exp(x[lane] - most);
                    sums.0[lane] = sums.0[lane] + y[lane];
                }
            }
            for ((x, y), sum) in x_rest.iter().zip(y_rest).zip(&mut sums.0) {
                *y = Real::exp(*x - most);
                *sum = *sum + *y;
            }
            let factor = <T as Float>::ONE / sums.sum();
            for value in y.iter_mut() {
                *value = *value * factor;
            }
        }
    }
    crate::cpu::simd::run(Row(x, y));
}

/// The dot product of a row, and the gradient from it.
fn backward<T: Float>(y: &[T], dy: &[T], dx: &mut [T]) {
    struct Row<'a, T>(&'a [T], &'a [T], &'a mut [T]);
    impl<T: Float> pulp::WithSimd for Row<'_, T> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, _: S) {
            let Row(y, dy, dx) = self;
            let dot = rows::dot(y, dy);
            for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
                *dx = y * (dy - dot);
            }
        }
    }
    crate::cpu::simd::run(Row(y, dy, dx));
}
