//! The vectors that the kernels are written in, one family an instruction set, and how each
//! element type is widened into them and rounded out of them.

use half::{bf16, f16};

/// A vector of `LANES` numbers.
///
/// # Safety
/// Methods of a vector may run only on a processor that has its instruction set, and pointers
/// must be valid for `LANES` elements; they need no alignment.
pub(super) trait Vector: Copy {
    type Scalar: Scalar;
    const LANES: usize;
    unsafe fn splat(x: Self::Scalar) -> Self;
    unsafe fn load(from: *const Self::Scalar) -> Self;
    unsafe fn store(self, to: *mut Self::Scalar);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// `self * x + y`, contracted or not as the instruction set does it.
    unsafe fn mul_add(self, x: Self, y: Self) -> Self;

    /// Says that the line at `at` is about to be used.
    #[inline(always)]
    unsafe fn prefetch(_at: *const Self::Scalar) {}
}

/// A vector of up to eight numbers: the size in which elements are packed, widened and rounded.
///
/// # Safety
/// As for [`Vector`].
pub(super) trait Narrow: Vector {
    /// Transposes the first `LANES` vectors as a square.
    #[inline(always)]
    unsafe fn transpose(square: &mut [Self; 8]) {
        // SAFETY: the arrays have room for eight vectors of eight lanes.
        unsafe {
            let mut cells = [Self::Scalar::ZERO; 64];
            let mut turned = [Self::Scalar::ZERO; 64];
            for (i, row) in square.iter().enumerate().take(Self::LANES) {
                row.store(cells.as_mut_ptr().add(i * Self::LANES));
            }
            for i in 0..Self::LANES {
                for j in 0..Self::LANES {
                    turned[j * Self::LANES + i] = cells[i * Self::LANES + j];
                }
            }
            for (i, row) in square.iter_mut().enumerate().take(Self::LANES) {
                *row = Self::load(turned.as_ptr().add(i * Self::LANES));
            }
        }
    }

    /// The sum of the lanes, added by halves: lane `i` and lane `i + LANES / 2`, until one is left.
    #[inline(always)]
    unsafe fn sum(self) -> Self::Scalar {
        let mut lanes = [Self::Scalar::ZERO; 8];
        // SAFETY: the array has room for eight lanes.
        unsafe { self.store(lanes.as_mut_ptr()) };
        let mut half = Self::LANES / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] = lanes[i].add(lanes[i + half]);
            }
            half /= 2;
        }
        lanes[0]
    }
}

/// What products are accumulated in.
pub(crate) trait Scalar: Copy + Send + Sync + 'static {
    const ZERO: Self;
    fn from_f64(x: f64) -> Self;
    fn is_nonzero(self) -> bool;
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn mul_add(self, x: Self, y: Self) -> Self;
}

/// An element type as seen by vectors of one family.
///
/// # Safety
/// As for [`Vector`], but what is stored to is aligned for the elements.
pub(super) trait Lanes<V: Narrow>: Copy {
    /// Reads `LANES` elements, widened.
    unsafe fn load(from: *const Self) -> V;
    /// Writes `LANES` elements, rounded to nearest, ties to even.
    unsafe fn store(v: V, to: *mut Self);
}

macro_rules! scalar {
    ($t:ty) => {
        impl Scalar for $t {
            const ZERO: Self = 0.0;
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn is_nonzero(self) -> bool {
                self != 0.0
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn mul_add(self, x: Self, y: Self) -> Self {
                // Without the instruction `mul_add` is a slow library call.
                if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
                    <$t>::mul_add(self, x, y)
                } else {
                    self * x + y
                }
            }
        }
    };
}
scalar!(f32);
scalar!(f64);

/// bf16 from f32, to nearest, ties to even; written without branches so that it vectorises.
#[inline(always)]
pub(super) fn round_to_bf16(x: f32) -> bf16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet_nan = (bits >> 16) | 0x40;
    bf16::from_bits(if x.is_nan() { quiet_nan } else { rounded } as u16)
}

/// Arrays that the compiler turns into whatever the target has.
pub(super) mod portable {
    use super::*;

    #[derive(Clone, Copy)]
    pub(in super::super) struct Plain<S, const N: usize>([S; N]);

