//! MLX's affine formats: a stream of codes of any width, with scales and biases elsewhere.

use half::{bf16, f16};

use super::{AT_ONCE, Format, Numbers, Order, Row, Scales, both, read, with_offsets};
use crate::cpu::quant::vector::{GROUP, Place, Simd, Vectors, all};

/// Codes of `BITS` bits, element `i` of a row at bit `i · BITS`.
pub(in super::super) struct Affine<const BITS: usize>;

impl<const BITS: usize> Format for Affine<BITS> {
    const BYTES: usize = AT_ONCE * GROUP * BITS / 8;
    // Bytes are moved down by 128, because products of larger ones do not fit.
    const SIGNED: bool = BITS == 8;
    const NIBBLES: bool = BITS <= 4;
    const APART: bool = true;
    const ORDERS: [Order; 2] = match BITS {
        4 => [Order::EvenFirst, Order::EvenFirst],
        _ => [Order::Plain, Order::EvenFirst],
    };
    const ZERO: i16 = if BITS == 8 { -128 } else { 0 };

    #[inline(always)]
    unsafe fn scales<S: Simd>(row: &Row, block: usize, groups: usize) -> Scales<S> {
        // SAFETY: passed on to the caller.
        unsafe {
            let [scales, biases] = numbers::<S>(row, block, groups);
            with_offsets(scales, biases)
        }
    }

    #[inline(always)]
    unsafe fn wide_codes<S: Vectors>(at: S::Place, block: usize, group: usize) -> S::Wide {
        // SAFETY: passed on to the caller.
        unsafe {
            match BITS {
                4 => S::wide_nibbles(Self::group(at, block, group)),
                _ => S::widen(Self::SIGNED, Self::codes::<S>(at, block, group)),
            }
        }
    }

    #[inline(always)]
    unsafe fn dot_codes<S: Vectors>(at: S::Place, block: usize, group: usize) -> S::Bytes {
        // SAFETY: passed on to the caller.
        unsafe {
            match BITS {
                4 => S::nibbles(Self::group(at, block, group)),
                _ => Self::codes::<S>(at, block, group),
            }
        }
    }

    #[inline(always)]
    unsafe fn codes<S: Vectors>(at: S::Place, block: usize, group: usize) -> S::Bytes {
        let from = Self::group(at, block, group);
        // SAFETY: passed on to the caller.
        unsafe {
            match BITS {
                8 => S::xor(S::load(from), all::<S>(128)),
                4 => S::nibble_pairs(from),
                _ => Self::any_width::<S>(from),
            }
        }
    }
}

impl<const BITS: usize> Affine<BITS> {
    /// Bytes of a group.
    const GROUP_BYTES: usize = GROUP * BITS / 8;

    #[inline(always)]
    fn group<P: Place>(at: P, block: usize, group: usize) -> P {
        at.plus((AT_ONCE * block + group) * Self::GROUP_BYTES)
    }

    /// Each word of 16 bits gets the two bytes that a pair of codes lies in.
    const PLACES: [u8; GROUP] = {
        let mut places = [0; GROUP];
        let mut pair = 0;
        while pair < GROUP / 2 {
            // The high half holds the last sixteen bytes, or all where there are no more.
            let lost = if pair >= 8 && Self::GROUP_BYTES > 16 { Self::GROUP_BYTES - 16 } else { 0 };
            let byte = pair * 2 * BITS / 8 - lost;
            places[2 * pair] = byte as u8;
            // A pair that ends in its first byte does not need the second, which may not be there.
            places[2 * pair + 1] = if byte < 15 { byte + 1 } else { byte } as u8;
            pair += 1;
        }
        places
    };

    /// What moves a pair to the top of its word.
    const MOVES: [u8; GROUP] = {
        let mut moves = [0; GROUP];
        let mut pair = 0;
        while pair < GROUP / 2 {
            let below = pair * 2 * BITS % 8;
            let factor = (1u16 << (16 - 2 * BITS - below)).to_le_bytes();
            moves[2 * pair] = factor[0];
            moves[2 * pair + 1] = factor[1];
            pair += 1;
        }
        moves
    };

