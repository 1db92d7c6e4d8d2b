//! Functions of complex numbers. All but plain arithmetic is computed in double precision, where
//! neither squares overflow nor differences of near numbers matter, and rounded once. Such functions are
//! compiled once and called: they would not be vectorised.

use num_complex::{Complex32, Complex64};

use super::Real;

/// What rows call on complex elements.
pub(crate) trait Complex: Copy {
    /// The product.
    fn times(self, other: Self) -> Self;
    /// The quotient.
    fn over(self, divisor: Self) -> Self;
    /// The distance from zero.
    fn modulus(self) -> f32;
    /// `e^z`.
    fn exp(self) -> Self;
    /// The natural logarithm, cut along the negative numbers.
    fn log(self) -> Self;
    /// `log(1 + z)`, accurate near zero.
    fn log1p(self) -> Self;
    /// `log(e^a + e^b)`, with the imaginary part near that of the larger.
    fn logaddexp(self, other: Self) -> Self;
    /// The root with a real part that is not negative.
    fn sqrt(self) -> Self;
    /// `e^(exponent · log z)`; as in MLX, zero to the power zero is NaN.
    fn power(self, exponent: Self) -> Self;
    /// The sine.
    fn sin(self) -> Self;
    /// The cosine.
    fn cos(self) -> Self;
    /// The tangent.
    fn tan(self) -> Self;
    /// The hyperbolic sine.
    fn sinh(self) -> Self;
    /// The hyperbolic cosine.
    fn cosh(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// The inverse sine.
    fn arcsin(self) -> Self;
    /// The inverse cosine.
    fn arccos(self) -> Self;
    /// The inverse tangent.
    fn arctan(self) -> Self;
    /// The inverse hyperbolic sine.
    fn arcsinh(self) -> Self;
    /// The inverse hyperbolic cosine.
    fn arccosh(self) -> Self;
    /// The inverse hyperbolic tangent.
    fn arctanh(self) -> Self;
    /// The number of modulus 1 in the same direction; zero of zero.
    fn sign(self) -> Self;
    /// Both parts to the nearest integers, ties to even.
    fn round(self) -> Self;
    /// Whether a part is NaN.
    fn is_nan(self) -> bool;
    /// Whether a part is infinite.
    fn is_infinite(self) -> bool;
    /// Whether the real part is smaller, or they are equal and the imaginary part is.
    fn less(self, other: Self) -> bool;
    /// Whether this is [less](Complex::less) or equal.
    fn less_equal(self, other: Self) -> bool;
    /// The larger number, or one that is NaN.
    fn maximum(self, other: Self) -> Self;
    /// The smaller number, or one that is NaN.
    fn minimum(self, other: Self) -> Self;
}

impl Complex for Complex32 {
    #[inline(always)]
    fn times(self, other: Complex32) -> Complex32 {
        let (re, im) = (self.re * other.re, self.re * other.im);
        Complex32::new(re - self.im * other.im, im + self.im * other.re)
    }

    fn over(self, divisor: Complex32) -> Complex32 {
        narrow(quotient(wide(self), wide(divisor)))
    }

    fn modulus(self) -> f32 {
        if Complex::is_infinite(self) {
            return f32::INFINITY;
        }
        modulus(wide(self)) as f32
    }

    fn exp(self) -> Complex32 {
        narrow(exp(wide(self)))
    }

    fn log(self) -> Complex32 {
        narrow(log(wide(self)))
    }

    fn log1p(self) -> Complex32 {
        narrow(log1p(wide(self)))
    }

    fn logaddexp(self, other: Complex32) -> Complex32 {
        let (low, high) = if self.less(other) { (self, other) } else { (other, self) };
        if low.re == f32::NEG_INFINITY || high.re == f32::INFINITY {
            return high;
        }
        let (low, high) = (wide(low), wide(high));
        narrow(high + log1p(exp(low - high)))
    }

    fn sqrt(self) -> Complex32 {
        narrow(sqrt(wide(self)))
    }

    fn power(self, exponent: Complex32) -> Complex32 {
        narrow(exp(wide(exponent) * log(wide(self))))
    }

    fn sin(self) -> Complex32 {
        narrow(unturned(sinh(turned(wide(self)))))
    }

    fn cos(self) -> Complex32 {
        narrow(cosh(turned(wide(self))))
    }

    fn tan(self) -> Complex32 {
        narrow(unturned(tanh(turned(wide(self)))))
    }

    fn sinh(self) -> Complex32 {
        narrow(sinh(wide(self)))
    }

    fn cosh(self) -> Complex32 {
        narrow(cosh(wide(self)))
    }

    fn tanh(self) -> Complex32 {
        narrow(tanh(wide(self)))
    }

    fn arcsin(self) -> Complex32 {
        narrow(arcsin(wide(self)))
    }

    fn arccos(self) -> Complex32 {
        let (below, above) = roots_around(wide(self));
        let angle = 2.0 * Real::arctan2(below.re, above.re);
        narrow(Complex64::new(angle, Real::arcsinh((above.conj() * below).im)))
    }

    fn arctan(self) -> Complex32 {
        narrow(unturned(arctanh(turned(wide(self)))))
    }

    fn arcsinh(self) -> Complex32 {
        narrow(unturned(arcsin(turned(wide(self)))))
    }

    fn arccosh(self) -> Complex32 {
        let z = wide(self);
        let (below, above) = (sqrt(z - 1.0), sqrt(z + 1.0));
        let angle = 2.0 * Real::arctan2(below.im, above.re);
        narrow(Complex64::new(Real::arcsinh((below.conj() * above).re), angle))
    }

    fn arctanh(self) -> Complex32 {
        narrow(arctanh(wide(self)))
    }

