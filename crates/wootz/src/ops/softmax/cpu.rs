//! Softmax on the CPU: a thread takes whole rows, which stay in its cache between the passes.

use half::{bf16, f16};

use crate::array::DType;
use crate::cpu::CpuCall;
use crate::cpu::simd::Real;
use crate::cpu::threads;
use crate::cpu::tile::Storage;
use crate::error::{Error, Result};

/// Partial results per row: their number fixes the order of a sum on every processor.
const LANES: usize = 16;
/// Elements a thread takes at a time, at least one row.
const CHUNK: usize = 16 * 1024;

pub(super) fn softmax(call: &mut CpuCall<'_>) -> Result<()> {
    match call.output_meta(0).dtype {
        DType::F32 => rows::<f32, 1>(call, |[x], y| forward32(x, y)),
        DType::F64 => rows::<f64, 1>(call, |[x], y| forward64(x, y)),
        DType::F16 => rows::<f16, 1>(call, |[x], y| forward32(x, y)),
        DType::BF16 => rows::<bf16, 1>(call, |[x], y| forward32(x, y)),
        other => Err(Error::dtype("softmax", "x", "a floating-point type", other)),
    }
}

pub(super) fn softmax_backward(call: &mut CpuCall<'_>) -> Result<()> {
    match call.output_meta(0).dtype {
        DType::F32 => rows::<f32, 2>(call, |[y, dy], dx| backward32(y, dy, dx)),
        DType::F64 => rows::<f64, 2>(call, |[y, dy], dx| backward64(y, dy, dx)),
        DType::F16 => rows::<f16, 2>(call, |[y, dy], dx| backward32(y, dy, dx)),
        DType::BF16 => rows::<bf16, 2>(call, |[y, dy], dx| backward32(y, dy, dx)),
        other => Err(Error::dtype("softmax_backward", "y", "a floating-point type", other)),
    }
}

/// Calls `kernel` with each row of the inputs and of the output, widened if they are narrow.
fn rows<T: Storage + Send + Sync, const N: usize>(
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

/// The row kernels, for both float types. Structs and not closures: only methods marked for it
/// are sure to be inlined into the vectorised caller.
macro_rules! row_kernels {
    ($float:ty, $forward:ident, $backward:ident) => {
        fn $forward(x: &[$float], y: &mut [$float]) {
            struct Row<'a>(&'a [$float], &'a mut [$float]);
            impl pulp::WithSimd for Row<'_> {
                type Output = ();
                #[inline(always)]
                fn with_simd<S: pulp::Simd>(self, _: S) {
                    let Row(x, y) = self;
                    let mut highest = [<$float>::NEG_INFINITY; LANES];
                    let (chunks, rest) = x.as_chunks::<LANES>();
                    for chunk in chunks {
                        for lane in 0..LANES {
                            highest[lane] = if chunk[lane] > highest[lane] {
                                chunk[lane]
                            } else {
                                highest[lane]
                            };
                        }
                    }
                    let mut most = <$float>::NEG_INFINITY;
                    for &value in rest.iter().chain(&highest) {
                        most = if value > most { value } else { most };
                    }
                    // Where the maximum is infinite or missing, NaNs come out by themselves.
                    let mut sums = [0.0; LANES];
                    let (outs, out_rest) = y.as_chunks_mut::<LANES>();
                    for (out, chunk) in outs.iter_mut().zip(chunks) {
                        for lane in 0..LANES {
                            let power = Real::exp(chunk[lane] - most);
                            out[lane] = power;
                            sums[lane] += power;
                        }
                    }
                    for (lane, (out, &value)) in out_rest.iter_mut().zip(rest).enumerate() {
                        let power = Real::exp(value - most);
                        *out = power;
                        sums[lane] += power;
                    }
                    let factor = 1.0 / tree(sums);
                    for value in y.iter_mut() {
                        *value *= factor;
                    }
                }
            }
            pulp::Arch::new().dispatch(Row(x, y));
        }

        fn $backward(y: &[$float], dy: &[$float], dx: &mut [$float]) {
            struct Row<'a>(&'a [$float], &'a [$float], &'a mut [$float]);
            impl pulp::WithSimd for Row<'_> {
                type Output = ();
                #[inline(always)]
                fn with_simd<S: pulp::Simd>(self, _: S) {
                    let Row(y, dy, dx) = self;
                    let mut sums = [0.0; LANES];
                    let ((ys, y_rest), (dys, dy_rest)) =
                        (y.as_chunks::<LANES>(), dy.as_chunks::<LANES>());
                    for (y, dy) in ys.iter().zip(dys) {
                        for lane in 0..LANES {
                            sums[lane] += y[lane] * dy[lane];
                        }
                    }
                    for (lane, (y, dy)) in y_rest.iter().zip(dy_rest).enumerate() {
                        sums[lane] += y * dy;
                    }
                    let dot = tree(sums);
                    for ((dx, y), dy) in dx.iter_mut().zip(y).zip(dy) {
                        *dx = y * (dy - dot);
                    }
                }
            }
            pulp::Arch::new().dispatch(Row(y, dy, dx));
        }
    };
}

row_kernels!(f32, forward32, backward32);
row_kernels!(f64, forward64, backward64);

/// The sum of the lanes, in a fixed order.
#[inline(always)]
fn tree<T: Copy + std::ops::Add<Output = T>>(mut lanes: [T; LANES]) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = lanes[lane] + lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}
