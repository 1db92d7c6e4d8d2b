//! Products of small matrices that lie in the caches: on the calling thread, nothing is packed.

use super::microkernel::{GemmElement, Kernels, Loose, ROWS};

/// `a` of `m × k` times `b` of `k × n`. Rows of `b` are contiguous. Columns are computed by
/// [`GemmElement::NARROW`] at a time: rows of `b` and of the result must have room for all of them.
pub(crate) struct Block<'a, T> {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: &'a [T],
    pub(crate) a_rows: usize,
    pub(crate) a_columns: usize,
    pub(crate) b: &'a [T],
    pub(crate) b_rows: usize,
}

impl<T: GemmElement<Sum = T>> Block<'_, T> {
    /// Columns of the widest tile: with as many, or a multiple, a product is fastest.
    pub(crate) fn widest() -> usize {
        T::kernels().columns
    }

    /// Writes the product, or adds it, to rows of `c` that are `c_rows` apart. An element sums its
    /// products in the order of `k`.
    ///
    /// # Panics
    /// If a matrix is not inside its slice.
    pub(crate) fn write(&self, c: &mut [T], c_rows: usize, accumulate: bool) {
        let Block { m, n, k, a, a_rows, a_columns, b, b_rows } = *self;
        if m == 0 || n == 0 || (k == 0 && accumulate) {
            return;
        }
        let wide = n.next_multiple_of(T::NARROW);
        let reach = |rows: usize, row: usize, columns: usize, column: usize| {
            if rows * columns == 0 { 0 } else { (rows - 1) * row + (columns - 1) * column + 1 }
        };
        let a = &a[..reach(m, a_rows, k, a_columns)];
        let b = &b[..reach(k, b_rows, wide, 1)];
        let c = &mut c[..reach(m, c_rows, wide, 1)];
        assert!(c_rows >= wide || m == 1, "rows of a product must not overlap");
        let kernels = T::kernels();
        let mut column = 0;
        while column < wide {
            // The widest tile that is left room for.
            let mut width = kernels.columns;
            while width > wide - column {
                width /= 2;
            }
            for row in (0..m).step_by(ROWS) {
                let rows = ROWS.min(m - row);
                let tile = kernels.loose_tiles[rows - 1][Kernels::<T>::width(width)];
                // SAFETY: the slices above hold all rows, steps and whole widths; the kernels are
                // those of this processor.
                unsafe {
                    let panels = Loose {
                        a: a.as_ptr().wrapping_add(row * a_rows),
                        a_rows: a_rows as isize,
                        a_columns: a_columns as isize,
                        b: b.as_ptr().wrapping_add(column),
                        b_rows: b_rows as isize,
                        next: 0,
                    };
                    tile(k, &panels, c.as_mut_ptr().add(row * c_rows + column), c_rows, accumulate);
                }
            }
            column += width;
        }
    }
}
