//! The transform on the CPU: a thread takes whole rows and adds and subtracts in place.

use half::{bf16, f16};

use super::{Hadamard, factors, signs};
use crate::array::DType;
use crate::cpu::CpuCall;
use crate::cpu::simd::rows::{self, Float};
use crate::cpu::threads;
use crate::cpu::tile::Storage;
use crate::error::{Error, Result};

pub(super) fn transform(call: &mut CpuCall<'_>, op: &Hadamard) -> Result<()> {
    match call.output_meta(0).dtype {
        DType::F32 => each_row::<f32>(call, op),
        DType::F64 => each_row::<f64>(call, op),
        DType::F16 => each_row::<f16>(call, op),
        DType::BF16 => each_row::<bf16>(call, op),
        other => Err(Error::dtype("hadamard_transform", "x", "a floating-point type", other)),
    }
}

fn each_row<T: Storage + Send + Sync>(call: &mut CpuCall<'_>, op: &Hadamard) -> Result<()>
where
    T::Wide: Float,
{
    let columns = call.output_meta(0).shape().last().copied().unwrap_or(1);
    let Some((order, power)) = factors(columns) else { return Ok(()) };
    let signs = signs(order, op.transposed);
    let scale = T::Wide::from_f64(op.scale.into());
    let input = if call.aliased(0) { None } else { Some(call.input::<T>(0)?) };
    let per_chunk = rows::per_task(call.output_meta(0).size() / columns, columns) * columns;
    threads::chunks_mut(call.output::<T>(0)?, per_chunk, |chunk, out| {
        let zero = <T::Wide as bytemuck::Zeroable>::zeroed();
        let mut wide = vec![zero; columns];
        let mut beside = vec![zero; if order > 1 { columns } else { 0 }];
        for (row, out) in out.chunks_exact_mut(columns).enumerate() {
            let start = chunk * per_chunk + row * columns;
            T::widen_slice(input.map_or(out, |x| &x[start..start + columns]), &mut wide);
            crate::cpu::simd::run(Row { values: &mut wide, power, scale });
            if order == 1 {
                T::narrow_slice(&wide, out);
                continue;
            }
            crate::cpu::simd::run(Across { values: &wide, signs: &signs, power, out: &mut beside });
            T::narrow_slice(&beside, out);
        }
    });
    Ok(())
}

/// The transform of each `power` elements of a row, times `scale`.
struct Row<'a, T> {
    values: &'a mut [T],
    power: usize,
    scale: T,
}

impl<T: Float> pulp::WithSimd for Row<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Row { values, power, scale } = self;
        let mut half = 1;
        while half < power {
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

/// Sums of the parts of a row, each of `power` elements, with signs.
struct Across<'a, T> {
    values: &'a [T],
    signs: &'a [u32],
    power: usize,
    out: &'a mut [T],
}

impl<T: Float> pulp::WithSimd for Across<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Across { values, signs, power, out } = self;
        for (&signs, sums) in signs.iter().zip(out.chunks_exact_mut(power)) {
            sums.fill(T::ZERO);
            for (place, part) in values.chunks_exact(power).enumerate() {
                let sign = if signs >> place & 1 == 1 { T::ZERO - T::ONE } else { T::ONE };
                for (sum, &value) in sums.iter_mut().zip(part) {
                    *sum = *sum + sign * value;
                }
            }
        }
    }
}
