//! GGUF's blocks of thirty-two: one f16 scale each, and maybe an offset.

use super::{AT_ONCE, Format, Order, Row, Scales, plain, read, with_offsets};
use crate::cpu::quant::vector::{GROUP, Place, Simd, Vectors};

/// The f16 at the same place in every block.
#[inline(always)]
pub(super) unsafe fn each_f16<S: Simd, const BYTES: usize>(
    first: *const u8,
    groups: usize,
) -> S::Floats {
    if groups == AT_ONCE {
        // SAFETY: passed on to the caller.
        return unsafe { S::each_f16(first, BYTES) };
    }
    let mut bits = [0u16; AT_ONCE];
    for (group, bits) in bits.iter_mut().enumerate() {
        if group < groups {
            // SAFETY: the row has the groups.
            *bits = unsafe { read(first.add(group * BYTES)) };
        }
    }
    // SAFETY: passed on to the caller.
    unsafe { S::from_f16(&bits) }
}

/// Where a block begins.
#[inline(always)]
pub(super) fn at<P: Place, const BYTES: usize>(first: P, block: usize, group: usize) -> P {
    first.plus((AT_ONCE * block + group) * BYTES)
}

/// Where something lies that blocks do not have.
const NONE: Option<usize> = None;

/// The formats whose blocks are: scale, offset (or none, and then codes count from `$zero`), fifth
/// bits (or none), nibbles.
macro_rules! nibble_blocks {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal, offset $offset:expr, fifth $fifth:expr, zero $zero:literal;)*) => {$(
        $(#[$doc])*
        pub(in super::super) struct $name;

        impl Format for $name {
            const BYTES: usize = AT_ONCE * $bytes;
            const NIBBLES: bool = $fifth.is_none();
            const OFFSETS: bool = $offset.is_some();
            const ORDERS: [Order; 2] = match Self::NIBBLES {
                true => [Order::Plain, Order::Plain],
                false => [Order::Plain, Order::EvenFirst],
            };
            const ZERO: i16 = $zero;

            #[inline(always)]
            unsafe fn scales<S: Simd>(row: &Row, block: usize, groups: usize) -> Scales<S> {
                let first = at::<_, $bytes>(row.codes, block, 0);
                let offset: Option<usize> = $offset;
                // SAFETY: passed on to the caller.
                unsafe {
                    let scales = each_f16::<S, $bytes>(first, groups);
                    match offset {
                        Some(by) => {
                            with_offsets(scales, each_f16::<S, $bytes>(first.add(by), groups))
                        }
                        None => plain(scales),
                    }
                }
            }

            #[inline(always)]
            unsafe fn codes<S: Vectors>(first: S::Place, block: usize, group: usize) -> S::Bytes {
                let block = at::<_, $bytes>(first, block, group);
                let fifth: Option<usize> = $fifth;
                // SAFETY: passed on to the caller.
                unsafe {
                    let nibbles = S::nibbles(block.plus($bytes - GROUP / 2));
                    match fifth {
                        Some(by) => S::or(nibbles, S::where_set(block.plus(by), 16)),
                        None => nibbles,
                    }
                }
            }

            #[inline(always)]
            unsafe fn wide_codes<S: Vectors>(first: S::Place, block: usize, group: usize) -> S::Wide {
                // SAFETY: passed on to the caller.
                unsafe {
                    match Self::NIBBLES {
                        true => {
                            let block = at::<_, $bytes>(first, block, group);
                            S::wide_nibbles(block.plus($bytes - GROUP / 2))
                        }
                        false => S::widen(false, Self::codes::<S>(first, block, group)),
                    }
                }
            }
        }
    )*};
}

nibble_blocks! {
    /// Four bits, counted from 8.
    Q4_0: 18, offset NONE, fifth NONE, zero 8;
    /// Four bits and an offset.
    Q4_1: 20, offset Some(2usize), fifth NONE, zero 0;
    /// Five bits, counted from 16.
    Q5_0: 22, offset NONE, fifth Some(2usize), zero 16;
    /// Five bits and an offset.
    Q5_1: 24, offset Some(2usize), fifth Some(4usize), zero 0;
}

/// Signed bytes.
pub(in super::super) struct Q8_0;

impl Format for Q8_0 {
    const BYTES: usize = AT_ONCE * 34;
    const SIGNED: bool = true;
    const OFFSETS: bool = false;
    const ORDERS: [Order; 2] = [Order::Plain, Order::Plain];

    #[inline(always)]
    unsafe fn scales<S: Simd>(row: &Row, block: usize, groups: usize) -> Scales<S> {
        // SAFETY: passed on to the caller.
        unsafe { plain(each_f16::<S, 34>(at::<_, 34>(row.codes, block, 0), groups)) }
    }

    #[inline(always)]
    unsafe fn codes<S: Vectors>(first: S::Place, block: usize, group: usize) -> S::Bytes {
        // SAFETY: passed on to the caller.
        unsafe { S::load(at::<_, 34>(first, block, group).plus(2)) }
    }

    #[inline(always)]
    unsafe fn wide_codes<S: Vectors>(first: S::Place, block: usize, group: usize) -> S::Wide {
        // SAFETY: passed on to the caller.
        unsafe { S::wide_bytes(at::<_, 34>(first, block, group).plus(2)) }
    }
}
