//! Plane rotations, which bidiagonal and tridiagonal matrices are made diagonal with.

use super::{Matrix, Number};

/// Cosine and sine of a plane rotation.
#[derive(Clone, Copy)]
pub(super) struct Rotation {
    pub(super) c: f64,
    pub(super) s: f64,
}

impl Rotation {
    /// The rotation that takes `(x, y)` to `(r, 0)`, and `r`.
    pub(super) fn zeroing(x: f64, y: f64) -> (Rotation, f64) {
        if y == 0.0 {
            return (Rotation { c: 1.0, s: 0.0 }, x);
        }
        let r = x.hypot(y);
        (Rotation { c: x / r, s: y / r }, r)
    }

    /// Rotates two values.
    pub(super) fn of(self, x: f64, y: f64) -> (f64, f64) {
        (self.c * x + self.s * y, self.c * y - self.s * x)
    }

    /// Rotates rows `i` and `j` of a matrix.
    pub(super) fn rows<T: Number>(self, matrix: &mut Matrix<T>, i: usize, j: usize) {
        let (x, y) = match i < j {
            true => matrix.two_rows_mut(i, j),
            false => {
                let (y, x) = matrix.two_rows_mut(j, i);
                (x, y)
            }
        };
        let Rotation { c, s } = self;
        for (x, y) in x.iter_mut().zip(y) {
            (*x, *y) = (x.scale(c) + y.scale(s), y.scale(c) - x.scale(s));
        }
    }
}