    fn sign(self) -> Complex32 {
        // Of the rounded modulus, as MLX has it.
        if self == Complex32::default() { self } else { self / self.modulus() }
    }

    #[inline(always)]
    fn round(self) -> Complex32 {
        Complex32::new(Real::round(self.re), Real::round(self.im))
    }

    #[inline(always)]
    fn is_nan(self) -> bool {
        self.re.is_nan() || self.im.is_nan()
    }

    #[inline(always)]
    fn is_infinite(self) -> bool {
        self.re.is_infinite() || self.im.is_infinite()
    }

    #[inline(always)]
    fn less(self, other: Complex32) -> bool {
        self.re < other.re || (self.re == other.re && self.im < other.im)
    }

    #[inline(always)]
    fn less_equal(self, other: Complex32) -> bool {
        self.re < other.re || (self.re == other.re && self.im <= other.im)
    }

    #[inline(always)]
    fn maximum(self, other: Complex32) -> Complex32 {
        if Complex::is_nan(self) || other.less(self) { self } else { other }
    }

    #[inline(always)]
    fn minimum(self, other: Complex32) -> Complex32 {
        if Complex::is_nan(self) || self.less(other) { self } else { other }
    }
}

#[inline(always)]
fn wide(z: Complex32) -> Complex64 {
    Complex64::new(z.re as f64, z.im as f64)
}

#[inline(always)]
fn narrow(z: Complex64) -> Complex32 {
    Complex32::new(z.re as f32, z.im as f32)
}

/// `i·z`.
fn turned(z: Complex64) -> Complex64 {
    Complex64::new(-z.im, z.re)
}

/// `-i·z`.
fn unturned(z: Complex64) -> Complex64 {
    Complex64::new(z.im, -z.re)
}

fn modulus(z: Complex64) -> f64 {
    (z.re * z.re + z.im * z.im).sqrt()
}

fn quotient(a: Complex64, b: Complex64) -> Complex64 {
    if b == Complex64::default() {
        return Complex64::new(a.re / b.re, a.im / b.re);
    }
    if (b.re.is_infinite() || b.im.is_infinite()) && a.re.is_finite() && a.im.is_finite() {
        return Complex64::default();
    }
    let norm = b.re * b.re + b.im * b.im;
    let (re, im) = (a.re * b.re + a.im * b.im, a.im * b.re - a.re * b.im);
    Complex64::new(re / norm, im / norm)
}

fn exp(z: Complex64) -> Complex64 {
    let size = Real::exp(z.re);
    // Nothing times a finite angle is nothing, and a real number stays one.
    if size == 0.0 {
        return Complex64::default();
    }
    if z.im == 0.0 {
        return Complex64::new(size, z.im);
    }
    Complex64::new(size * Real::cos(z.im), size * Real::sin(z.im))
}

fn log(z: Complex64) -> Complex64 {
    Complex64::new(Real::log(modulus(z)), Real::arctan2(z.im, z.re))
}

fn log1p(z: Complex64) -> Complex64 {
    let angle = Real::arctan2(z.im, 1.0 + z.re);
    let excess = z.re * (2.0 + z.re) + z.im * z.im;
    Complex64::new(0.5 * Real::log1p(excess), angle)
}

fn sqrt(z: Complex64) -> Complex64 {
    if z == Complex64::default() {
        return Complex64::new(0.0, z.im);
    }
    let large = ((modulus(z) + z.re.abs()) * 0.5).sqrt();
    let small = z.im.abs() / (2.0 * large);
    let (re, im) = if z.re >= 0.0 { (large, small) } else { (small, large) };
    Complex64::new(re, im.copysign(z.im))
}

fn sinh(z: Complex64) -> Complex64 {
    let re = Real::sinh(z.re);
    if z.im == 0.0 {
        return Complex64::new(re, z.im);
    }
    Complex64::new(re * Real::cos(z.im), Real::cosh(z.re) * Real::sin(z.im))
}

fn cosh(z: Complex64) -> Complex64 {
    let re = Real::cosh(z.re);
    if z.im == 0.0 {
        return Complex64::new(re, z.re.signum() * z.im);
    }
    Complex64::new(re * Real::cos(z.im), Real::sinh(z.re) * Real::sin(z.im))
}

fn tanh(z: Complex64) -> Complex64 {
    // Far out only the decay of the imaginary part is left, and the squares below would overflow.
    if z.re.abs() > 100.0 {
        return Complex64::new(z.re.signum(), 0.0f64.copysign(z.im));
    }
    let (sinh, cosh) = (Real::sinh(z.re), Real::cosh(z.re));
    let (sin, cos) = (Real::sin(z.im), Real::cos(z.im));
    let norm = sinh * sinh + cos * cos;
    Complex64::new(sinh * cosh / norm, sin * cos / norm)
}

/// The roots of `1 - z` and `1 + z`, on the side of the cut that the sign of a zero tells.
fn roots_around(z: Complex64) -> (Complex64, Complex64) {
    (sqrt(Complex64::new(1.0 - z.re, -z.im)), sqrt(Complex64::new(1.0 + z.re, z.im)))
}

fn arcsin(z: Complex64) -> Complex64 {
    let (below, above) = roots_around(z);
    let angle = Real::arctan2(z.re, (below * above).re);
    Complex64::new(angle, Real::arcsinh((below.conj() * above).im))
}

fn arctanh(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    let beside = (1.0 - x) * (1.0 - x) + y * y;
    let re = 0.25 * Real::log1p(4.0 * x / beside);
    Complex64::new(re, 0.5 * Real::arctan2(2.0 * y, (1.0 - x) * (1.0 + x) - y * y))
}
