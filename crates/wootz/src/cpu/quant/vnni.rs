//! Vectors of 512 bits: x86-64 with AVX-512 and its dot products of integers (VNNI), for tiles.

use std::arch::asm;
use std::arch::x86_64::*;

use super::tiles::{Lanes, Products};

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
unsafe fn dot_words(mut sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
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

// SAFETY (of all blocks below): the caller has the instruction set and gives readable or writable
// memory of the vectors' sizes; no instruction here needs alignment.
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
    ($name:ident, words $words:literal, $dot:ident) => {
        impl Products for $name {
            type Lanes = Sixteen;
            type Sums = __m512i;
            const WORDS: bool = $words;
            const UNSIGNED: bool = true;

            #[inline(always)]
            unsafe fn none() -> __m512i {
                // SAFETY: see above.
                unsafe { _mm512_setzero_si512() }
            }
            #[inline(always)]
            unsafe fn add(sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
                // SAFETY: see above.
                unsafe { $dot(sums, codes, x) }
            }
            #[inline(always)]
            unsafe fn floats(sums: __m512i) -> __m512 {
                // SAFETY: see above.
                unsafe { _mm512_cvtepi32_ps(sums) }
            }
        }
    };
}

products!(Bytes, words false, _mm512_dpbusd_epi32);
products!(Words, words true, dot_words);
