//! x86-64 with AVX-512 and its dot products of integers (VNNI): vectors of 256 bits for few rows of activations, and of
//! 512 bits for tiles.

use std::arch::asm;
use std::arch::x86_64::*;

use super::avx2::Avx2;
use super::tiles::{Lanes, Products};
use super::vector::{GROUP, Simd, Vectors};

/// [`Avx2`] with shorter dot products.
#[derive(Clone, Copy)]
pub(super) struct Vnni;

/// Sixteen rows of weights.
#[derive(Clone, Copy)]
pub(super) struct Sixteen;

/// Bytes without a sign.
#[derive(Clone, Copy)]
pub(super) struct Bytes;

/// Words with a sign.
#[derive(Clone, Copy)]
pub(super) struct Words;

/// Whether this processor has what tiles of these vectors need, and what packs them.
pub(super) fn detected() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
        && super::avx2::detected()
}

/// Adds the dot products of sixteen times two words. Of the intrinsic, the compiler would make a product and an
/// addition.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn dot_words(mut sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
    // SAFETY: the caller has the instruction, which touches nothing but its registers.
    unsafe {
        asm!(
            "vpdpwssd {sums}, {codes}, {x}",
            sums = inout(zmm_reg) sums,
            codes = in(zmm_reg) codes,
            x = in(zmm_reg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// The same for eight times two.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512vnni")]
unsafe fn dot_fewer_words(mut sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
    // SAFETY: the caller has the instruction, which touches nothing but its registers.
    unsafe {
        asm!(
            "vpdpwssd {sums}, {codes}, {x}",
            sums = inout(ymm_reg) sums,
            codes = in(ymm_reg) codes,
            x = in(ymm_reg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

// SAFETY (of all blocks below): the caller has the instruction set and gives readable or writable
// memory of the vectors' sizes; no instruction here needs alignment.
macro_rules! as_avx2 {
    ($of:ident: $(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: see above.
            unsafe { <Avx2 as $of>::$name($($argument),*) }
        }
    )*};
}

impl Vectors for Vnni {
    type Place = *const u8;
    type Bytes = __m256i;
    type Wide = [__m256i; 2];
    type Sums = __m256i;
    type Floats = __m256;

    #[inline(always)]
    unsafe fn dot_wide([even, odd]: [__m256i; 2], activations: *const u8) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let sums = _mm256_madd_epi16(even, Self::load(activations));
            dot_fewer_words(sums, odd, Self::load(activations.add(GROUP)))
        }
    }
    #[inline(always)]
    unsafe fn dot(signed: bool, codes: __m256i, activations: *const u8) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let (x, none) = (Self::load(activations), _mm256_setzero_si256());
            match signed {
                true => {
                    _mm256_dpbusd_epi32(none, _mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes))
                }
                false => _mm256_dpbusd_epi32(none, codes, x),
            }
        }
    }

    as_avx2! { Vectors:
        fn bytes(from: &[u8; GROUP]) -> __m256i;
        fn load(from: *const u8) -> __m256i;
        fn halves(low: *const u8, high: *const u8) -> __m256i;
        fn few(from: *const u8, count: usize) -> __m256i;
        fn nibbles(from: *const u8) -> __m256i;
        fn nibble_pairs(from: *const u8) -> __m256i;
        fn where_set(bits: *const u8, value: u8) -> __m256i;
        fn and(a: __m256i, b: __m256i) -> __m256i;
        fn or(a: __m256i, b: __m256i) -> __m256i;
        fn xor(a: __m256i, b: __m256i) -> __m256i;
        fn shift_left(a: __m256i, by: usize) -> __m256i;
        fn shift_right(a: __m256i, by: usize) -> __m256i;
        fn multiply(a: __m256i, b: __m256i) -> __m256i;
        fn shuffle(a: __m256i, places: __m256i) -> __m256i;
        fn widen(signed: bool, codes: __m256i) -> [__m256i; 2];
        fn wide_nibbles(from: *const u8) -> [__m256i; 2];
        fn wide_bytes(from: *const u8) -> [__m256i; 2];
        fn floats(sums: __m256i) -> __m256;
        fn splat(x: f32) -> __m256;
        fn mul(a: __m256, b: __m256) -> __m256;
        fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256;
    }
}

impl Simd for Vnni {
    as_avx2! { Simd:
        fn parts(wide: [__m256i; 2]) -> [__m256i; 2];
        fn subtract(words: __m256i, by: i16) -> __m256i;
        fn as_floats(bytes: __m256i) -> __m256;
        fn splat_halves(low: f32, high: f32) -> __m256;
        fn load_floats(from: *const f32) -> __m256;
        fn store_floats(x: __m256, to: *mut f32);
        fn from_f16(from: &[u16; 8]) -> __m256;
        fn from_bf16(from: &[u16; 8]) -> __m256;
        fn each_f16(from: *const u8, stride: usize) -> __m256;
        fn repeat(x: __m256, shared: usize) -> __m256;
        fn from_u8(from: u64) -> __m256;
        fn from_i8(from: u64) -> __m256;
        fn powers(of: u64) -> __m256;
        fn code_floats(signed: bool, codes: __m256i, part: usize) -> __m256;
        fn transpose(rows: [__m256; 8]) -> [__m256; 8];
        fn prefetch(at: *const u8);
    }
}

impl Lanes for Sixteen {
    const COUNT: usize = 16;
    type Codes = __m512i;
    type Floats = __m512;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn spread(from: *const u8) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn load_floats(from: *const f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store_floats(x: __m512, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(to, x) }
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

macro_rules! products {
    ($name:ident, words $words:literal, integers $integers:literal, $dot:ident, |$sums:ident| $floats:expr) => {
        impl Products for $name {
            type Lanes = Sixteen;
            type Sums = __m512i;
            const WORDS: bool = $words;
            const UNSIGNED: bool = true;
            const INTEGERS: bool = $integers;

            #[inline(always)]
            unsafe fn none() -> __m512i {
                // SAFETY: see above.
                unsafe { _mm512_setzero_si512() }
            }
            #[inline(always)]
            unsafe fn begin(with: *const u32) -> __m512i {
                // SAFETY: see above.
                unsafe { _mm512_set1_epi32(with.cast::<i32>().read_unaligned()) }
            }
            #[inline(always)]
            unsafe fn add(sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
                // SAFETY: see above.
                unsafe { $dot(sums, codes, x) }
            }
            #[inline(always)]
            unsafe fn floats($sums: __m512i) -> __m512 {
                // SAFETY: see above.
                unsafe { $floats }
            }
        }
    };
}

// The products of a group of bytes are below 2^22.
products!(Bytes, words false, integers true, _mm512_dpbusd_epi32, |sums| _mm512_castsi512_ps(sums));
products!(Words, words true, integers false, dot_words, |sums| _mm512_cvtepi32_ps(sums));
