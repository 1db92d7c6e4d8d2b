//! Sorting on the CPU: rows shared out to threads, compared on order-preserving integers.

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex32;

use super::Side;
use crate::array::DType;
use crate::cpu::{CpuCall, threads};
use crate::error::Result;

/// Elements that a thread sorts or looks up at least.
const CHUNK: usize = 4096;

/// An element with its place in MLX's order.
trait Sortable: Pod + Send + Sync {
    type Key: Ord + Copy;
    /// Rises with the value; equal for equal values; all NaNs are equal and largest.
    fn key(self) -> Self::Key;
}

macro_rules! sortable_integers {
    ($($type:ty),*) => {$(
        impl Sortable for $type {
            type Key = $type;
            #[inline(always)]
            fn key(self) -> $type {
                self
            }
        }
    )*};
}

sortable_integers!(u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! sortable_floats {
    ($($type:ty: $bits:ty, $infinity:expr);*) => {$(
        impl Sortable for $type {
            type Key = $bits;
            #[inline(always)]
            fn key(self) -> $bits {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = self.to_bits();
                match bits & !SIGN {
                    0 => SIGN,
                    magnitude if magnitude > $infinity => <$bits>::MAX,
                    _ if bits & SIGN != 0 => !bits,
                    _ => bits | SIGN,
                }
            }
        }
    )*};
}

sortable_floats!(f16: u16, 0x7c00; bf16: u16, 0x7f80; f32: u32, 0x7f80_0000;
    f64: u64, 0x7ff0_0000_0000_0000);

/// By the real part, then by the imaginary one; with a NaN in either last.
impl Sortable for Complex32 {
    type Key = u64;
    #[inline(always)]
    fn key(self) -> u64 {
        match self.re.is_nan() || self.im.is_nan() {
            true => u64::MAX,
            false => (self.re.key() as u64) << 32 | self.im.key() as u64,
        }
    }
}

/// Calls a function generic over the elements of a dtype.
macro_rules! with_elements {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            DType::Bool | DType::U8 => $function::<u8>($($argument),*),
            DType::U16 => $function::<u16>($($argument),*),
            DType::U32 => $function::<u32>($($argument),*),
            DType::U64 => $function::<u64>($($argument),*),
            DType::I8 => $function::<i8>($($argument),*),
            DType::I16 => $function::<i16>($($argument),*),
            DType::I32 => $function::<i32>($($argument),*),
            DType::I64 => $function::<i64>($($argument),*),
            DType::F16 => $function::<f16>($($argument),*),
            DType::BF16 => $function::<bf16>($($argument),*),
            DType::F32 => $function::<f32>($($argument),*),
            DType::F64 => $function::<f64>($($argument),*),
            DType::C64 => $function::<Complex32>($($argument),*),
        }
    };
}

/// Sorts the rows of the input.
pub(super) fn sort(call: &mut CpuCall<'_>) -> Result<()> {
    with_elements!(call.meta(0).dtype, sort_rows(call))
}

/// The indices that sort the rows of the input.
pub(super) fn argsort(call: &mut CpuCall<'_>) -> Result<()> {
    with_elements!(call.meta(0).dtype, argsort_rows(call))
}

/// The places of the second input's elements in the first.
pub(super) fn searchsorted(call: &mut CpuCall<'_>, side: Side) -> Result<()> {
    with_elements!(call.meta(0).dtype, search(call, side))
}

fn row_length(call: &CpuCall<'_>) -> usize {
    call.meta(0).shape().last().copied().unwrap_or(1).max(1)
}

fn sort_rows<T: Sortable>(call: &mut CpuCall<'_>) -> Result<()> {
    let (x, length) = (call.input::<T>(0)?, row_length(call));
    let chunk = (CHUNK / length).max(1) * length;
    threads::chunks_mut(call.output::<T>(0)?, chunk, |index, out| {
        out.copy_from_slice(&x[index * chunk..][..out.len()]);
        out.chunks_mut(length).for_each(|row| row.sort_by_key(|value| value.key()));
    });
    Ok(())
}

fn argsort_rows<T: Sortable>(call: &mut CpuCall<'_>) -> Result<()> {
    let (x, length) = (call.input::<T>(0)?, row_length(call));
    let chunk = (CHUNK / length).max(1) * length;
    threads::chunks_mut(call.output::<u32>(0)?, chunk, |index, out| {
        let x = &x[index * chunk..][..out.len()];
        let mut pairs: Vec<(T::Key, u32)> = Vec::with_capacity(length);
        for (x, out) in x.chunks(length).zip(out.chunks_mut(length)) {
            pairs.clear();
            pairs.extend(x.iter().zip(0u32..).map(|(value, index)| (value.key(), index)));
            // No two pairs are equal, so this is stable.
            pairs.sort_unstable();
            for (out, pair) in out.iter_mut().zip(&pairs) {
                *out = pair.1;
            }
        }
    });
    Ok(())
}

fn search<T: Sortable>(call: &mut CpuCall<'_>, side: Side) -> Result<()> {
    let (sorted, values) = (call.input::<T>(0)?, call.input::<T>(1)?);
    threads::chunks_mut(call.output::<u32>(0)?, CHUNK, |index, out| {
        for (out, value) in out.iter_mut().zip(&values[index * CHUNK..]) {
            let key = value.key();
            let place = match side {
                Side::Left => sorted.partition_point(|other| other.key() < key),
                Side::Right => sorted.partition_point(|other| other.key() <= key),
            };
            *out = place as u32;
        }
    });
    Ok(())
}
