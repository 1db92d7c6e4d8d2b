//! Products of windows of an array that lies in the caches: rows of the left matrix overlap in
//! memory, so that nothing is gathered and sums stay in registers for a whole window.

use super::microkernel::{GemmElement, Kernels};
use super::simd::{Scalar, Vector};

/// Rows of a left matrix that begin anywhere in `a`, times a right matrix whose rows are contiguous. A
/// row is made of pieces of one length, which lie at the same distances from the beginning of every row.
pub(crate) struct Strip<'a, T> {
    pub(crate) a: &'a [T],
    /// Where rows begin.
    pub(crate) rows: &'a [usize],
    /// Where the pieces of a row begin, from there.
    pub(crate) pieces: &'a [usize],
    /// Elements of a piece.
    pub(crate) along: usize,
    pub(crate) b: &'a [T],
    /// Columns: a multiple of [`GemmElement::NARROW`].
    pub(crate) n: usize,
}

impl<T: GemmElement<Sum = T>> Strip<'_, T> {
    /// Writes the product, or adds it, to rows of `c` that are `c_rows` apart. An element sums its
    /// products in the order of the row.
    ///
    /// # Panics
    /// If a matrix is not inside its slice.
    pub(crate) fn write(&self, c: &mut [T], c_rows: usize, accumulate: bool) {
        self.write_with(T::kernels(), c, c_rows, accumulate);
    }

    fn write_with(&self, kernels: &Kernels<T>, c: &mut [T], c_rows: usize, accumulate: bool) {
        let Strip { a, rows, pieces, along, b, n } = *self;
        let (Some(last_row), Some(last_piece)) = (rows.iter().max(), pieces.iter().max()) else {
            return;
        };
        if n == 0 {
            return;
        }
        assert!(n.is_multiple_of(T::NARROW), "columns must fill the narrowest tiles");
        assert!(c_rows >= n || rows.len() == 1, "rows of a product must not overlap");
        let a = &a[..last_row + last_piece + along];
        let b = &b[..pieces.len() * along * n];
        let c = &mut c[..(rows.len() - 1) * c_rows + n];
        let mut column = 0;
        while column < n {
            // The widest tile that is left room for.
            let mut width = kernels.columns;
            while width > n - column {
                width /= 2;
            }
            let (a, b, b_rows) = (a.as_ptr(), b.as_ptr().wrapping_add(column), n);
            let panels = Panels { a, pieces, along, b, b_rows };
            let mut row = 0;
            while row < rows.len() {
                let (tile, height) = kernels.strip_tile(rows.len() - row, width);
                // SAFETY: the slices above hold all rows, pieces and whole widths; the caller's
                // kernels fit the processor.
                unsafe {
                    let c = c.as_mut_ptr().add(row * c_rows + column);
                    tile(&panels, rows.as_ptr().add(row), c, c_rows, accumulate);
                }
                row += height;
            }
            column += width;
        }
    }
}

/// What the tiles of some columns have in common.
pub(crate) struct Panels<'a, S> {
    a: *const S,
    pieces: &'a [usize],
    along: usize,
    b: *const S,
    b_rows: usize,
}