    impl<S: Scalar, const N: usize> Vector for Plain<S, N> {
        type Scalar = S;
        const LANES: usize = N;
        #[inline(always)]
        unsafe fn splat(x: S) -> Self {
            Plain([x; N])
        }
        #[inline(always)]
        unsafe fn load(from: *const S) -> Self {
            // SAFETY: the caller gives N readable elements.
            Plain(unsafe { from.cast::<[S; N]>().read_unaligned() })
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut S) {
            // SAFETY: the caller gives N writable elements.
            unsafe { to.cast::<[S; N]>().write_unaligned(self.0) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            Plain(std::array::from_fn(|i| self.0[i].add(other.0[i])))
        }
        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            Plain(std::array::from_fn(|i| self.0[i].mul(other.0[i])))
        }
        #[inline(always)]
        unsafe fn mul_add(self, x: Self, y: Self) -> Self {
            Plain(std::array::from_fn(|i| self.0[i].mul_add(x.0[i], y.0[i])))
        }
    }

    impl<S: Scalar, const N: usize> Narrow for Plain<S, N> {}

    macro_rules! lanes {
        ($t:ty, $s:ty, $widen:expr, $round:expr) => {
            impl<const N: usize> Lanes<Plain<$s, N>> for $t {
                #[inline(always)]
                unsafe fn load(from: *const Self) -> Plain<$s, N> {
                    // SAFETY: the caller gives N readable elements.
                    Plain(std::array::from_fn(|i| $widen(unsafe { from.add(i).read_unaligned() })))
                }
                #[inline(always)]
                unsafe fn store(v: Plain<$s, N>, to: *mut Self) {
                    for (i, x) in v.0.into_iter().enumerate() {
                        // SAFETY: the caller gives N writable elements.
                        unsafe { to.add(i).write($round(x)) }
                    }
                }
            }
        };
    }
    lanes!(f32, f32, |x| x, |x| x);
    lanes!(f64, f64, |x| x, |x| x);
    lanes!(f16, f32, f16::to_f32, f16::from_f32);
    lanes!(bf16, f32, bf16::to_f32, round_to_bf16);
}

