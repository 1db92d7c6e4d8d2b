//! Vectors of 256 bits: x86-64 with AVX2, FMA and F16C.

use std::arch::asm;
use std::arch::x86_64::*;

use super::tiles::{Lanes, Products};
use super::vector::{GROUP, Simd, Vectors, first_bytes};

#[derive(Clone, Copy)]
pub(super) struct Avx2;

/// Whether this processor has what [`Avx2`] needs.
pub(super) fn detected() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

/// Bit `i % 8` in byte `i`.
const BITS: [u8; GROUP] = {
    let mut bits = [0; GROUP];
    let mut i = 0;
    while i < GROUP {
        bits[i] = 1 << (i % 8);
        i += 1;
    }
    bits
};

/// The byte of 32 bits in which bit `i` lies.
const BYTE_OF_BIT: [u8; GROUP] = {
    let mut places = [0; GROUP];
    let mut i = 0;
    while i < GROUP {
        places[i] = (i / 8) as u8;
        i += 1;
    }
    places
};

/// Sixteen bytes as words. As intrinsics, the compiler would take the bytes apart first, and then widen
/// each part.
macro_rules! widened {
    ($name:ident, $instruction:literal) => {
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn $name(from: *const u8) -> __m256i {
            let words;
            // SAFETY: the caller has AVX2 and gives sixteen bytes, which are read and no more.
            unsafe {
                asm!(
                    concat!($instruction, " {words}, [{from}]"),
                    words = out(ymm_reg) words,
                    from = in(reg) from,
                    options(pure, readonly, nostack, preserves_flags)
                );
            }
            words
        }
    };
}

widened!(widened, "vpmovzxbw");
widened!(widened_signed, "vpmovsxbw");

// SAFETY (of all blocks below): the caller has the instruction set and gives readable or writable
// memory of the vectors' sizes; no instruction here needs alignment.
impl Vectors for Avx2 {
    type Place = *const u8;
    type Bytes = __m256i;
    type Wide = [__m256i; 2];
    type Sums = __m256i;
    type Floats = __m256;

    #[inline(always)]
    unsafe fn bytes(from: &[u8; GROUP]) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn halves(low: *const u8, high: *const u8) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_loadu2_m128i(high.cast(), low.cast()) }
    }
    #[inline(always)]
    unsafe fn few(from: *const u8, count: usize) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let bytes = first_bytes(from, count);
            let (low, high) = (bytes as u64, (bytes >> 64) as u64);
            _mm256_broadcastsi128_si256(_mm_set_epi64x(high as i64, low as i64))
        }
    }
    #[inline(always)]
    unsafe fn nibbles(from: *const u8) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(from.cast()));
            let shifted = _mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4));
            _mm256_and_si256(shifted, _mm256_set1_epi8(15))
        }
    }
    #[inline(always)]
    unsafe fn nibble_pairs(from: *const u8) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let words = widened(from);
            let both = _mm256_or_si256(words, _mm256_slli_epi16::<4>(words));
            _mm256_and_si256(both, _mm256_set1_epi8(15))
        }
    }
    #[inline(always)]
    unsafe fn where_set(bits: *const u8, value: u8) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let single = Self::bytes(&BITS);
            let all = _mm256_set1_epi32(bits.cast::<i32>().read_unaligned());
            let spread = _mm256_shuffle_epi8(all, Self::bytes(&BYTE_OF_BIT));
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, single), single);
            _mm256_and_si256(set, _mm256_set1_epi8(value as i8))
        }
    }
    #[inline(always)]
    unsafe fn and(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_and_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn xor(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_xor_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn shift_left(a: __m256i, by: usize) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_sll_epi16(a, _mm_cvtsi64_si128(by as i64)) }
    }
    #[inline(always)]
    unsafe fn shift_right(a: __m256i, by: usize) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_srl_epi16(a, _mm_cvtsi64_si128(by as i64)) }
    }
    #[inline(always)]
    unsafe fn multiply(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_mullo_epi16(a, b) }
    }
    #[inline(always)]
    unsafe fn shuffle(a: __m256i, places: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_shuffle_epi8(a, places) }
    }
    #[inline(always)]
    unsafe fn widen(signed: bool, codes: __m256i) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe {
            if signed {
                let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(codes));
                [even, _mm256_srai_epi16::<8>(codes)]
            } else {
                let even = _mm256_and_si256(codes, _mm256_set1_epi16(255));
                [even, _mm256_srli_epi16::<8>(codes)]
            }
        }
    }
    #[inline(always)]
    unsafe fn wide_bytes(from: *const u8) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe { [widened_signed(from), widened_signed(from.add(GROUP / 2))] }
    }
    #[inline(always)]
    unsafe fn wide_nibbles(from: *const u8) -> [__m256i; 2] {
        // SAFETY: see above.
        unsafe {
            let words = widened(from);
            let even = _mm256_and_si256(words, _mm256_set1_epi16(15));
            [even, _mm256_srli_epi16::<4>(words)]
        }
    }
    #[inline(always)]
    unsafe fn dot_wide(codes: [__m256i; 2], activations: *const u8) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let [even, odd] = codes;
            let odd = _mm256_madd_epi16(odd, Self::load(activations.add(GROUP)));
            _mm256_add_epi32(_mm256_madd_epi16(even, Self::load(activations)), odd)
        }
    }
    #[inline(always)]
    unsafe fn dot(signed: bool, codes: __m256i, activations: *const u8) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let x = Self::load(activations);
            // Pairs fit 16 bits: no product is above 128 · 127.
            let pairs = match signed {
                true => _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes)),
                false => _mm256_maddubs_epi16(codes, x),
            };
            _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
        }
    }
    #[inline(always)]
    unsafe fn floats(sums: __m256i) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cvtepi32_ps(sums) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
}

