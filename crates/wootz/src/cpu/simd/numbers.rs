//! The functions that rows of the elementwise tables are written in, for both float types and for
//! all integer types.

use super::math;

/// Floats. Called as `Real::exp(x)`, because the inherent methods are not vectorised.
pub(crate) trait Real: Copy + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    fn exp(self) -> Self;
    fn sqrt(self) -> Self;
}

impl Real for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    #[inline(always)]
    fn exp(self) -> f32 {
        math::exp(self)
    }
    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }
}

impl Real for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    #[inline(always)]
    fn exp(self) -> f64 {
        f64::exp(self)
    }
    #[inline(always)]
    fn sqrt(self) -> f64 {
        f64::sqrt(self)
    }
}

/// Integers; everything wraps.
pub(crate) trait Integer: Copy + PartialOrd {
    const ZERO: Self;
    /// The remainder with the sign of the divisor; 0 if the divisor is 0.
    fn modulo(self, divisor: Self) -> Self;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Integer for $type {
            const ZERO: $type = 0;
            #[inline(always)]
            fn modulo(self, divisor: $type) -> $type {
                if divisor == 0 {
                    return 0;
                }
                let remainder = self.wrapping_rem(divisor);
                #[allow(unused_comparisons)]
                if remainder != 0 && (remainder < 0) != (divisor < 0) {
                    remainder.wrapping_add(divisor)
                } else {
                    remainder
                }
            }
        }
    )*};
}

integers!(u32, u64, i32, i64);
