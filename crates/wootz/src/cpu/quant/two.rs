//! Vectors of 512 bits that hold two rows of weights, one in each half: half as many instructions for products with one
//! row of activations, and the same bits as rows one by one.

use std::arch::x86_64::*;

use super::formats::Row;
use super::vector::{GROUP, Place, Rows, Vectors, first_bytes};
use super::vnni::{Vnni, dot_words};

/// Two rows of [`Vnni`].
#[derive(Clone, Copy)]
pub(super) struct Two;

/// Which numbers of 32 bits are of the second row.
const SECOND: __mmask16 = 0xff00;

impl Place for [*const u8; 2] {
    #[inline(always)]
    fn plus(self, bytes: usize) -> Self {
        let [first, second] = self;
        [first.wrapping_add(bytes), second.wrapping_add(bytes)]
    }
}

/// The places of floats that [`Rows::spread`] takes: one of each row eight times.
const fn places(low: usize, high: usize) -> [i32; 16] {
    let mut places = [0; 16];
    let mut i = 0;
    while i < 16 {
        let number = if i % 8 < 4 { low } else { high };
        places[i] = (i / 8 * 8 + number) as i32;
        i += 1;
    }
    places
}

const SINGLE: [[i32; 16]; 8] = [
    places(0, 0),
    places(1, 1),
    places(2, 2),
    places(3, 3),
    places(4, 4),
    places(5, 5),
    places(6, 6),
    places(7, 7),
];
const PAIRS: [[i32; 16]; 4] = [places(0, 1), places(2, 3), places(4, 5), places(6, 7)];

/// Thirty-two bytes, or what has as many, of each row.
#[inline(always)]
unsafe fn joined(first: __m256i, second: __m256i) -> __m512i {
    // SAFETY: see below.
    unsafe { _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second) }
}

/// Sixteen bytes of each row, twice.
#[inline(always)]
unsafe fn twice(first: __m128i, second: __m128i) -> __m512i {
    // SAFETY: see below.
    unsafe { _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(first), SECOND, second) }
}

/// Thirty-two bytes for both rows.
#[inline(always)]
unsafe fn same(from: *const u8) -> __m512i {
    // SAFETY: see below.
    unsafe { _mm512_broadcast_i64x4(_mm256_loadu_si256(from.cast())) }
}

// SAFETY (of all blocks above and below): the caller has the instruction set and gives readable or writable
// memory of the vectors' sizes; no instruction here needs alignment.
impl Vectors for Two {
    type Place = [*const u8; 2];
    type Bytes = __m512i;
    type Wide = [__m512i; 2];
    type Sums = __m512i;
    type Floats = __m512;

    #[inline(always)]
    unsafe fn bytes(from: &[u8; GROUP]) -> __m512i {
        // SAFETY: see above.
        unsafe { same(from.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn load([first, second]: [*const u8; 2]) -> __m512i {
        // SAFETY: see above.
        unsafe { joined(Vnni::load(first), Vnni::load(second)) }
    }
    #[inline(always)]
    unsafe fn halves(low: [*const u8; 2], high: [*const u8; 2]) -> __m512i {
        // SAFETY: see above.
        unsafe { joined(Vnni::halves(low[0], high[0]), Vnni::halves(low[1], high[1])) }
    }
    #[inline(always)]
    unsafe fn few([first, second]: [*const u8; 2], count: usize) -> __m512i {
        // SAFETY: see above.
        unsafe {
            let sixteen = |from| {
                let bytes = first_bytes(from, count);
                _mm_set_epi64x((bytes >> 64) as i64, bytes as i64)
            };
            twice(sixteen(first), sixteen(second))
        }
    }
    #[inline(always)]
    unsafe fn nibbles([first, second]: [*const u8; 2]) -> __m512i {
        // SAFETY: see above.
        unsafe {
            let bytes = twice(_mm_loadu_si128(first.cast()), _mm_loadu_si128(second.cast()));
            let shifted = _mm512_srlv_epi64(bytes, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
            _mm512_and_si512(shifted, _mm512_set1_epi8(15))
        }
    }
    #[inline(always)]
    unsafe fn nibble_pairs(from: [*const u8; 2]) -> __m512i {
        // SAFETY: see above.
        unsafe {
            let words = widened(from);
            let both = _mm512_or_si512(words, _mm512_slli_epi16::<4>(words));
            _mm512_and_si512(both, _mm512_set1_epi8(15))
        }
    }
    #[inline(always)]
    unsafe fn where_set([first, second]: [*const u8; 2], value: u8) -> __m512i {
        // SAFETY: see above.
        unsafe {
            let bits = |from: *const u8| u64::from(from.cast::<u32>().read_unaligned());
            _mm512_maskz_set1_epi8(bits(first) | bits(second) << GROUP, value as i8)
        }
    }
    #[inline(always)]
    unsafe fn and(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_and_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn xor(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_xor_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn shift_left(a: __m512i, by: usize) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_sll_epi16(a, _mm_cvtsi64_si128(by as i64)) }
    }
    #[inline(always)]
    unsafe fn shift_right(a: __m512i, by: usize) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_srl_epi16(a, _mm_cvtsi64_si128(by as i64)) }
    }
    #[inline(always)]
    unsafe fn multiply(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_mullo_epi16(a, b) }
    }
    #[inline(always)]
    unsafe fn shuffle(a: __m512i, places: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_shuffle_epi8(a, places) }
    }

