//! Pairs of vectors of 128 bits: aarch64 with NEON and the dot product of bytes.

use std::arch::aarch64::*;
use std::arch::asm;

use super::vector::{GROUP, Simd};

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
unsafe fn sdot(a: uint8x16_t, b: uint8x16_t) -> int32x4_t {
    // SAFETY: the caller has the instruction, which touches nothing but its registers.
    unsafe {
        let mut sums = vdupq_n_s32(0);
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
impl Simd for Neon {
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
    unsafe fn twice(bytes: u128) -> Self::Bytes {
        // SAFETY: see above.
        unsafe {
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
    unsafe fn where_set(bits: u32, value: u8) -> Self::Bytes {
        // SAFETY: see above.
        unsafe {
            const SINGLE: [u8; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
            let single = vcombine_u8(vld1_u8(SINGLE.as_ptr()), vld1_u8(SINGLE.as_ptr()));
            let [a, b, c, d] = bits.to_le_bytes().map(|byte| vdup_n_u8(byte));
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
        unsafe { codes.zip(Self::load(activations), |a, b| sdot(a, b)) }
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
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: see above.
        a.zip(b, |a, b| unsafe { vmulq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        // SAFETY: see above.
        a.zip(b, |a, b| (a, b)).zip(c, |(a, b), c| unsafe { vfmaq_f32(c, a, b) })
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
}
