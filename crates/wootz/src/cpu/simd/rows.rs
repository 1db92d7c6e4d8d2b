//! Reductions along a row in sixteen lanes. Lane `i` takes the elements `i`, `i + 16`, … and the
//! lanes are folded pairwise, so the order of a sum depends on the row's length alone. A row may
//! come in pieces, if every piece but the last is a multiple of sixteen long.
//!
//! Everything is inlined into its caller, which is a `pulp::WithSimd` loop or `dispatch`.

use std::ops::{Add, Div, Mul, Sub};

/// Lanes of an accumulator.
pub(crate) const LANES: usize = 16;

/// The types that rows are reduced in.
pub(crate) trait Float:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Send
    + Sync
    + 'static
{
    const ZERO: Self;
    const ONE: Self;
    const NEG_INFINITY: Self;
    fn sqrt(self) -> Self;
    fn is_finite(self) -> bool;
    fn from_f64(value: f64) -> Self;
}

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Float for $type {
            const ZERO: $type = 0.0;
            const ONE: $type = 1.0;
            const NEG_INFINITY: $type = <$type>::NEG_INFINITY;
            #[inline(always)]
            fn sqrt(self) -> $type {
                <$type>::sqrt(self)
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                <$type>::is_finite(self)
            }
            #[inline(always)]
            fn from_f64(value: f64) -> $type {
                value as $type
            }
        }
    )*};
}

floats!(f32, f64);

/// How many rows a thread takes at a time: enough of them that fetching ahead pays, and few enough
/// that all threads have some.
pub(crate) fn per_task(rows: usize, columns: usize) -> usize {
    const LEAST: usize = 4 * 1024;
    const MOST: usize = 64 * 1024;
    const TASKS: usize = 64;
    let elements = (rows.saturating_mul(columns) / TASKS).clamp(LEAST, MOST);
    (elements / columns.max(1)).max(1)
}

/// The sum of the products of two rows of one length.
#[inline(always)]
pub(crate) fn dot<T: Float>(a: &[T], b: &[T]) -> T {
    let mut lanes = Lanes::zero();
    lanes.add_products(a, b);
    lanes.sum()
}

/// The largest element of a row; NaNs are passed over, and a row without numbers gives -infinity.
#[inline(always)]
pub(crate) fn max<T: Float>(row: &[T]) -> T {
    let mut lanes = Lanes::lowest();
    lanes.raise(row);
    lanes.max()
}

/// Accumulators of a row that comes in pieces.
#[derive(Clone, Copy)]
pub(crate) struct Lanes<T>(pub(crate) [T; LANES]);

impl<T: Float> Lanes<T> {
    /// For sums.
    #[inline(always)]
    pub(crate) fn zero() -> Self {
        Lanes([T::ZERO; LANES])
    }

    /// For maxima.
    #[inline(always)]
    pub(crate) fn lowest() -> Self {
        Lanes([T::NEG_INFINITY; LANES])
    }

    /// Adds a piece of a row.
    #[inline(always)]
    pub(crate) fn add(&mut self, row: &[T]) {
        let mut lanes = self.0;
        let (whole, rest) = row.as_chunks::<LANES>();
        for piece in whole {
            for i in 0..LANES {
                lanes[i] = lanes[i] + piece[i];
            }
        }
        for (lane, &value) in lanes.iter_mut().zip(rest) {
            *lane = *lane + value;
        }
        self.0 = lanes;
    }

    /// Adds the products of a piece of two rows.
    #[inline(always)]
    pub(crate) fn add_products(&mut self, a: &[T], b: &[T]) {
        let mut lanes = self.0;
        let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
        for (a, b) in a.iter().zip(b) {
            for i in 0..LANES {
                lanes[i] = lanes[i] + a[i] * b[i];
            }
        }
        for ((lane, &a), &b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
            *lane = *lane + a * b;
        }
        self.0 = lanes;
    }

    /// Takes a piece of a row into the maxima.
    #[inline(always)]
    pub(crate) fn raise(&mut self, row: &[T]) {
        let mut lanes = self.0;
        let (whole, rest) = row.as_chunks::<LANES>();
        for piece in whole {
            for i in 0..LANES {
                lanes[i] = larger(lanes[i], piece[i]);
            }
        }
        for (lane, &value) in lanes.iter_mut().zip(rest) {
            *lane = larger(*lane, value);
        }
        self.0 = lanes;
    }

    /// The sum of the lanes.
    #[inline(always)]
    pub(crate) fn sum(self) -> T {
        self.fold(|a, b| a + b)
    }

    /// The largest of the lanes.
    #[inline(always)]
    pub(crate) fn max(self) -> T {
        self.fold(larger)
    }

    #[inline(always)]
    fn fold(self, join: impl Fn(T, T) -> T) -> T {
        // Through memory: the compiler would otherwise cut the lanes of the loop before this as
        // narrow as the pairs that are joined here.
        let mut lanes = std::hint::black_box(self.0);
        let mut width = LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] = join(lanes[i], lanes[i + width]);
            }
            width /= 2;
        }
        lanes[0]
    }
}

#[inline(always)]
fn larger<T: Float>(so_far: T, value: T) -> T {
    if value > so_far { value } else { so_far }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::dispatch;

    #[test]
    fn rows_of_every_length_are_reduced_whole() {
        for length in 0..70 {
            let row: Vec<f32> = (0..length).map(|i| (i * 7 % 13) as f32 - 20.0).collect();
            let squares: f32 = row.iter().map(|x| x * x).sum();
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(dispatch(|| dot(&row, &row)), squares);
            assert_eq!(dispatch(|| max(&row)), largest);
        }
    }

    #[test]
    fn a_row_in_pieces_gives_the_same_bits() {
        let row: Vec<f64> = (0..1000).map(|i| 1.0 / (i as f64 + 1.0)).collect();
        let mut lanes = Lanes::zero();
        row.chunks(48).for_each(|piece| lanes.add_products(piece, piece));
        assert_eq!(lanes.sum().to_bits(), dot(&row, &row).to_bits());
    }

    #[test]
    fn the_maximum_passes_over_nan() {
        assert_eq!(max(&[f32::NAN, 1.0, f32::NAN]), 1.0);
        assert_eq!(max::<f64>(&[f64::NAN]), f64::NEG_INFINITY);
    }
}
