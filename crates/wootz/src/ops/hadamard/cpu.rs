//! The transform on the CPU: a thread takes whole rows and adds and subtracts in place.

use half::{bf16, f16};

use crate::array::DType;
use crate::cpu::CpuCall;
use crate::cpu::simd::rows::{self, Float};
use crate::cpu::threads;
use crate::cpu::tile::Storage;
use crate::error::{Error, Result};

pub(super) fn transform(call: &mut CpuCall<'_>, scale: f32) -> Result<()> {
    match call.output_meta(0).dtype {
        DType::F32 => each_row::<f32>(call, scale),
        DType::F64 => each_row::<f64>(call, scale.into()),
        DType::F16 => each_row::<f16>(call, scale),
        DType::BF16 => each_row::<bf16>(call, scale),
        other => Err(Error::dtype("hadamard_transform", "x", "a floating-point type", other)),
    }
}

fn each_row<T: Storage + Send + Sync>(call: &mut CpuCall<'_>, scale: T::Wide) -> Result<()>
where
    T::Wide: Float,
{
    let columns = call.output_meta(0).shape().last().copied().unwrap_or(1);
    let input = if call.aliased(0) { None } else { Some(call.input::<T>(0)?) };
    let per_chunk = rows::per_task(call.output_meta(0).size() / columns, columns) * columns;
    threads::chunks_mut(call.output::<T>(0)?, per_chunk, |chunk, out| {
        let mut wide = vec![<T::Wide as bytemuck::Zeroable>::zeroed(); columns];
        for (row, out) in out.chunks_exact_mut(columns).enumerate() {
            let start = chunk * per_chunk + row * columns;
            T::widen_slice(input.map_or(out, |x| &x[start..start + columns]), &mut wide);
            crate::cpu::simd::run(Row { values: &mut wide, scale });
            T::narrow_slice(&wide, out);
        }
    });
    Ok(())
}

struct Row<'a, T> {
    values: &'a mut [T],
    scale: T,
}

impl<T: Float> pulp::WithSimd for Row<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Row { values, scale } = self;
        let mut half = 1;
        while half < values.len() {
            for pair in values.chunks_exact_mut(2 * half) {
                let (first, second) = pair.split_at_mut(half);
                for (a, b) in first.iter_mut().zip(second) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            half *= 2;
        }
        for value in values {
            *value = *value * scale;
        }
    }
}
