//! Formats whose four-bit codes stand for entries of a table.

use super::blocks::{at, each_f16};
use super::{AT_ONCE, Format, Row, Scales, both, half, less_32, plain, read};
use crate::cpu::quant::vector::{GROUP, Place, Simd, Vectors};

/// What IQ4_NL's and IQ4_XS's codes mean.
const UNEVEN: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// What codes of floats of four bits (e2m1) mean, doubled.
const FLOATS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

#[inline(always)]
unsafe fn look_up<S: Vectors>(codes: S::Bytes, table: &[i8; 16]) -> S::Bytes {
    // SAFETY: passed on to the caller.
    unsafe { S::shuffle(S::bytes(&std::array::from_fn(|i| table[i % 16] as u8)), codes) }
}

/// A byte for each of the groups, each `stride` from the one before.
#[inline(always)]
unsafe fn bytes(first: *const u8, stride: usize, groups: usize) -> u64 {
    // SAFETY: passed on to the caller.
    unsafe {
        match (stride, groups) {
            (1, AT_ONCE) => read(first),
            _ => (0..groups).fold(0, |all, i| all | (*first.add(i * stride) as u64) << (8 * i)),
        }
    }
}

/// Half of the powers of two that GGUF's bytes stand for: 255 is a power as well. Each is made of two factors,
/// because a float has no power of two above 127.
#[inline(always)]
unsafe fn half_powers<S: Simd>(bytes: u64) -> S::Floats {
    let low = (bytes >> 1) & 0x7f7f_7f7f_7f7f_7f7f;
    let high = bytes - low + 0x7e7e_7e7e_7e7e_7e7e;
    // SAFETY: passed on to the caller.
    unsafe { S::mul(S::powers(low), S::powers(high)) }
}

/// A float of eight bits, with four for the exponent (e4m3).
#[inline(always)]
fn from_e4m3(byte: u8) -> f32 {
    let magnitude = match byte & 127 {
        127 => f32::NAN,
        bits => f32::from_bits((bits as u32) << 20) * f32::from_bits(247 << 23),
    };
    if byte > 127 { -magnitude } else { magnitude }
}

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal, halves $halves:literal,
       scales |$scale_row:ident, $scale_block:ident, $groups:ident| $scales:block
       codes |$first:ident, $code_block:ident, $group:ident| $codes:block in $table:ident)*) => {$(
        $(#[$doc])*
        pub(in super::super) struct $name;

        impl Format for $name {
            const BYTES: usize = $bytes;
            const SIGNED: bool = true;
            const HALVES: bool = $halves;
            const OFFSETS: bool = false;

            #[inline(always)]
            unsafe fn scales<S: Simd>(
                $scale_row: &Row,
                $scale_block: usize,
                $groups: usize,
            ) -> Scales<S> {
                // SAFETY: passed on to the caller.
                unsafe { $scales }
            }

            #[inline(always)]
            unsafe fn codes<S: Vectors>(
                $first: S::Place,
                $code_block: usize,
                $group: usize,
            ) -> S::Bytes {
                // SAFETY: passed on to the caller.
                unsafe { look_up::<S>($codes, &$table) }
            }
        }
    )*};
}

tables! {
    /// GGUF's blocks of thirty-two with an f16 scale.
    Iq4Nl: 144, halves false,
    scales |row, block, groups| { plain(each_f16::<S, 18>(at::<_, 18>(row.codes, block, 0), groups)) }
    codes |first, block, group| { S::nibbles(at::<_, 18>(first, block, group).plus(2)) } in UNEVEN

    /// GGUF's blocks of 256: one f16, and a six-bit scale, counted from 32, of thirty-two.
    Iq4Xs: 136, halves false,
    scales |row, block, _groups| {
        let block = row.codes.wrapping_add(block * 136);
        let (high, low) = (read::<u16>(block.add(2)), read::<[u8; 4]>(block.add(4)));
        let six: [u8; 8] = std::array::from_fn(|i| {
            (low[i / 2] >> (4 * (i % 2)) & 15) | ((high >> (2 * i) & 3) as u8) << 4
        });
        plain(S::mul(half::<S>(block), S::from_i8(less_32(u64::from_le_bytes(six)))))
    }
    codes |first, block, group| {
        S::nibbles(first.plus(block * 136 + 8 + GROUP / 2 * group))
    } in UNEVEN

    /// GGUF's blocks of thirty-two with a power of two as scale.
    Mxfp4Blocks: 136, halves false,
    scales |row, block, groups| {
        plain(half_powers::<S>(bytes(at::<_, 17>(row.codes, block, 0), 17, groups)))
    }
    codes |first, block, group| { S::nibbles(at::<_, 17>(first, block, group).plus(1)) } in FLOATS

    /// MLX's groups of thirty-two with a power of two as scale.
    Mxfp4: 128, halves false,
    scales |row, block, groups| {
        let bytes = bytes(row.scales.wrapping_add(AT_ONCE * block), 1, groups);
        plain(S::mul(S::powers(bytes), S::splat(0.5)))
    }
    codes |first, block, group| { S::nibble_pairs(at::<_, 16>(first, block, group)) } in FLOATS

    /// MLX's groups of sixteen with a float of eight bits as scale.
    Nvfp4: 128, halves true,
    scales |row, block, groups| {
        let first = row.scales.wrapping_add(2 * AT_ONCE * block);
        let scales: [f32; 2 * AT_ONCE] = std::array::from_fn(|i| match i < 2 * groups {
            true => 0.5 * from_e4m3(*first.add(i)),
            false => 0.0,
        });
        let scales = both([0, AT_ONCE], |at| S::load_floats(scales.as_ptr().wrapping_add(at)));
        Scales { scales, offsets: [S::zero(); 2] }
    }
    codes |first, block, group| { S::nibble_pairs(at::<_, 16>(first, block, group)) } in FLOATS
}
