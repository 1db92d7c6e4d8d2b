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
        DType::F32 => each_row::<f32, 1>(call, forward),
        DType::F64 => each_row::<f64, 1>(call, forward),
        DType::F16 => each_row::<f16, 1>(call, forward),
        DType::BF16 => each_row::<bf16, 1>(call, forward),
        other => Err(Error::dtype("softmax", "x", "a floating-point type", other)),
    }
}

/// The softmax of one row, as the operation computes it.
pub(crate) fn softmax_row<T: Float + Real + bytemuck::Pod>(x: &[T], out: &mut [T]) {
    let none = Ahead::of::<T>(&[]);
    forward(Row { inputs: [x], out, waiting: None, next: ([none], none) });
}

pub(super) fn softmax_backward(call: &mut CpuCall<'_>) -> Result<()> {
    match call.output_meta(0).dtype {
        DType::F32 => each_row::<f32, 2>(call, backward),
        DType::F64 => each_row::<f64, 2>(call, backward),
        DType::F16 => each_row::<f16, 2>(call, backward),
        DType::BF16 => each_row::<bf16, 2>(call, backward),
        other => Err(Error::dtype("softmax_backward", "y", "a floating-point type", other)),
    }
}

/// A row to compute.
struct Row<'a, W, const N: usize> {
    inputs: [&'a [W]; N],
    out: &'a mut [W],
    /// Where to keep what is not yet the result, if that goes past the caches.
    waiting: Option<&'a mut [W]>,
    /// What to fetch for the next row: the inputs' and the output's.
    next: ([Ahead; N], Ahead),
}

/// Calls `kernel` with each row of the inputs and of the output, widened if they are narrow.
fn each_row<T: Storage + Send + Sync, const N: usize>(
    call: &mut CpuCall<'_>,
    kernel: impl Fn(Row<'_, T::Wide, N>) + Sync,
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
        // For inputs and results that are narrow, or for a result that is not yet complete.
        let mut wide: [Vec<T::Wide>; N] =
            std::array::from_fn(|_| vec![zero; if direct { 0 } else { columns }]);
        let mut beside = vec![zero; if direct && !streamed { 0 } else { columns }];
        for (row, out) in out.chunks_exact_mut(columns).enumerate() {
            let start = (chunk * rows_per_chunk + row) * columns;
            let source = |input: usize| inputs[input].map(|x| &x[start..start + columns]);
            let behind = |input: usize| Ahead::behind(source(input).unwrap_or(out));
            let next = (std::array::from_fn(behind), Ahead::behind(out));
            if direct {
                let inputs = std::array::from_fn(|input| {
                    source(input).map_or(&[][..], |row| bytemuck::cast_slice(row))
                });
                let waiting = streamed.then_some(&mut beside[..]);
                kernel(Row { inputs, out: bytemuck::cast_slice_mut(out), waiting, next });
                continue;
            }
            for (input, wide) in wide.iter_mut().enumerate() {
                T::widen_slice(source(input).unwrap_or(out), wide);
            }
            let inputs = std::array::from_fn(|input| &wide[input][..]);
            kernel(Row { inputs, out: &mut beside, waiting: None, next });
            T::narrow_slice(&beside, out);
        }
        stream::finish_if(streamed);
    });
    Ok(())
}

/// Maximum, powers with their sum, and the division, over a row in the cache.
fn forward<T: Float + Real + bytemuck::Pod>(row: Row<'_, T, 1>) {
    struct Forward<'a, T>(Row<'a, T, 1>);
    impl<T: Float + Real + bytemuck::Pod> pulp::WithSimd for Forward<'_, T> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, _: S) {
            let Row { inputs: [x], out, waiting, next: ([next_x], next_out) } = self.0;
            // Where the maximum is infinite or missing, NaNs come out by themselves.
            let most = rows::max(x);
            let Some(waiting) = waiting else {
                let factor = powers(x, most, out, next_x, Some(next_out));
                for value in out.iter_mut() {
                    *value = *value * factor;
                }
                return;
            };
            let factor = powers(x, most, waiting, next_x, None);
            let (powers, powers_rest) = waiting.as_chunks::<LANES>();
            let (out, out_rest) = out.as_chunks_mut::<LANES>();
            for (out, powers) in out.iter_mut().zip(powers) {
                stream::store(powers.map(|power| power * factor), out);
            }
            for (out, &power) in out_rest.iter_mut().zip(powers_rest) {
                *out = power * factor;
            }
        }
    }
    crate::cpu::simd::run(Forward(row));
}

/// `exp(x - most)` of a row; what to multiply it with so that it adds up to one.
#[inline(always)]
fn powers<T: Float + Real>(
    x: &[T],
    most: T,
    y: &mut [T],
    next_x: Ahead,
    next_y: Option<Ahead>,
) -> T {
    let mut sums = Lanes::zero();
    let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks_mut::<LANES>());
    for (index, (x, y)) in xs.iter().zip(ys).enumerate() {
        next_x.fetch(index * LANES);
        if let Some(next_y) = next_y {
            next_y.fetch(index * LANES);
        }
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
    <T as Float>::ONE / sums.sum()
}

/// The dot product of a row, and the gradient from it.
fn backward<T: Float + bytemuck::Pod>(row: Row<'_, T, 2>) {
    struct Backward<'a, T>(Row<'a, T, 2>);
    impl<T: Float + bytemuck::Pod> pulp::WithSimd for Backward<'_, T> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, _: S) {
            let Row { inputs: [y, dy], out, waiting, next: ([next_y, next_dy], next_out) } = self.0;
            let streamed = waiting.is_some();
            let dot = rows::dot(y, dy);
            let (ys, y_rest) = y.as_chunks::<LANES>();
            let (dys, dy_rest) = dy.as_chunks::<LANES>();
            let (outs, out_rest) = out.as_chunks_mut::<LANES>();
            for (index, ((dx, y), dy)) in outs.iter_mut().zip(ys).zip(dys).enumerate() {
                next_y.fetch(index * LANES);
                next_dy.fetch(index * LANES);
                let mut gradients = [T::ZERO; LANES];
                for lane in 0..LANES {
                    gradients[lane] = y[lane] * (dy[lane] - dot);
                }
                if streamed {
                    stream::store(gradients, dx);
                } else {
                    next_out.fetch(index * LANES);
                    *dx = gradients;
                }
            }
            for ((dx, &y), &dy) in out_rest.iter_mut().zip(y_rest).zip(dy_rest) {
                *dx = y * (dy - dot);
            }
        }
    }
    crate::cpu::simd::run(Backward(row));
}
