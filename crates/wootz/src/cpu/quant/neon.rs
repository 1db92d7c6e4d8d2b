//! Pairs of vectors of 128 bits: aarch64 with NEON and the dot product of bytes.

use std::arch::aarch64::*;
use std::arch::asm;

use super::tiles::{Lanes, Products};
use super::vector::{GROUP, Simd, Vectors, first_bytes};

#[derive(Clone, Copy)]
pub(super) struct Neon;

/// Whether this processor has what [`Neon`] needs.
pub(super) fn detected() -> bool {
    std::arch::is_aarch64_feature_detected!("dotprod")
}

/// The halves of thirty-two bytes, or of eight numbers.
#[derive(Clone, Copy)]
pub(super) struct Two<T>(T, T);

impl<T: Copy> Two<T> {
    #[inline(always)]
    fn map<U>(self, f: impl Fn(T) -> U) -> Two<U> {
        Two(f(self.0), f(self.1))
    }

    #[inline(always)]
    fn zip<U: Copy, R>(self, other: Two<U>, f: impl Fn(T, U) -> R) -> Two<R> {
        Two(f(self.0, other.0), f(self.1, other.1))
    }
}

/// Adds the dot products of four times four bytes. The intrinsic is not stable.
#[inline(always)]
unsafe fn sdot(mut sums: int32x4_t, a: uint8x16_t, b: uint8x16_t) -> int32x4_t {
    // SAFETY: the caller has the instruction, which touches nothing but its registers.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
        sums
    }
}

#[inline(always)]
unsafe fn words(bytes: uint8x16_t, f: impl Fn(uint16x8_t) -> uint16x8_t) -> uint8x16_t {
    // SAFETY: NEON is part of aarch64.
    unsafe { vreinterpretq_u8_u16(f(vreinterpretq_u16_u8(bytes))) }
}

// SAFETY (of all blocks below): NEON is part of aarch64; the caller has the dot product and gives
// readable or writable memory of the vectors' sizes.
impl Vectors for Neon {
    type Place = *const u8;
    type Bytes = Two<uint8x16_t>;
    type Wide = Two<[int16x8_t; 2]>;
    type Sums = Two<int32x4_t>;
    type Floats = Two<float32x4_t>;

