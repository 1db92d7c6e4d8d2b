//! Elements as integers that rise with MLX's order.

use bytemuck::Pod;
use half::{bf16, f16};

/// Values of a digit: more take fewer passes, and their places no longer fit the first cache.
pub(super) const VALUES: usize = 1 << BITS;
const BITS: u32 = 11;

/// An unsigned integer that elements are ordered by.
pub(super) trait Key: Pod + Ord + Send + Sync {
    /// Digits of [`VALUES`] values each, the lowest first.
    const DIGITS: usize;
    fn digit(self, place: usize) -> usize;
    fn to_u64(self) -> u64;
}

macro_rules! keys {
    ($($type:ty),*) => {$(
        impl Key for $type {
            const DIGITS: usize = <$type>::BITS.div_ceil(BITS) as usize;
            #[inline(always)]
            fn digit(self, place: usize) -> usize {
                (self >> (BITS * place as u32)) as usize % VALUES
            }
            #[inline(always)]
            fn to_u64(self) -> u64 {
                self as u64
            }
        }
    )*};
}

keys!(u8, u16, u32, u64);

/// An element with its place in MLX's order.
pub(super) trait Sortable: Pod + Send + Sync {
    type Key: Key;
    /// Rises with the value; equal for equal values; all NaNs are equal and largest.
    fn key(self) -> Self::Key;
}

macro_rules! sortable_integers {
    ($($type:ty: $bits:ty, $lowest:expr);*) => {$(
        impl Sortable for $type {
            type Key = $bits;
            #[inline(always)]
            fn key(self) -> $bits {
                self as $bits ^ $lowest as $bits
            }
        }
    )*};
}

sortable_integers!(u8: u8, 0; u16: u16, 0; u32: u32, 0; u64: u64, 0;
    i8: u8, i8::MIN; i16: u16, i16::MIN; i32: u32, i32::MIN; i64: u64, i64::MIN);

macro_rules! sortable_floats {
    ($($type:ty: $bits:ty, $signed:ty, $infinity:expr);*) => {$(
        impl Sortable for $type {
            type Key = $bits;
            // Chosen without branches, which would be guessed wrong for numbers of both signs.
            #[inline(always)]
            fn key(self) -> $bits {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = self.to_bits();
                let magnitude = bits & !SIGN;
                let negative = (bits as $signed >> (<$bits>::BITS - 1)) as $bits;
                let risen = bits ^ (negative | SIGN);
                let risen = if magnitude == 0 { SIGN } else { risen };
                if magnitude > $infinity { <$bits>::MAX } else { risen }
            }
        }
    )*};
}

sortable_floats!(f16: u16, i16, 0x7c00; bf16: u16, i16, 0x7f80; f32: u32, i32, 0x7f80_0000;
    f64: u64, i64, 0x7ff0_0000_0000_0000);
