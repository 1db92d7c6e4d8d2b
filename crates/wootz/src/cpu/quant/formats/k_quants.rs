//! GGUF's blocks of 256: small integers scale groups of 32 or 16, and one or two f16 scale those.

use super::{Format, Row, Scales, both, half, less_32, read, with_offsets};
use crate::cpu::quant::vector::{GROUP, Place, Simd, Vectors, all};

/// Each byte's `width` bits from bit `from` on, moved to bit `to`.
#[inline(always)]
unsafe fn bits<S: Vectors>(bytes: S::Bytes, from: usize, width: usize, to: usize) -> S::Bytes {
    // SAFETY: passed on to the caller.
    unsafe {
        let moved = match from >= to {
            true => S::shift_right(bytes, from - to),
            false => S::shift_left(bytes, to - from),
        };
        S::and(moved, all::<S>((((1 << width) - 1) << to) as u8))
    }
}

/// A scale for each group of sixteen, and no offsets.
#[inline(always)]
unsafe fn by_sixteen<S: Simd>(scales: [S::Floats; 2]) -> Scales<S> {
    // SAFETY: passed on to the caller.
    Scales { scales, offsets: unsafe { [S::zero(); 2] } }
}

/// The scales and offsets of Q4_K and Q5_K: f16, f16, and eight pairs of six bits in twelve bytes.
#[inline(always)]
unsafe fn pairs_of_six<S: Simd>(block: *const u8) -> Scales<S> {
    // SAFETY: passed on to the caller.
    unsafe {
        let [a, b, c] = read::<[u32; 3]>(block.add(4));
        let six = 0x3f3f_3f3f;
        // The last four of each: four bits here, two more above the first four.
        let scales = (c & 0x0f0f_0f0f) | ((a >> 2) & 0x3030_3030);
        let mins = ((c >> 4) & 0x0f0f_0f0f) | ((b >> 2) & 0x3030_3030);
        let join = |low: u32, high: u32| low as u64 | (high as u64) << 32;
        let scales = S::mul(half::<S>(block), S::from_u8(join(a & six, scales)));
        let mins = S::mul(half::<S>(block.add(2)), S::from_u8(join(b & six, mins)));
        with_offsets(scales, S::mul(mins, S::splat(-1.0)))
    }
}

macro_rules! k_quants {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal, halves $halves:literal, nibbles $nibbles:literal, offsets $offsets:literal,
       zero $zero:literal,
       scales |$scale_block:ident| $scales:block
       codes |$code_block:ident, $group:ident| $codes:block)*) => {$(
        $(#[$doc])*
        pub(in super::super) struct $name;

        impl Format for $name {
            const BYTES: usize = $bytes;
            const NIBBLES: bool = $nibbles;
            const HALVES: bool = $halves;
            const OFFSETS: bool = $offsets;
            const ZERO: i16 = $zero;

            #[inline(always)]
            unsafe fn scales<S: Simd>(row: &Row, block: usize, _groups: usize) -> Scales<S> {
                let $scale_block = row.codes.wrapping_add(block * $bytes);
                // SAFETY: passed on to the caller.
                unsafe { $scales }
            }

            #[inline(always)]
            unsafe fn codes<S: Vectors>(at: S::Place, block: usize, $group: usize) -> S::Bytes {
                let $code_block = at.plus(block * $bytes);
                // SAFETY: passed on to the caller.
                unsafe { $codes }
            }
        }
    )*};
}

k_quants! {
    /// Two bits; four-bit scales and offsets of sixteen.
    Q2K: 84, halves true, nibbles true, offsets true, zero 0,
    scales |block| {
        let [a, b] = read::<[u64; 2]>(block);
        let nibbles = 0x0f0f_0f0f_0f0f_0f0f;
        let (d, min) = (half::<S>(block.add(80)), S::mul(half::<S>(block.add(82)), S::splat(-1.0)));
        Scales {
            scales: both([a, b], |x| S::mul(d, S::from_u8(x & nibbles))),
            offsets: both([a, b], |x| S::mul(min, S::from_u8((x >> 4) & nibbles))),
        }
    }
    codes |block, group| {
        bits::<S>(S::load(block.plus(16 + GROUP * (group / 4))), 2 * (group % 4), 2, 0)
    }

    /// Three bits, counted from 4, the highest apart; six-bit scales of sixteen, counted from 32.
    Q3K: 110, halves true, nibbles true, offsets false, zero 4,
    scales |block| {
        let (low, high) = (read::<u64>(block.add(96)), read::<u32>(block.add(104)));
        let nibbles = 0x0f0f_0f0f_0f0f_0f0f;
        let two = |by: u32| ((high >> by) & 0x0303_0303) as u64;
        let first = (low & nibbles) | (two(0) | two(2) << 32) << 4;
        let last = ((low >> 4) & nibbles) | (two(4) | two(6) << 32) << 4;
        let d = half::<S>(block.add(108));
        by_sixteen(both([first, last], |x| S::mul(d, S::from_i8(less_32(x)))))
    }
    codes |block, group| {
        let low = bits::<S>(S::load(block.plus(32 + GROUP * (group / 4))), 2 * (group % 4), 2, 0);
        S::or(low, bits::<S>(S::load(block), group, 1, 2))
    }

    /// Four bits; six-bit scales and offsets.
    Q4K: 144, halves false, nibbles true, offsets true, zero 0,
    scales |block| { pairs_of_six(block) }
    codes |block, group| {
        bits::<S>(S::load(block.plus(16 + GROUP * (group / 2))), 4 * (group % 2), 4, 0)
    }

    /// Five bits, the highest apart; six-bit scales and offsets.
    Q5K: 176, halves false, nibbles false, offsets true, zero 0,
    scales |block| { pairs_of_six(block) }
    codes |block, group| {
        let low = bits::<S>(S::load(block.plus(48 + GROUP * (group / 2))), 4 * (group % 2), 4, 0);
        S::or(low, bits::<S>(S::load(block.plus(16)), group, 1, 4))
    }

    /// Six bits, counted from 32, the highest two apart; signed bytes scale groups of sixteen.
    Q6K: 210, halves true, nibbles false, offsets false, zero 32,
    scales |block| {
        let d = half::<S>(block.add(208));
        let scales = read::<[u64; 2]>(block.add(192));
        by_sixteen(both(scales, |x| S::mul(d, S::from_i8(x))))
    }
    codes |block, group| {
        let (part, quarter) = (group / 4, group % 4);
        let low = S::load(block.plus(64 * part + GROUP * (quarter % 2)));
        let high = S::load(block.plus(128 + GROUP * part));
        S::or(bits::<S>(low, 4 * (quarter / 2), 4, 0), bits::<S>(high, 2 * quarter, 2, 4))
    }
}