    #[inline(always)]
    unsafe fn bytes(from: &[u8; GROUP]) -> Self::Bytes {
        // SAFETY: see above.
        unsafe { Self::load(from.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Bytes {
        // SAFETY: see above.
        unsafe { Self::halves(from, from.add(GROUP / 2)) }
    }
    #[inline(always)]
    unsafe fn halves(low: *const u8, high: *const u8) -> Self::Bytes {
        // SAFETY: see above.
        unsafe { Two(vld1q_u8(low), vld1q_u8(high)) }
    }
    #[inline(always)]
    unsafe fn few(from: *const u8, count: usize) -> Self::Bytes {
        // SAFETY: see above.
        unsafe {
            let bytes = first_bytes(from, count);
            let (low, high) = (vcreate_u8(bytes as u64), vcreate_u8((bytes >> 64) as u64));
            Two(vcombine_u8(low, high), vcombine_u8(low, high))
        }
    }
    #[inline(always)]
    unsafe fn nibbles(from: *const u8) -> Self::Bytes {
        // SAFETY: see above.
        unsafe {
            let bytes = vld1q_u8(from);
            Two(vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8::<4>(bytes))
        }
    }
    #[inline(always)]
    unsafe fn nibble_pairs(from: *const u8) -> Self::Bytes {
        // SAFETY: see above.
        unsafe {
            let Two(low, high) = Self::nibbles(from);
            Two(vzip1q_u8(low, high), vzip2q_u8(low, high))
        }
    }
    #[inline(always)]
    unsafe fn where_set(bits: *const u8, value: u8) -> Self::Bytes {
        // SAFETY: see above.
        unsafe {
            const SINGLE: [u8; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
            let single = vcombine_u8(vld1_u8(SINGLE.as_ptr()), vld1_u8(SINGLE.as_ptr()));
            let bits = bits.cast::<[u8; 4]>().read_unaligned();
            let [a, b, c, d] = bits.map(|byte| vdup_n_u8(byte));
            Two(vcombine_u8(a, b), vcombine_u8(c, d))
                .map(|bits| vandq_u8(vtstq_u8(bits, single), vdupq_n_u8(value)))
        }
    }
    #[inline(always)]
    unsafe fn and(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        // SAFETY: see above.
        a.zip(b, |a, b| unsafe { vandq_u8(a, b) })
    }
    #[inline(always)]
    unsafe fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        // SAFETY: see above.
        a.zip(b, |a, b| unsafe { vorrq_u8(a, b) })
    }
    #[inline(always)]
    unsafe fn xor(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        // SAFETY: see above.
        a.zip(b, |a, b| unsafe { veorq_u8(a, b) })
    }
    #[inline(always)]
    unsafe fn shift_left(a: Self::Bytes, by: usize) -> Self::Bytes {
        // SAFETY: see above.
        a.map(|a| unsafe { words(a, |a| vshlq_u16(a, vdupq_n_s16(by as i16))) })
    }
    #[inline(always)]
    unsafe fn shift_right(a: Self::Bytes, by: usize) -> Self::Bytes {
        // SAFETY: see above. To the left by a negative number is to the right.
        a.map(|a| unsafe { words(a, |a| vshlq_u16(a, vdupq_n_s16(-(by as i16)))) })
    }
    #[inline(always)]
    unsafe fn multiply(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        // SAFETY: see above.
        a.zip(b, |a, b| unsafe { words(a, |a| vmulq_u16(a, vreinterpretq_u16_u8(b))) })
    }
    #[inline(always)]
    unsafe fn shuffle(a: Self::Bytes, places: Self::Bytes) -> Self::Bytes {
        // SAFETY: see above.
        a.zip(places, |a, places| unsafe { vqtbl1q_u8(a, places) })
    }
    #[inline(always)]
    unsafe fn widen(signed: bool, codes: Self::Bytes) -> Self::Wide {
        // SAFETY: see above.
        codes.map(|codes| unsafe {
            let words = vreinterpretq_s16_u8(codes);
            if signed {
                let even = vshrq_n_s16::<8>(vshlq_n_s16::<8>(words));
                [even, vshrq_n_s16::<8>(words)]
            } else {
                let odd = vshrq_n_u16::<8>(vreinterpretq_u16_u8(codes));
                [vandq_s16(words, vdupq_n_s16(255)), vreinterpretq_s16_u16(odd)]
            }
        })
    }
    #[inline(always)]
    unsafe fn wide_bytes(from: *const u8) -> Self::Wide {
        // SAFETY: see above.
        unsafe {
            let Two(first, last) = Self::load(from).map(|bytes| vreinterpretq_s8_u8(bytes));
            let low = [vmovl_s8(vget_low_s8(first)), vmovl_s8(vget_low_s8(last))];
            Two(low, [vmovl_high_s8(first), vmovl_high_s8(last)])
        }
    }
    #[inline(always)]
    unsafe fn dot_wide(codes: Self::Wide, activations: *const u8) -> Self::Sums {
        // SAFETY: see above.
        unsafe {
            let (even, odd) = (Self::load(activations), Self::load(activations.add(GROUP)));
            codes.zip(even.zip(odd, |even, odd| [even, odd]), |codes, x| {
                let [even, odd] = [0, 1].map(|i| (codes[i], vreinterpretq_s16_u8(x[i])));
                let sums = vmull_s16(vget_low_s16(even.0), vget_low_s16(even.1));
                let sums = vmlal_high_s16(sums, even.0, even.1);
                let sums = vmlal_s16(sums, vget_low_s16(odd.0), vget_low_s16(odd.1));
                vmlal_high_s16(sums, odd.0, odd.1)
            })
        }
    }
    #[inline(always)]
    unsafe fn dot(_signed: bool, codes: Self::Bytes, activations: *const u8) -> Self::Sums {
        // SAFETY: see above. Codes that are not signed are below 128, and so the same.
        unsafe { codes.zip(Self::load(activations), |a, b| sdot(vdupq_n_s32(0), a, b)) }
    }
    #[inline(always)]
    unsafe fn floats(sums: Self::Sums) -> Self::Floats {
        // SAFETY: see above.
        sums.map(|sums| unsafe { vcvtq_f32_s32(sums) })
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::Floats {
        // SAFETY: see above.
        unsafe { Two(vdupq_n_f32(x), vdupq_n_f32(x)) }
    }
    #[inline(always)]
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: see above.
        a.zip(b, |a, b| unsafe { vmulq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        // SAFETY: see above.
        a.zip(b, |a, b| (a, b)).zip(c, |(a, b), c| unsafe { vfmaq_f32(c, a, b) })
    }
}

impl Simd for Neon {
    #[inline(always)]
    unsafe fn parts(wide: Self::Wide) -> [Self::Bytes; 2] {
        // SAFETY: see above.
        let part = |i: usize| wide.map(|words| unsafe { vreinterpretq_u8_s16(words[i]) });
        [part(0), part(1)]
    }
    #[inline(always)]
    unsafe fn subtract(a: Self::Bytes, by: i16) -> Self::Bytes {
        // SAFETY: see above.
        a.map(|a| unsafe { words(a, |a| vsubq_u16(a, vdupq_n_u16(by as u16))) })
    }
    #[inline(always)]
    unsafe fn as_floats(bytes: Self::Bytes) -> Self::Floats {
        // SAFETY: see above.
        bytes.map(|bytes| unsafe { vreinterpretq_f32_u8(bytes) })
    }
    #[inline(always)]
    unsafe fn splat_halves(low: f32, high: f32) -> Self::Floats {
        // SAFETY: see above.
        unsafe { Two(vdupq_n_f32(low), vdupq_n_f32(high)) }
    }
    #[inline(always)]
    unsafe fn load_floats(from: *const f32) -> Self::Floats {
        // SAFETY: see above.
        unsafe { Two(vld1q_f32(from), vld1q_f32(from.add(4))) }
    }
    #[inline(always)]
    unsafe fn store_floats(x: Self::Floats, to: *mut f32) {
        // SAFETY: see above.
        unsafe {
            vst1q_f32(to, x.0);
            vst1q_f32(to.add(4), x.1);
        }
    }
    #[inline(always)]
    unsafe fn from_f16(from: &[u16; 8]) -> Self::Floats {
        // SAFETY: see above. In integers, because the types of f16 are not stable: the exponent is moved
        // by a product, which also makes numbers of what is subnormal.
        unsafe {
            let bits = vld1q_u16(from.as_ptr());
            Two(vmovl_u16(vget_low_u16(bits)), vmovl_high_u16(bits)).map(|bits| {
                let magnitude = vandq_u32(bits, vdupq_n_u32(0x7fff));
                let sign = vshlq_n_u32::<16>(vandq_u32(bits, vdupq_n_u32(0x8000)));
                let small = vreinterpretq_f32_u32(vshlq_n_u32::<13>(magnitude));
                let number = vmulq_f32(small, vdupq_n_f32(f32::from_bits((254 - 15) << 23)));
                // Infinities and NaN have the largest exponent.
                let special = vcgeq_u32(magnitude, vdupq_n_u32(0x7c00));
                let special = vandq_u32(special, vdupq_n_u32(0x7f80_0000));
                let number = vorrq_u32(vreinterpretq_u32_f32(number), special);
                vreinterpretq_f32_u32(vorrq_u32(number, sign))
            })
        }
    }
    #[inline(always)]
    unsafe fn from_bf16(from: &[u16; 8]) -> Self::Floats {
        // SAFETY: see above.
        unsafe {
            let bits = vld1q_u16(from.as_ptr());
            Two(vshll_n_u16::<16>(vget_low_u16(bits)), vshll_high_n_u16::<16>(bits))
                .map(|bits| vreinterpretq_f32_u32(bits))
        }
    }
    #[inline(always)]
    unsafe fn each_f16(from: *const u8, stride: usize) -> Self::Floats {
        // SAFETY: see above.
        unsafe {
            Self::from_f16(&std::array::from_fn(|i| {
                from.add(i * stride).cast::<u16>().read_unaligned()
            }))
        }
    }
    #[inline(always)]
    unsafe fn repeat(x: Self::Floats, shared: usize) -> Self::Floats {
        // SAFETY: see above.
        unsafe {
            match shared {
                0 => x,
                1 => Two(vzip1q_f32(x.0, x.0), vzip2q_f32(x.0, x.0)),
                _ => Two(vdupq_laneq_f32::<0>(x.0), vdupq_laneq_f32::<1>(x.0)),
            }
        }
    }
    #[inline(always)]
    unsafe fn from_u8(from: u64) -> Self::Floats {
        // SAFETY: see above.
        unsafe {
            let words = vmovl_u8(vcreate_u8(from));
            Two(vmovl_u16(vget_low_u16(words)), vmovl_high_u16(words)).map(|x| vcvtq_f32_u32(x))
        }
    }
    #[inline(always)]
    unsafe fn from_i8(from: u64) -> Self::Floats {
        // SAFETY: see above.
        unsafe {
            let words = vmovl_s8(vcreate_s8(from));
            Two(vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words)).map(|x| vcvtq_f32_s32(x))
        }
    }
    #[inline(always)]
    unsafe fn powers(of: u64) -> Self::Floats {
        // SAFETY: see above.
        unsafe {
            let words = vmovl_u8(vcreate_u8(of));
            Two(vmovl_u16(vget_low_u16(words)), vmovl_high_u16(words)).map(|exponents| {
                let bits = vmaxq_u32(vshlq_n_u32::<23>(exponents), vdupq_n_u32(1 << 22));
                vreinterpretq_f32_u32(bits)
            })
        }
    }
    #[inline(always)]
    unsafe fn code_floats(signed: bool, codes: Self::Bytes, part: usize) -> Self::Floats {
        // SAFETY: see above.
        unsafe {
            let half = if part / 2 == 0 { codes.0 } else { codes.1 };
            let two = vreinterpretq_u64_u8(half);
            let eight = if part.is_multiple_of(2) {
                vgetq_lane_u64::<0>(two)
            } else {
                vgetq_lane_u64::<1>(two)
            };
            if signed { Self::from_i8(eight) } else { Self::from_u8(eight) }
        }
    }
    #[inline(always)]
    unsafe fn transpose([a, b, c, d, e, f, g, h]: [Self::Floats; 8]) -> [Self::Floats; 8] {
        // SAFETY: see above. The four squares of four.
        unsafe {
            let left = square([a.0, b.0, c.0, d.0]);
            let right = square([a.1, b.1, c.1, d.1]);
            let left_below = square([e.0, f.0, g.0, h.0]);
            let right_below = square([e.1, f.1, g.1, h.1]);
            let first = |i: usize| Two(left[i], left_below[i]);
            let last = |i: usize| Two(right[i], right_below[i]);
            [first(0), first(1), first(2), first(3), last(0), last(1), last(2), last(3)]
        }
    }
}

/// Rows of four as columns.
#[inline(always)]
unsafe fn square([a, b, c, d]: [float32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: NEON is part of aarch64. Pairs, then halves.
    unsafe {
        let wide = |x| vreinterpretq_f64_f32(x);
        let low = |a, b| vreinterpretq_f32_f64(vtrn1q_f64(wide(a), wide(b)));
        let high = |a, b| vreinterpretq_f32_f64(vtrn2q_f64(wide(a), wide(b)));
        let (ab, ab2) = (vtrn1q_f32(a, b), vtrn2q_f32(a, b));
        let (cd, cd2) = (vtrn1q_f32(c, d), vtrn2q_f32(c, d));
        [low(ab, cd), low(ab2, cd2), high(ab, cd), high(ab2, cd2)]
    }
}

/// Four rows of weights.
#[derive(Clone, Copy)]
pub(super) struct Four;

/// Bytes with a sign, or below 128.
#[derive(Clone, Copy)]
pub(super) struct Bytes;

/// Words.
#[derive(Clone, Copy)]
pub(super) struct Words;

// SAFETY (of all blocks below): as above.
impl Lanes for Four {
    const COUNT: usize = 4;
    type Codes = uint8x16_t;
    type Floats = float32x4_t;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> uint8x16_t {
        // SAFETY: see above.
        unsafe { vld1q_u8(from) }
    }
    #[inline(always)]
    unsafe fn spread(from: *const u8) -> uint8x16_t {
        // SAFETY: see above.
        unsafe { vreinterpretq_u8_u32(vdupq_n_u32(from.cast::<u32>().read_unaligned())) }
    }
    #[inline(always)]
    unsafe fn load_floats(from: *const f32) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vld1q_f32(from) }
    }
    #[inline(always)]
    unsafe fn store_floats(x: float32x4_t, to: *mut f32) {
        // SAFETY: see above.
        unsafe { vst1q_f32(to, x) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vdupq_n_f32(x) }
    }
    #[inline(always)]
    unsafe fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vmulq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vfmaq_f32(c, a, b) }
    }
}

impl Products for Bytes {
    type Lanes = Four;
    type Sums = int32x4_t;
    const WORDS: bool = false;
    const UNSIGNED: bool = false;