    #[inline(always)]
    unsafe fn any_width<S: Vectors>(from: S::Place) -> S::Bytes {
        // SAFETY: passed on to the caller. Nothing past the group is read.
        unsafe {
            let bytes = match Self::GROUP_BYTES {
                bytes @ ..16 => S::few(from, bytes),
                bytes => S::halves(from, from.plus(bytes - 16)),
            };
            let pairs = S::shuffle(bytes, S::bytes(&Self::PLACES));
            let pairs = S::multiply(pairs, S::bytes(&Self::MOVES));
            let mask = (1u16 << BITS) - 1;
            let even = words::<S>(mask);
            let odd = words::<S>(mask << 8);
            S::or(
                S::and(S::shift_right(pairs, 16 - 2 * BITS), even),
                S::and(S::shift_right(pairs, 8 - BITS), odd),
            )
        }
    }
}

/// The same word sixteen times.
#[inline(always)]
unsafe fn words<S: Vectors>(word: u16) -> S::Bytes {
    let [low, high] = word.to_le_bytes();
    // SAFETY: passed on to the caller.
    unsafe { S::bytes(&std::array::from_fn(|i| if i % 2 == 0 { low } else { high })) }
}

/// The scales and the biases of eight groups, repeated where groups share one.
#[inline(always)]
unsafe fn numbers<S: Simd>(row: &Row, block: usize, groups: usize) -> [S::Floats; 2] {
    let first = ((AT_ONCE * block) >> row.shared) * row.numbers.bytes();
    let from = both([row.scales, row.biases], |from| from.wrapping_add(first));
    // SAFETY: passed on to the caller; no number past the groups is read.
    unsafe {
        if groups < AT_ONCE {
            return both(from, |from| S::load_floats(fewer(row, from, groups).as_ptr()));
        }
        match row.numbers {
            Numbers::F16 => repeated::<S, u16>(from, row.shared, |x| S::from_f16(&x)),
            Numbers::F32 => repeated::<S, f32>(from, row.shared, |x| S::load_floats(x.as_ptr())),
            _ => repeated::<S, u16>(from, row.shared, |x| S::from_bf16(&x)),
        }
    }
}

/// Twice eight floats, made of no more numbers than groups have. Every way ends in registers of its
/// own: through memory, the next reader would wait.
#[inline(always)]
unsafe fn repeated<S: Simd, T: Copy + Default>(
    from: [*const u8; 2],
    shared: usize,
    widen: impl Fn([T; AT_ONCE]) -> S::Floats,
) -> [S::Floats; 2] {
    let zero = T::default();
    // SAFETY: passed on to the caller.
    unsafe {
        match shared {
            0 => both(from, |from| widen(read(from))),
            1 => both(from, |from| {
                let [a, b, c, d] = read::<[T; 4]>(from);
                S::repeat(widen([a, b, c, d, zero, zero, zero, zero]), 1)
            }),
            _ => both(from, |from| {
                let [a, b] = read::<[T; 2]>(from);
                S::repeat(widen([a, b, zero, zero, zero, zero, zero, zero]), 2)
            }),
        }
    }
}

/// The end of a row that is not a whole number of times eight groups.
#[cold]
#[inline(never)]
unsafe fn fewer(row: &Row, from: *const u8, groups: usize) -> [f32; AT_ONCE] {
    std::array::from_fn(|group| {
        if group >= groups {
            return 0.0;
        }
        let at = from.wrapping_add((group >> row.shared) * row.numbers.bytes());
        // SAFETY: passed on to the caller.
        unsafe {
            match row.numbers {
                Numbers::F16 => f16::from_bits(read(at)).to_f32(),
                Numbers::F32 => read(at),
                _ => bf16::from_bits(read(at)).to_f32(),
            }
        }
    })
}
