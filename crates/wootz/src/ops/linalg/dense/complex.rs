//! Complex doubles.

use std::ops::{Add, AddAssign, Mul, Neg, Sub, SubAssign};

use super::Number;

/// A complex double.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::ops::linalg) struct Complex {
    pub(in crate::ops::linalg) re: f64,
    pub(in crate::ops::linalg) im: f64,
}

impl Complex {
    pub(in crate::ops::linalg) fn new(re: f64, im: f64) -> Complex {
        Complex { re, im }
    }

    /// The square root with a real part that is not negative.
    pub(super) fn sqrt(self) -> Complex {
        let modulus = self.modulus();
        let re = ((modulus + self.re) / 2.0).max(0.0).sqrt();
        let im = ((modulus - self.re) / 2.0).max(0.0).sqrt();
        Complex::new(re, im.copysign(self.im))
    }
}

impl Add for Complex {
    type Output = Complex;

    fn add(self, other: Complex) -> Complex {
        Complex::new(self.re + other.re, self.im + other.im)
    }
}

impl AddAssign for Complex {
    fn add_assign(&mut self, other: Complex) {
        *self = *self + other;
    }
}

impl Sub for Complex {
    type Output = Complex;

    fn sub(self, other: Complex) -> Complex {
        Complex::new(self.re - other.re, self.im - other.im)
    }
}

impl SubAssign for Complex {
    fn sub_assign(&mut self, other: Complex) {
        *self = *self - other;
    }
}

impl Mul for Complex {
    type Output = Complex;

    fn mul(self, other: Complex) -> Complex {
        let re = self.re * other.re - self.im * other.im;
        Complex::new(re, self.re * other.im + self.im * other.re)
    }
}

impl Neg for Complex {
    type Output = Complex;

    fn neg(self) -> Complex {
        Complex::new(-self.re, -self.im)
    }
}

impl Number for Complex {
    const ZERO: Complex = Complex { re: 0.0, im: 0.0 };
    const ONE: Complex = Complex { re: 1.0, im: 0.0 };

    fn from_real(value: f64) -> Complex {
        Complex::new(value, 0.0)
    }

    fn re(self) -> f64 {
        self.re
    }

    fn conj(self) -> Complex {
        Complex::new(self.re, -self.im)
    }

    fn modulus(self) -> f64 {
        self.re.hypot(self.im)
    }

    fn square_modulus(self) -> f64 {
        self.re * self.re + self.im * self.im
    }

    fn scale(self, by: f64) -> Complex {
        Complex::new(self.re * by, self.im * by)
    }

    fn reciprocal(self) -> Complex {
        // Divided twice by the modulus, whose square may be out of range.
        let modulus = self.modulus();
        let unit = self.conj().scale(1.0 / modulus);
        unit.scale(1.0 / modulus)
    }

    fn is_finite(self) -> bool {
        self.re.is_finite() && self.im.is_finite()
    }
}