    #[inline(always)]
    unsafe fn none() -> int32x4_t {
        // SAFETY: see above.
        unsafe { vdupq_n_s32(0) }
    }
    #[inline(always)]
    unsafe fn add(sums: int32x4_t, codes: uint8x16_t, x: uint8x16_t) -> int32x4_t {
        // SAFETY: see above.
        unsafe { sdot(sums, codes, x) }
    }
    #[inline(always)]
    unsafe fn floats(sums: int32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vcvtq_f32_s32(sums) }
    }
}

impl Products for Words {
    type Lanes = Four;
    /// Two for each row, which are added at last.
    type Sums = Two<int32x4_t>;
    const WORDS: bool = true;
    const UNSIGNED: bool = false;

    #[inline(always)]
    unsafe fn none() -> Self::Sums {
        // SAFETY: see above.
        unsafe { Two(vdupq_n_s32(0), vdupq_n_s32(0)) }
    }
    #[inline(always)]
    unsafe fn add(sums: Self::Sums, codes: uint8x16_t, x: uint8x16_t) -> Self::Sums {
        // SAFETY: see above.
        unsafe {
            let (codes, x) = (vreinterpretq_s16_u8(codes), vreinterpretq_s16_u8(x));
            let low = vmlal_s16(sums.0, vget_low_s16(codes), vget_low_s16(x));
            Two(low, vmlal_high_s16(sums.1, codes, x))
        }
    }
    #[inline(always)]
    unsafe fn floats(sums: Self::Sums) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vcvtq_f32_s32(vpaddq_s32(sums.0, sums.1)) }
    }
}