/// 256-bit vectors. Everything here needs AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::*;

    use super::{Lanes, Narrow, Vector, bf16, f16};

    impl Vector for __m256 {
        type Scalar = f32;
        const LANES: usize = 8;
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            // SAFETY: the caller has AVX2.
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller has AVX2 and gives eight elements.
            unsafe { _mm256_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller has AVX2 and gives eight elements.
            unsafe { _mm256_storeu_ps(to, self) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: the caller has AVX2.
            unsafe { _mm256_add_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            // SAFETY: the caller has AVX2.
            unsafe { _mm256_mul_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, x: Self, y: Self) -> Self {
            // SAFETY: the caller has FMA.
            unsafe { _mm256_fmadd_ps(self, x, y) }
        }
        #[inline(always)]
        unsafe fn prefetch(at: *const f32) {
            // SAFETY: a prefetch may name any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }
    }

    impl Narrow for __m256 {
        #[inline(always)]
        unsafe fn transpose(r: &mut [Self; 8]) {
            // SAFETY: the caller has AVX2. Pairs, then quads, then 128-bit halves change places.
            unsafe {
                let pairs = |i: usize| {
                    (_mm256_unpacklo_ps(r[i], r[i + 1]), _mm256_unpackhi_ps(r[i], r[i + 1]))
                };
                let ((a0, a1), (b0, b1), (c0, c1), (d0, d1)) =
                    (pairs(0), pairs(2), pairs(4), pairs(6));
                let q = [
                    _mm256_shuffle_ps::<0x44>(a0, b0),
                    _mm256_shuffle_ps::<0xee>(a0, b0),
                    _mm256_shuffle_ps::<0x44>(a1, b1),
                    _mm256_shuffle_ps::<0xee>(a1, b1),
                ];
                let p = [
                    _mm256_shuffle_ps::<0x44>(c0, d0),
                    _mm256_shuffle_ps::<0xee>(c0, d0),
                    _mm256_shuffle_ps::<0x44>(c1, d1),
                    _mm256_shuffle_ps::<0xee>(c1, d1),
                ];
                for i in 0..4 {
                    r[i] = _mm256_permute2f128_ps::<0x20>(q[i], p[i]);
                    r[i + 4] = _mm256_permute2f128_ps::<0x31>(q[i], p[i]);
                }
            }
        }

        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            // SAFETY: the caller has AVX2.
            unsafe {
                let four = _mm256_extractf128_ps::<1>(self);
                let four = _mm_add_ps(_mm256_castps256_ps128(self), four);
                let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
            }
        }
    }

    impl Vector for __m256d {
        type Scalar = f64;
        const LANES: usize = 4;
        #[inline(always)]
        unsafe fn splat(x: f64) -> Self {
            // SAFETY: the caller has AVX2.
            unsafe { _mm256_set1_pd(x) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f64) -> Self {
            // SAFETY: the caller has AVX2 and gives four elements.
            unsafe { _mm256_loadu_pd(from) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f64) {
            // SAFETY: the caller has AVX2 and gives four elements.
            unsafe { _mm256_storeu_pd(to, self) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: the caller has AVX2.
            unsafe { _mm256_add_pd(self, other) }
        }
        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            // SAFETY: the caller has AVX2.
            unsafe { _mm256_mul_pd(self, other) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, x: Self, y: Self) -> Self {
            // SAFETY: the caller has FMA.
            unsafe { _mm256_fmadd_pd(self, x, y) }
        }
        #[inline(always)]
        unsafe fn prefetch(at: *const f64) {
            // SAFETY: a prefetch may name any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }
    }

    impl Narrow for __m256d {
        #[inline(always)]
        unsafe fn transpose(r: &mut [Self; 8]) {
            // SAFETY: the caller has AVX2. Pairs, then 128-bit halves change places.
            unsafe {
                let (a, b) = (_mm256_unpacklo_pd(r[0], r[1]), _mm256_unpackhi_pd(r[0], r[1]));
                let (c, d) = (_mm256_unpacklo_pd(r[2], r[3]), _mm256_unpackhi_pd(r[2], r[3]));
                r[0] = _mm256_permute2f128_pd::<0x20>(a, c);
                r[1] = _mm256_permute2f128_pd::<0x20>(b, d);
                r[2] = _mm256_permute2f128_pd::<0x31>(a, c);
                r[3] = _mm256_permute2f128_pd::<0x31>(b, d);
            }
        }
    }

    macro_rules! same {
        ($t:ty, $v:ty) => {
            impl Lanes<$v> for $t {
                #[inline(always)]
                unsafe fn load(from: *const Self) -> $v {
                    // SAFETY: passed on to the caller.
                    unsafe { <$v as Vector>::load(from) }
                }
                #[inline(always)]
                unsafe fn store(v: $v, to: *mut Self) {
                    // SAFETY: passed on to the caller.
                    unsafe { Vector::store(v, to) }
                }
            }
        };
    }
    same!(f32, __m256);
    same!(f64, __m256d);

    impl Lanes<__m256> for f16 {
        #[inline(always)]
        unsafe fn load(from: *const Self) -> __m256 {
            // SAFETY: the caller has F16C and gives eight elements.
            unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
        }
        #[inline(always)]
        unsafe fn store(v: __m256, to: *mut Self) {
            // SAFETY: the caller has F16C and gives eight elements.
            unsafe {
                let nearest = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v);
                _mm_storeu_si128(to.cast(), nearest);
            }
        }
    }

    impl Lanes<__m256> for bf16 {
        #[inline(always)]
        unsafe fn load(from: *const Self) -> __m256 {
            // SAFETY: the caller has AVX2 and gives eight elements.
            unsafe {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            }
        }
        #[inline(always)]
        unsafe fn store(v: __m256, to: *mut Self) {
            // SAFETY: the caller has AVX2 and gives eight elements. As `round_to_bf16`, by lanes.
            unsafe {
                let bits = _mm256_castps_si256(v);
                let high = _mm256_srli_epi32::<16>(bits);
                let odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
                let half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
                let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half));
                let quiet_nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
                let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
                let words = _mm256_blendv_epi8(rounded, quiet_nan, nan);
                let words = _mm_packus_epi32(
                    _mm256_castsi256_si128(words),
                    _mm256_extracti128_si256::<1>(words),
                );
                _mm_storeu_si128(to.cast(), words);
            }
        }
    }
}

/// 512-bit vectors, for tiles only. Everything here needs AVX-512F.
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512 {
    use std::arch::x86_64::*;

    use super::Vector;

    macro_rules! vector {
        (
            $v:ty, $s:ty, $n:literal, $set1:ident, $load:ident, $store:ident,
            $add:ident, $mul:ident, $fma:ident
        ) => {
            impl Vector for $v {
                type Scalar = $s;
                const LANES: usize = $n;
                #[inline(always)]
                unsafe fn splat(x: $s) -> Self {
                    // SAFETY: the caller has AVX-512F.
                    unsafe { $set1(x) }
                }
                #[inline(always)]
                unsafe fn load(from: *const $s) -> Self {
                    // SAFETY: the caller has AVX-512F and gives the elements.
                    unsafe { $load(from) }
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $s) {
                    // SAFETY: the caller has AVX-512F and gives the elements.
                    unsafe { $store(to, self) }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: the caller has AVX-512F.
                    unsafe { $add(self, other) }
                }
                #[inline(always)]
                unsafe fn mul(self, other: Self) -> Self {
                    // SAFETY: the caller has AVX-512F.
                    unsafe { $mul(self, other) }
                }
                #[inline(always)]
                unsafe fn mul_add(self, x: Self, y: Self) -> Self {
                    // SAFETY: the caller has AVX-512F.
                    unsafe { $fma(self, x, y) }
                }
                #[inline(always)]
                unsafe fn prefetch(at: *const $s) {
                    // SAFETY: a prefetch may name any address.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
                }
            }
        };
    }
    vector!(
        __m512,
        f32,
        16,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_add_ps,
        _mm512_mul_ps,
        _mm512_fmadd_ps
    );
    vector!(
        __m512d,
        f64,
        8,
        _mm512_set1_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        _mm512_add_pd,
        _mm512_mul_pd,
        _mm512_fmadd_pd
    );
}

/// 128-bit vectors. Every aarch64 processor has them.
#[cfg(target_arch = "aarch64")]
pub(super) mod neon {
    use std::arch::aarch64::*;

    use super::{Lanes, Narrow, Vector, bf16, f16, round_to_bf16};

    macro_rules! vector {
        (
            $v:ty, $s:ty, $n:literal, $dup:ident, $ld:ident, $st:ident,
            $add:ident, $mul:ident, $fma:ident
        ) => {
            impl Vector for $v {
                type Scalar = $s;
                const LANES: usize = $n;
                #[inline(always)]
                unsafe fn splat(x: $s) -> Self {
                    // SAFETY: NEON is part of aarch64.
                    unsafe { $dup(x) }
                }
                #[inline(always)]
                unsafe fn load(from: *const $s) -> Self {
                    // SAFETY: the caller gives the elements.
                    unsafe { $ld(from) }
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $s) {
                    // SAFETY: the caller gives the elements.
                    unsafe { $st(to, self) }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: NEON is part of aarch64.
                    unsafe { $add(self, other) }
                }
                #[inline(always)]
                unsafe fn mul(self, other: Self) -> Self {
                    // SAFETY: NEON is part of aarch64.
                    unsafe { $mul(self, other) }
                }
                #[inline(always)]
                unsafe fn mul_add(self, x: Self, y: Self) -> Self {
                    // SAFETY: NEON is part of aarch64.
                    unsafe { $fma(y, self, x) }
                }
            }

            impl Narrow for $v {}
        };
    }
    vector!(
        float32x4_t,
        f32,
        4,
        vdupq_n_f32,
        vld1q_f32,
        vst1q_f32,
        vaddq_f32,
        vmulq_f32,
        vfmaq_f32
    );
    vector!(
        float64x2_t,
        f64,
        2,
        vdupq_n_f64,
        vld1q_f64,
        vst1q_f64,
        vaddq_f64,
        vmulq_f64,
        vfmaq_f64
    );

    macro_rules! lanes {
        ($t:ty, $v:ty, $zero:expr, $n:literal, $widen:expr, $round:expr) => {
            impl Lanes<$v> for $t {
                #[inline(always)]
                unsafe fn load(from: *const Self) -> $v {
                    let mut lanes = [$zero; $n];
                    for (i, lane) in lanes.iter_mut().enumerate() {
                        // SAFETY: the caller gives the elements.
                        *lane = $widen(unsafe { from.add(i).read_unaligned() });
                    }
                    // SAFETY: the array has as many elements as the vector.
                    unsafe { <$v as Vector>::load(lanes.as_ptr()) }
                }
                #[inline(always)]
                unsafe fn store(v: $v, to: *mut Self) {
                    let mut lanes = [$zero; $n];
                    // SAFETY: the array has as many elements as the vector, and the caller gives
                    // as many to write.
                    unsafe {
                        Vector::store(v, lanes.as_mut_ptr());
                        for (i, lane) in lanes.into_iter().enumerate() {
                            to.add(i).write($round(lane));
                        }
                    }
                }
            }
        };
    }
    lanes!(f32, float32x4_t, 0f32, 4, |x| x, |x| x);
    lanes!(f64, float64x2_t, 0f64, 2, |x| x, |x| x);
    lanes!(f16, float32x4_t, 0f32, 4, f16::to_f32, f16::from_f32);
    lanes!(bf16, float32x4_t, 0f32, 4, bf16::to_f32, round_to_bf16);
}
