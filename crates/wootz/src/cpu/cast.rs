//! Conversions between the types that elements are computed in.

use num_complex::Complex32;

use super::simd::dispatch;
use super::tile::{cast, cast_mut};
use crate::array::{Class, DType};
use crate::op::{BLOCK, TileFn, block};

/// Floats become integers by truncation, integers wrap, anything but zero is true. A float that the
/// integer does not hold, NaN included, becomes what it does in MLX on x86: the smallest signed
/// integer, and of unsigned ones 0 if it is too large, else the same bits as the signed one's.
pub(crate) trait Convert<T> {
    /// The value as the other type.
    fn convert(self) -> T;
}

macro_rules! conversions {
    ($($from:ty => $($to:ty as $via:ty),*;)*) => {$($(
        impl Convert<$to> for $from {
            #[inline(always)]
            fn convert(self) -> $to { self as $via as $to }
        }
    )*)*};
}

conversions! {
    u32 => u32 as u32, u64 as u64, i32 as i32, i64 as i64, f32 as f32, f64 as f64;
    u64 => u32 as u32, u64 as u64, i32 as i32, i64 as i64, f32 as f32, f64 as f64;
    i32 => u32 as u32, u64 as u64, i32 as i32, i64 as i64, f32 as f32, f64 as f64;
    i64 => u32 as u32, u64 as u64, i32 as i32, i64 as i64, f32 as f32, f64 as f64;
    f32 => f32 as f32, f64 as f64;
    f64 => f32 as f32, f64 as f64;
}

macro_rules! float_to_integer {
    ($($from:ty => $signed:ty, $unsigned:ty, $half:expr;)*) => {$(
        impl Convert<$signed> for $from {
            #[inline(always)]
            fn convert(self) -> $signed {
                if (-$half..$half).contains(&self) { self as $signed } else { <$signed>::MIN }
            }
        }
        impl Convert<$unsigned> for $from {
            #[inline(always)]
            fn convert(self) -> $unsigned {
                let signed: $signed = self.convert();
                let large = if self < 2.0 * $half { self as $unsigned } else { 0 };
                if self >= $half { large } else { signed as $unsigned }
            }
        }
    )*};
}

float_to_integer! {
    f32 => i32, u32, 2147483648.0;
    f32 => i64, u64, 9223372036854775808.0;
    f64 => i32, u32, 2147483648.0;
    f64 => i64, u64, 9223372036854775808.0;
}

/// Real numbers have no imaginary part, and complex ones lose theirs.
macro_rules! complex_conversions {
    ($($type:ty),*) => {$(
        impl Convert<Complex32> for $type {
            #[inline(always)]
            fn convert(self) -> Complex32 {
                Complex32::new(self.convert(), 0.0)
            }
        }
        impl Convert<$type> for Complex32 {
            #[inline(always)]
            fn convert(self) -> $type {
                self.re.convert()
            }
        }
    )*};
}

complex_conversions!(u32, u64, i32, i64, f32, f64);

impl Convert<Complex32> for Complex32 {
    #[inline(always)]
    fn convert(self) -> Complex32 {
        self
    }
}

fn convert<A: bytemuck::Pod + Convert<B>, B: bytemuck::Pod>(args: &[&[u8]], out: &mut [u8]) {
    let (source, target) = (cast::<A>(args[0]), cast_mut::<B>(out));
    dispatch(|| {
        for (index, target) in target.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            for (target, source) in target.iter_mut().zip(block(source, index)) {
                *target = source.convert();
            }
        }
    });
}

fn truth<A: bytemuck::Pod + PartialEq + Default>(args: &[&[u8]], out: &mut [u8]) {
    let (source, target) = (cast::<A>(args[0]), cast_mut::<u32>(out));
    dispatch(|| {
        for (index, target) in target.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            for (target, source) in target.iter_mut().zip(block(source, index)) {
                *target = (*source != A::default()) as u32;
            }
        }
    });
}

/// The conversion from values of a class to those of a dtype (before rounding to it).
pub(crate) fn tile_fn(from: Class, to: DType) -> TileFn {
    macro_rules! to_class {
        ($from:ty) => {
            match to.class() {
                _ if to == DType::Bool => truth::<$from>,
                // Only low bits are kept: by way of the signed type, which has no large numbers.
                Class::U32 if to.size() < 4 => convert::<$from, i32>,
                Class::U32 => convert::<$from, u32>,
                Class::U64 => convert::<$from, u64>,
                Class::I32 => convert::<$from, i32>,
                Class::I64 => convert::<$from, i64>,
                Class::F32 => convert::<$from, f32>,
                Class::F64 => convert::<$from, f64>,
                Class::C64 => convert::<$from, Complex32>,
            }
        };
    }
    match from {
        Class::U32 => to_class!(u32),
        Class::U64 => to_class!(u64),
        Class::I32 => to_class!(i32),
        Class::I64 => to_class!(i64),
        Class::F32 => to_class!(f32),
        Class::F64 => to_class!(f64),
        Class::C64 => to_class!(Complex32),
    }
}
