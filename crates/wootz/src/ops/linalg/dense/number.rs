//! Real and complex numbers behind one trait, so that a factorization is written once.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Mul, Neg, Sub, SubAssign};

/// A real or complex double.
pub(in crate::ops::linalg) trait Number:
    Copy
    + Debug
    + PartialEq
    + Send
    + Sync
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + SubAssign
    + Mul<Output = Self>
    + Neg<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;
    fn from_real(value: f64) -> Self;
    fn re(self) -> f64;
    fn conj(self) -> Self;
    /// The absolute value.
    fn modulus(self) -> f64;
    /// The square of the absolute value.
    fn square_modulus(self) -> f64;
    fn scale(self, by: f64) -> Self;
    fn reciprocal(self) -> Self;
    fn is_finite(self) -> bool;
}

impl Number for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;

    fn from_real(value: f64) -> f64 {
        value
    }

    fn re(self) -> f64 {
        self
    }

    fn conj(self) -> f64 {
        self
    }

    fn modulus(self) -> f64 {
        self.abs()
    }

    fn square_modulus(self) -> f64 {
        self * self
    }

    fn scale(self, by: f64) -> f64 {
        self * by
    }

    fn reciprocal(self) -> f64 {
        1.0 / self
    }

    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}
