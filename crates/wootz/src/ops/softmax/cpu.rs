//! Softmax on the CPU: a thread takes whole rows, which stay in its cache between the passes.

use half::{bf16, f16};

use crate::array::DType;
use crate::cpu::CpuCall;
use crate::cpu::simd::rows::{self, Float, LANES, Lanes};
use crate::cpu::simd::{Ahead, Real, stream};
use crate::cpu::threads;
use crate::cpu::tile::Storage;
use crate::error::{Error, Result};

pub(super) fn softmax(call: &mut CpuCall<'_>) -> Result<()> {
    match call.output_meta(0).dtype {
        DType::F32 => each_row::<f32, 1>(call, |[x], y, next| forward(x, y, next)),
        DType::F64 => each_row::<f64, 1>(call, |[x], y, next| forward(x, y, next)),
        DType::F16 => each_row::<f16, 1>(call, |[x], y, next| forward(x, y, next)),
        DType::BF16 => each_row::<bf16, 1>(call, |[x], y, next| forward(x, y, next)),
        other => Err(Error::dtype("softmax", "x", "a floating-point type", other)),
    }
}

pub(super) fn softmax_backward(call: &mut CpuCall<'_>) -> Result<()> {
    match call.output_meta(0).dtype {
        DType::F32 => each_row::<f32, 2>(call, |[y, dy], dx, next| backward(y, dy, dx, next)),
        DType::F64 => each_row::<f64, 2>(call, |[y, dy], dx, next| backward(y, dy, dx, next)),
        DType::F16 => each_row::<f16, 2>(call, |[y, dy], dx, next| backward(y, dy, dx, next)),
        DType::BF16 => each_row::<bf16, 2>(call, |[y, dy], dx, next| backward(y, dy, dx, next)),
        other => Err(Error::dtype("softmax_backward", "y", "a floating-point type", other)),
    }
}

/// What a row's kernel fetches for the next one: the inputs' rows and the output's.
type Next<const N: usize> = ([Ahead; N], Ahead);

/// Calls `kernel` with each row of the inputs and of the output, widened if they are narrow.
fn each_row<T: Storage + Send + Sync, const N: usize>(
    call: &mut CpuCall<'_>,
    kernel: impl Fn([&[T::Wide]; N], &mut [T::Wide], Next<N>) + Sync,
) -> Result<()> {
    let columns = call.output_meta(0).shape().last().copied().unwrap_or(1);
    let mut inputs: [Option<&[T]>; N] = [None; N];
    for (input, slot) in inputs.iter_mut().enumerate() {
        *slot = if call.aliased(input) { None } else { Some(call.input::<T>(input)?) };
    }
    // Wide elements are used where they lie.
    let direct = size_of::<T>() == size_of::<T::Wide>() && inputs.iter().all(Option::is_some);
    let rows_per_chunk = rows::per_task(call.output_meta(0).size() / columns, columns);
    let streamed = direct && stream::pays(call.output_meta(0).bytes());
    let zero = <T::Wide as bytemuck::Zeroable>::zeroed();
    threads::chunks_mut(call.output::<T>(0)?, rows_per_chunk * columns, |chunk, out| {
        let mut wide = (!direct).then(|| -> ([Vec<T::Wide>; N], Vec<T::Wide>) {
            (std::array::from_fn(|_| vec![zero; columns]), vec![zero; columns])
        });
        stream::each_row(out, columns, streamed, |row, out| {
            let start = (chunk * rows_per_chunk + row) * columns;
            let source = |input: usize| inputs[input].map(|x| &x[start..start + columns]);
            let behind = |input: usize| Ahead::behind(source(input).unwrap_or(out));
            // A streamed result must not be fetched; what waits for it is in the cache.
            let next_out = if streamed { Ahead::of(out) } else { Ahead::behind(out) };
            let next = (std::array::from_fn(behind), next_out);
            match &mut wide {
                None => {
                    let rows = std::array::from_fn(|input| {
                        source(input).map_or(&[][..], |row| bytemuck::cast_slice(row))
                    });
                    kernel(rows, bytemuck::cast_slice_mut(out), next);
                }
                Some((wide, result)) => {
                    for (input, wide) in wide.iter_mut().enumerate() {
                        T::widen_slice(source(input).unwrap_or(out), wide);
                    }
                    kernel(std::array::from_fn(|input| &wide[input][..]), result, next);
                    T::narrow_slice(result, out);
                }
            }
        });
    });
    Ok(())
}

/// Maximum, powers with their sum, and the division, over a row in the cache.
fn forward<T: Float + Real>(x: &[T], y: &mut [T], next: Next<1>) {
    struct Row<'a, T>(&'a [T], &'a mut [T], Next<1>);
    impl<T: Float + Real> pulp::WithSimd for Row<'_, T> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, _: S) {
            let Row(x, y, ([next_x], next_y)) = self;
            // Where the maximum is infinite or missing, NaNs come out by themselves.
            let most = rows::max(x);
            let mut sums = Lanes::zero();
            let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks_mut::<LANES>());
            for (index, (x, y)) in xs.iter().zip(ys).enumerate() {
                next_x.fetch(index * LANES);
                next_y.fetch(index * LANES);
                // Results wait in registers, so that no load can depend on a store.
                let mut powers = [T::ZERO; LANES];
                for lane in 0..LANES {
                    powers[lane] = Real::exp_nonpositive(x[lane] - most);
                    sums.0[lane] = sums.0[lane] + powers[lane];
                }
                *y = powers;
            }
            for ((x, y), sum) in x_rest.iter().zip(y_rest).zip(&mut sums.0) {
                *y = Real::exp_nonpositive(*x - most);
                *sum = *sum + *y;
            }
            let factor = <T as Float>::ONE / sums.sum();
            for value in y.iter_mut() {
                *value = *value * factor;
            }
        }
    }
    crate::cpu::simd::run(Row(x, y, next));
}

/// The dot product of a row, and the gradient from it.
fn backward<T: Float>(y: &[T], dy: &[T], dx: &mut [T], next: Next<2>) {
    struct Row<'a, T>(&'a [T], &'a [T], &'a mut [T], Next<2>);
    impl<T: Float> pulp::WithSimd for Row<'_, T> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, _: S) {
            let Row(y, dy, dx, ([next_y, next_dy], next_dx)) = self;
            let dot = rows::dot(y, dy);
            let (ys, y_rest) = y.as_chunks::<LANES>();
            let (dys, dy_rest) = dy.as_chunks::<LANES>();
            let (dxs, dx_rest) = dx.as_chunks_mut::<LANES>();
            for (index, ((dx, y), dy)) in dxs.iter_mut().zip(ys).zip(dys).enumerate() {
                next_y.fetch(index * LANES);
                next_dy.fetch(index * LANES);
                next_dx.fetch(index * LANES);
                let mut gradients = [T::ZERO; LANES];
                for lane in 0..LANES {
                    gradients[lane] = y[lane] * (dy[lane] - dot);
                }
                *dx = gradients;
            }
            for ((dx, &y), &dy) in dx_rest.iter_mut().zip(y_rest).zip(dy_rest) {
                *dx = y * (dy - dot);
            }
        }
    }
    crate::cpu::simd::run(Row(y, dy, dx, next));
}
