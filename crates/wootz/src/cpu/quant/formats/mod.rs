//! How codes and scales lie in memory, format by format. A format says how to unpack a group of
//! thirty-two codes, what they count from, and which scale and offset belong to them.

mod affine;
mod blocks;
mod k_quants;
mod nonlinear;

pub(super) use affine::Affine;
pub(super) use blocks::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
pub(super) use k_quants::{Q2K, Q3K, Q4K, Q5K, Q6K};
pub(super) use nonlinear::{Iq4Nl, Iq4Xs, Mxfp4, Mxfp4Blocks, Nvfp4};

use super::activations::Order;
use super::vector::{Simd, Vectors};

/// Groups whose scales are read at once. In K-quants they are one block.
pub(super) const AT_ONCE: usize = 8;

/// One row of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// Blocks, or codes whose scales lie elsewhere.
    pub(super) codes: *const u8,
    pub(super) scales: *const u8,
    pub(super) biases: *const u8,
    /// The type of scales and biases that lie elsewhere.
    pub(super) numbers: Numbers,
    /// Groups that share a scale, as a power of two.
    pub(super) shared: usize,
}

/// The type of scales and biases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Numbers {
    F32,
    F16,
    Bf16,
    /// Powers of two, or floats of eight bits: the format says which.
    Byte,
}

impl Numbers {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Numbers::F32 => 4,
            Numbers::F16 | Numbers::Bf16 => 2,
            Numbers::Byte => 1,
        }
    }
}

/// What belongs to the codes of eight groups. The first vectors are for the groups; where a group has
/// a scale for each half, there are sixteen numbers.
#[derive(Clone, Copy)]
pub(super) struct Scales<S: Vectors> {
    pub(super) scales: [S::Floats; 2],
    pub(super) offsets: [S::Floats; 2],
}

/// # Safety
/// Methods may run only on a processor that has the instruction set; the row has the groups that are
/// asked for.
pub(super) trait Format {
    /// Bytes from eight groups to the next eight.
    const BYTES: usize;
    /// Whether codes are signed. Others are below 128.
    const SIGNED: bool = false;
    /// Whether codes are below 16.
    const NIBBLES: bool = false;
    /// Whether the halves of a group have scales of their own.
    const HALVES: bool = false;
    /// Whether there are offsets.
    const OFFSETS: bool = true;
    /// Whether scales and biases lie elsewhere.
    const APART: bool = false;
    /// How [`Format::dot_codes`] and [`Format::wide_codes`] lie in a group, and so must activations.
    const ORDERS: [Order; 2] = [Order::Plain, Order::EvenFirst];
    /// What codes count from: a weight is `scale · (code - ZERO) + offset`.
    const ZERO: i16 = 0;

    /// The scales of the `groups` (at most eight) groups from `8 · block` on; others are of no interest.
    unsafe fn scales<S: Simd>(row: &Row, block: usize, groups: usize) -> Scales<S>;

    /// The codes of group `8 · block + group` of rows whose codes begin `at` some place.
    unsafe fn codes<S: Vectors>(at: S::Place, block: usize, group: usize) -> S::Bytes;

    /// The same in the order that is shortest to unpack, for products: activations are laid out alike.
    #[inline(always)]
    unsafe fn dot_codes<S: Vectors>(at: S::Place, block: usize, group: usize) -> S::Bytes {
        // SAFETY: passed on to the caller.
        unsafe { Self::codes::<S>(at, block, group) }
    }

    /// The same as words, for formats that have a shorter way to them.
    #[inline(always)]
    unsafe fn wide_codes<S: Vectors>(at: S::Place, block: usize, group: usize) -> S::Wide {
        // SAFETY: passed on to the caller.
        unsafe { S::widen(Self::SIGNED, Self::codes::<S>(at, block, group)) }
    }
}

/// The same with two things. (The library's `map` is not always inlined, and then vectors go through
/// memory.)
#[inline(always)]
fn both<T, R>([a, b]: [T; 2], f: impl Fn(T) -> R) -> [R; 2] {
    [f(a), f(b)]
}

/// Numbers at any address.
#[inline(always)]
unsafe fn read<T: Copy>(from: *const u8) -> T {
    // SAFETY: the caller gives the bytes, and `T` is a number or an array of numbers.
    unsafe { from.cast::<T>().read_unaligned() }
}

/// One f16.
#[inline(always)]
unsafe fn half<S: Simd>(from: *const u8) -> S::Floats {
    // SAFETY: passed on to the caller.
    unsafe { S::from_f16(&[read::<u16>(from); 8]) }
}

/// Eight numbers below 64, each less 32, as signed bytes: what is subtracted before it is scaled leaves infinite scales
/// what they are.
#[inline(always)]
fn less_32(six: u64) -> u64 {
    const TOPS: u64 = 0x8080_8080_8080_8080;
    ((six | TOPS) - 0x2020_2020_2020_2020) ^ TOPS
}

/// Scales without offsets, one a group.
#[inline(always)]
unsafe fn plain<S: Simd>(scales: S::Floats) -> Scales<S> {
    // SAFETY: passed on to the caller.
    unsafe { with_offsets(scales, S::zero()) }
}

/// One scale and one offset a group.
#[inline(always)]
unsafe fn with_offsets<S: Simd>(scales: S::Floats, offsets: S::Floats) -> Scales<S> {
    // SAFETY: passed on to the caller.
    let zero = unsafe { S::zero() };
    Scales { scales: [scales, zero], offsets: [offsets, zero] }
}