impl Simd for Avx2 {
    #[inline(always)]
    unsafe fn parts(wide: [__m256i; 2]) -> [__m256i; 2] {
        wide
    }
    #[inline(always)]
    unsafe fn subtract(words: __m256i, by: i16) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_sub_epi16(words, _mm256_set1_epi16(by)) }
    }
    #[inline(always)]
    unsafe fn as_floats(bytes: __m256i) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_castsi256_ps(bytes) }
    }
    #[inline(always)]
    unsafe fn splat_halves(low: f32, high: f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_blend_ps::<0xf0>(_mm256_set1_ps(low), _mm256_set1_ps(high)) }
    }
    #[inline(always)]
    unsafe fn load_floats(from: *const f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store_floats(x: __m256, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_ps(to, x) }
    }
    #[inline(always)]
    unsafe fn from_f16(from: &[u16; 8]) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())) }
    }
    #[inline(always)]
    unsafe fn from_bf16(from: &[u16; 8]) -> __m256 {
        // SAFETY: see above.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn each_f16(from: *const u8, stride: usize) -> __m256 {
        // SAFETY: see above. Number `i` is read with the seven words around it, so that it comes to
        // place `i`; these lie between the first number and the last.
        unsafe {
            let at = |i: usize| _mm_loadu_si128(from.add(i * (stride - 2)).cast());
            let ab = _mm_blend_epi16::<0b10>(at(0), at(1));
            let cd = _mm_blend_epi16::<0b1000>(at(2), at(3));
            let ef = _mm_blend_epi16::<0b10_0000>(at(4), at(5));
            let gh = _mm_blend_epi16::<0b1000_0000>(at(6), at(7));
            let low = _mm_blend_epi32::<0b10>(ab, cd);
            let high = _mm_blend_epi32::<0b1000>(ef, gh);
            _mm256_cvtph_ps(_mm_blend_epi32::<0b1100>(low, high))
        }
    }
    #[inline(always)]
    unsafe fn repeat(x: __m256, shared: usize) -> __m256 {
        // SAFETY: see above.
        unsafe {
            let places = match shared {
                0 => return x,
                1 => _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3),
                _ => _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1),
            };
            _mm256_permutevar8x32_ps(x, places)
        }
    }
    #[inline(always)]
    unsafe fn from_u8(from: u64) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(from as i64))) }
    }
    #[inline(always)]
    unsafe fn from_i8(from: u64) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(from as i64))) }
    }
    #[inline(always)]
    unsafe fn powers(of: u64) -> __m256 {
        // SAFETY: see above.
        unsafe {
            let exponents =
                _mm256_slli_epi32::<23>(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(of as i64)));
            _mm256_castsi256_ps(_mm256_max_epu32(exponents, _mm256_set1_epi32(1 << 22)))
        }
    }
    #[inline(always)]
    unsafe fn code_floats(signed: bool, codes: __m256i, part: usize) -> __m256 {
        // SAFETY: see above; `part` is below four.
        unsafe {
            let half = match part / 2 {
                0 => _mm256_castsi256_si128(codes),
                _ => _mm256_extracti128_si256::<1>(codes),
            };
            let eight = if part.is_multiple_of(2) { half } else { _mm_srli_si128::<8>(half) };
            let wide = match signed {
                true => _mm256_cvtepi8_epi32(eight),
                false => _mm256_cvtepu8_epi32(eight),
            };
            _mm256_cvtepi32_ps(wide)
        }
    }
    #[inline(always)]
    unsafe fn transpose([a, b, c, d, e, f, g, h]: [__m256; 8]) -> [__m256; 8] {
        // SAFETY: see above. Pairs, then fours, then the halves of eight.
        unsafe {
            let pairs = |a, b| (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            let ((ab, ab2), (cd, cd2)) = (pairs(a, b), pairs(c, d));
            let ((ef, ef2), (gh, gh2)) = (pairs(e, f), pairs(g, h));
            let low = |a, b| _mm256_shuffle_ps::<0b01_00_01_00>(a, b);
            let high = |a, b| _mm256_shuffle_ps::<0b11_10_11_10>(a, b);
            let left = [low(ab, cd), high(ab, cd), low(ab2, cd2), high(ab2, cd2)];
            let right = [low(ef, gh), high(ef, gh), low(ef2, gh2), high(ef2, gh2)];
            let first = |i: usize| _mm256_permute2f128_ps::<0x20>(left[i], right[i]);
            let last = |i: usize| _mm256_permute2f128_ps::<0x31>(left[i], right[i]);
            [first(0), first(1), first(2), first(3), last(0), last(1), last(2), last(3)]
        }
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a prefetch may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}

/// Eight rows of weights.
#[derive(Clone, Copy)]
pub(super) struct Eight;

/// Codes below 16: the products of a whole group fit words.
#[derive(Clone, Copy)]
pub(super) struct Nibbles;

/// Codes below 128: the products of two fit a word.
#[derive(Clone, Copy)]
pub(super) struct Bytes;

/// Codes with a sign.
#[derive(Clone, Copy)]
pub(super) struct SignedBytes;

/// Words.
#[derive(Clone, Copy)]
pub(super) struct Words;

// SAFETY (of all blocks below): as above.
impl Lanes for Eight {
    const COUNT: usize = 8;
    type Codes = __m256i;
    type Floats = __m256;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn spread(from: *const u8) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn load_floats(from: *const f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store_floats(x: __m256, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_ps(to, x) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
}

macro_rules! products {
    ($name:ident, words $words:literal, |$codes:ident, $x:ident| $product:expr,
     $add:ident, |$sums:ident| $wide:expr) => {
        impl Products for $name {
            type Lanes = Eight;
            type Sums = __m256i;
            const WORDS: bool = $words;
            const UNSIGNED: bool = false;

            #[inline(always)]
            unsafe fn none() -> __m256i {
                // SAFETY: see above.
                unsafe { _mm256_setzero_si256() }
            }
            #[inline(always)]
            unsafe fn add(sums: __m256i, $codes: __m256i, $x: __m256i) -> __m256i {
                // SAFETY: see above.
                unsafe { $add(sums, $product) }
            }
            #[inline(always)]
            unsafe fn floats($sums: __m256i) -> __m256 {
                // SAFETY: see above.
                unsafe { _mm256_cvtepi32_ps($wide) }
            }
        }
    };
}

products!(Nibbles, words false, |codes, x| _mm256_maddubs_epi16(codes, x),
    _mm256_add_epi16, |sums| _mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
products!(Bytes, words false, |codes, x| {
    _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1))
}, _mm256_add_epi32, |sums| sums);
products!(SignedBytes, words false, |codes, x| {
    let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
    _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
}, _mm256_add_epi32, |sums| sums);
products!(Words, words true, |codes, x| _mm256_madd_epi16(codes, x),
    _mm256_add_epi32, |sums| sums);