/// `c = a · b`, or `c += a · b`, for as many of the rows that begin at the numbers behind the second
/// argument as the tile has.
pub(crate) type Tile<S> = unsafe fn(&Panels<'_, S>, *const usize, *mut S, usize, bool);

impl<T: GemmElement> Kernels<T> {
    /// The tile for the next of so many rows, and how many of them it takes.
    fn strip_tile(&self, rows: usize, width: usize) -> (Tile<T::Sum>, usize) {
        let [shorter, tallest] = self.strip_rows;
        let (height, number) = if rows >= tallest {
            (tallest, self.strips.len() - 1)
        } else {
            let height = rows.div_ceil(rows.div_ceil(shorter));
            (height, height - 1)
        };
        (self.strips[number][Self::width(width)], height)
    }
}

/// # Safety
/// The processor has `V`'s instruction set; rows, pieces and columns are readable, and `c` is writable
/// for the tile at rows `c_stride` apart.
#[inline(always)]
pub(super) unsafe fn tile<V: Vector, const R: usize, const C: usize>(
    panels: &Panels<'_, V::Scalar>,
    rows: *const usize,
    c: *mut V::Scalar,
    c_stride: usize,
    accumulate: bool,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let Panels { a, pieces, along, mut b, b_rows } = *panels;
        let mut from = [a; R];
        for (i, from) in from.iter_mut().enumerate() {
            *from = a.add(*rows.add(i));
            V::prefetch(c.add(i * c_stride));
            V::prefetch(c.add(i * c_stride + C * V::LANES - 1));
        }
        let mut sums = [[V::splat(V::Scalar::ZERO); C]; R];
        // Not a closure, which would be compiled without the instruction set.
        macro_rules! step {
            ($at:expr) => {
                let mut right = [V::splat(V::Scalar::ZERO); C];
                for (j, right) in right.iter_mut().enumerate() {
                    *right = V::load(b.add(j * V::LANES));
                }
                for (from, sums) in from.iter().zip(sums.iter_mut()) {
                    let left = V::splat(*from.add($at));
                    for (sum, right) in sums.iter_mut().zip(right) {
                        *sum = left.mul_add(right, *sum);
                    }
                }
                // The last step may lead outside, where nothing is read.
                b = b.wrapping_add(b_rows);
            };
        }
        for &piece in pieces {
            let (mut at, end) = (piece, piece + along);
            // Several steps a turn: the beginnings of many rows are read anew in each.
            while at + 4 <= end {
                step!(at);
                step!(at + 1);
                step!(at + 2);
                step!(at + 3);
                at += 4;
            }
            while at < end {
                step!(at);
                at += 1;
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (j, mut sum) in sums.into_iter().enumerate() {
                let to = c.add(i * c_stride + j * V::LANES);
                if accumulate {
                    sum = V::load(to).add(sum);
                }
                sum.store(to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agrees_with_plain_loops<T: GemmElement<Sum = T> + Into<f64>>(of: fn(f64) -> T, error: f64) {
        let numbers = |count: usize, by: usize| -> Vec<T> {
            (0..count).map(|i| of((i * by % 41) as f64 / 20.0 - 1.0)).collect()
        };
        let (pieces, along) = ([3usize, 0, 40], 7);
        let depth = pieces.len() * along;
        for kernels in T::special().into_iter().flatten().chain([T::portable()]) {
            for (m, n) in (1..=33).flat_map(|m| (1..=9).map(move |n| (m, 8 * n))) {
                let rows: Vec<usize> = (0..m).map(|row| row * 5 % 17 + row / 3).collect();
                let (a, b) = (numbers(90, 7), numbers(depth * n, 11));
                let strip = Strip { a: &a, rows: &rows, pieces: &pieces, along, b: &b, n };
                let mut c = vec![of(1.0); m * (n + 3)];
                strip.write_with(kernels, &mut c, n + 3, false);
                strip.write_with(kernels, &mut c, n + 3, true);
                for (i, &row) in rows.iter().enumerate() {
                    for j in 0..n + 3 {
                        let product = |k: usize| -> f64 {
                            let left: f64 = a[row + pieces[k / along] + k % along].into();
                            let right: f64 = b[k * n + j].into();
                            left * right
                        };
                        let inside = j < n;
                        let want =
                            if inside { 2.0 * (0..depth).map(product).sum::<f64>() } else { 1.0 };
                        let got: f64 = c[i * (n + 3) + j].into();
                        assert!((got - want).abs() <= error, "{m} × {n} at {i}, {j}: {got} {want}");
                    }
                }
            }
        }
    }

    #[test]
    fn strips_of_any_height_and_width_agree_with_plain_loops_on_every_instruction_set() {
        agrees_with_plain_loops::<f32>(|x| x as f32, 2e-5);
        agrees_with_plain_loops::<f64>(|x| x, 4e-14);
    }
}