    #[inline(always)]
    unsafe fn widen(signed: bool, codes: __m512i) -> [__m512i; 2] {
        // SAFETY: see above.
        unsafe {
            if signed {
                let even = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(codes));
                [even, _mm512_srai_epi16::<8>(codes)]
            } else {
                let even = _mm512_and_si512(codes, _mm512_set1_epi16(255));
                [even, _mm512_srli_epi16::<8>(codes)]
            }
        }
    }
    #[inline(always)]
    unsafe fn wide_nibbles(from: [*const u8; 2]) -> [__m512i; 2] {
        // SAFETY: see above.
        unsafe {
            let words = widened(from);
            let even = _mm512_and_si512(words, _mm512_set1_epi16(15));
            [even, _mm512_srli_epi16::<4>(words)]
        }
    }
    #[inline(always)]
    unsafe fn wide_bytes([first, second]: [*const u8; 2]) -> [__m512i; 2] {
        // SAFETY: see above.
        unsafe {
            let part = |by| _mm512_cvtepi8_epi16(Vnni::halves(first.add(by), second.add(by)));
            [part(0), part(GROUP / 2)]
        }
    }
    #[inline(always)]
    unsafe fn dot_wide([even, odd]: [__m512i; 2], activations: *const u8) -> __m512i {
        // SAFETY: see above.
        unsafe {
            let sums = _mm512_madd_epi16(even, same(activations));
            dot_words(sums, odd, same(activations.add(GROUP)))
        }
    }
    #[inline(always)]
    unsafe fn dot(signed: bool, codes: __m512i, activations: *const u8) -> __m512i {
        // SAFETY: see above.
        unsafe {
            let (x, none) = (same(activations), _mm512_setzero_si512());
            match signed {
                true => {
                    let negative = _mm512_movepi8_mask(codes);
                    let x = _mm512_mask_sub_epi8(x, negative, none, x);
                    _mm512_dpbusd_epi32(none, _mm512_abs_epi8(codes), x)
                }
                false => _mm512_dpbusd_epi32(none, codes, x),
            }
        }
    }

    #[inline(always)]
    unsafe fn floats(sums: __m512i) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvtepi32_ps(sums) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
}

/// Sixteen bytes of each row as words.
#[inline(always)]
unsafe fn widened([first, second]: [*const u8; 2]) -> __m512i {
    // SAFETY: see above.
    unsafe { _mm512_cvtepu8_epi16(Vnni::halves(first, second)) }
}

impl Rows for Two {
    type One = Vnni;
    const ROWS: usize = 2;

    #[inline(always)]
    fn place(rows: &[Row]) -> [*const u8; 2] {
        [rows[0].codes, rows[1].codes]
    }
    #[inline(always)]
    unsafe fn join([first, second]: [__m256; 2]) -> __m512 {
        // SAFETY: see above.
        unsafe {
            _mm512_castsi512_ps(joined(_mm256_castps_si256(first), _mm256_castps_si256(second)))
        }
    }
    #[inline(always)]
    unsafe fn load_same(from: *const f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_castsi512_ps(same(from.cast())) }
    }
    #[inline(always)]
    unsafe fn spread(from: &__m512, number: usize) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_permutexvar_ps(_mm512_loadu_si512(SINGLE[number].as_ptr().cast()), *from) }
    }
    #[inline(always)]
    unsafe fn spread_halves(from: &__m512, pair: usize) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_permutexvar_ps(_mm512_loadu_si512(PAIRS[pair].as_ptr().cast()), *from) }
    }
    #[inline(always)]
    unsafe fn row(x: __m512, row: usize) -> __m256 {
        // SAFETY: see above.
        unsafe {
            match row {
                0 => _mm512_castps512_ps256(x),
                _ => _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(x))),
            }
        }
    }
}
