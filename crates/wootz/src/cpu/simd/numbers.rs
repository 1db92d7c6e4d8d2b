//! The functions that rows of the elementwise tables are written in, for both float types and for
//! all integer types.

use super::math::{self, double};

/// Declares [`Real`] and implements it for `f32` by `math` and for `f64` by `math::double`.
macro_rules! reals {
    ($($one:ident),*; $($two:ident),*) => {
        /// Floats. Called as `Real::exp(x)`, because the inherent methods are not vectorised.
        pub(crate) trait Real: Copy + PartialOrd {
            $(fn $one(self) -> Self;)*
            $(fn $two(self, other: Self) -> Self;)*
            /// The sign as a number; 0 for NaN.
            fn sign(self) -> Self;
            /// The remainder with the sign of the divisor.
            fn modulo(self, divisor: Self) -> Self;
            /// The larger number, or NaN.
            fn maximum(self, other: Self) -> Self;
            /// The smaller number, or NaN.
            fn minimum(self, other: Self) -> Self;
        }
        reals!(@for f32, math, [$($one),*], [$($two),*]);
        reals!(@for f64, double, [$($one),*], [$($two),*]);
    };
    (@for $type:ty, $functions:ident, [$($one:ident),*], [$($two:ident),*]) => {
        impl Real for $type {
            $(
                #[cfg_attr(not(debug_assertions), inline(always))]
                fn $one(self) -> $type {
                    $functions::$one(self)
                }
            )*
            $(
                #[cfg_attr(not(debug_assertions), inline(always))]
                fn $two(self, other: $type) -> $type {
                    $functions::$two(self, other)
                }
            )*
            #[cfg_attr(not(debug_assertions), inline(always))]
            fn sign(self) -> $type {
                let positive = if self > 0.0 { 1.0 } else { 0.0 };
                if self < 0.0 { -1.0 } else { positive }
            }
            #[cfg_attr(not(debug_assertions), inline(always))]
            fn modulo(self, divisor: $type) -> $type {
                let remainder = self % divisor;
                if remainder != 0.0 && (remainder < 0.0) != (divisor < 0.0) {
                    remainder + divisor
                } else {
                    remainder
                }
            }
            #[cfg_attr(not(debug_assertions), inline(always))]
            fn maximum(self, other: $type) -> $type {
                // One instruction gives NaN where `other` is; the other NaNs are put on top.
                let larger = if self > other { self } else { other };
                <$type>::from_bits(larger.to_bits() | if self.is_nan() { !0 } else { 0 })
            }
            #[cfg_attr(not(debug_assertions), inline(always))]
            fn minimum(self, other: $type) -> $type {
                let smaller = if self < other { self } else { other };
                <$type>::from_bits(smaller.to_bits() | if self.is_nan() { !0 } else { 0 })
            }
        }
    };
}

reals!(exp, exp_nonpositive, expm1, log, log_c, log2, log10, log1p, log1p_c, sqrt, rsqrt, sigmoid,
    tanh, sinh, cosh, sin, cos, tan,
    arcsin, arccos, arctan, arcsinh, arccosh, arctanh, erf, erfinv, normal_cdf, floor, ceil, round, trunc;
    power, arctan2, logaddexp);

/// Rounded to what `float16` holds, ties to even, without leaving the vector registers.
#[inline(always)]
pub(crate) fn as_float16(x: f32) -> f32 {
    let magnitude = x.abs();
    let bits = magnitude.to_bits();
    let normal = f32::from_bits((bits + 0xfff + ((bits >> 13) & 1)) & !0x1fff);
    let normal = if normal >= 65536.0 { f32::INFINITY } else { normal };
    // Below the smallest normal number, 2⁻¹⁴, numbers are 2⁻²⁴ apart, as they are above 0.5 here.
    let rounded = if magnitude < 6.103_515_6e-5 { (magnitude + 0.5) - 0.5 } else { normal };
    if x.is_nan() { x } else { rounded.copysign(x) }
}

/// Rounded to what `bfloat16` holds, ties to even.
#[inline(always)]
pub(crate) fn as_bfloat16(x: f32) -> f32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & !0xffff;
    if x.is_nan() { x } else { f32::from_bits(rounded) }
}

/// Integers; everything wraps.
pub(crate) trait Integer: Copy + PartialOrd {
    /// The quotient rounded down; 0 if the divisor is 0.
    fn floor_divide(self, divisor: Self) -> Self;
    /// The remainder with the sign of the divisor; the dividend if the divisor is 0.
    fn modulo(self, divisor: Self) -> Self;
    /// Power by squaring; 0 for a negative exponent.
    fn power(self, exponent: Self) -> Self;
    /// The magnitude; that of the smallest number wraps.
    fn magnitude(self) -> Self;
    /// -1, 0 or 1.
    fn sign(self) -> Self;
    /// Shifted by the low bits of `places`.
    fn shift_left(self, places: Self) -> Self;
    /// Shifted by the low bits of `places`, keeping the sign.
    fn shift_right(self, places: Self) -> Self;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        // Some comparisons with zero are void for the unsigned types.
        #[allow(unused_comparisons)]
        impl Integer for $type {
            #[cfg_attr(not(debug_assertions), inline(always))]
            fn floor_divide(self, divisor: $type) -> $type {
                if divisor == 0 {
                    return 0;
                }
                let quotient = self.wrapping_div(divisor);
                let down = self.wrapping_rem(divisor) != 0 && (self < 0) != (divisor < 0);
                quotient.wrapping_sub(down as $type)
            }
            #[cfg_attr(not(debug_assertions), inline(always))]
            fn modulo(self, divisor: $type) -> $type {
                if divisor == 0 {
                    return self;
                }
                let remainder = self.wrapping_rem(divisor);
                if remainder != 0 && (remainder < 0) != (divisor < 0) {
                    remainder.wrapping_add(divisor)
                } else {
                    remainder
                }
            }
            #[cfg_attr(not(debug_assertions), inline(always))]
            fn power(self, exponent: $type) -> $type {
                if exponent < 0 {
                    return 0;
                }
                let (mut base, mut exponent, mut result) = (self, exponent, 1 as $type);
                while exponent > 0 {
                    if exponent & 1 == 1 {
                        result = result.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    exponent >>= 1;
                }
                result
            }
            #[cfg_attr(not(debug_assertions), inline(always))]
            fn magnitude(self) -> $type {
                if self < 0 { self.wrapping_neg() } else { self }
            }
            #[cfg_attr(not(debug_assertions), inline(always))]
            fn sign(self) -> $type {
                ((self > 0) as $type).wrapping_sub((self < 0) as $type)
            }
            #[cfg_attr(not(debug_assertions), inline(always))]
            fn shift_left(self, places: $type) -> $type {
                self.wrapping_shl(places as u32)
            }
            #[cfg_attr(not(debug_assertions), inline(always))]
            fn shift_right(self, places: $type) -> $type {
                self.wrapping_shr(places as u32)
            }
        }
    )*};
}

integers!(u32, u64, i32, i64);
