//! Matrices as products read them: where they lie, at any strides and at any address.

use std::marker::PhantomData;

use bytemuck::Pod;

use crate::error::{Error, Result};

/// Elements one behind the other from any address on: a region of a mapped file need not be aligned.
#[derive(Clone, Copy)]
pub(crate) struct Elements<'a, T> {
    bytes: &'a [u8],
    of: PhantomData<&'a [T]>,
}

impl<'a, T: Pod> Elements<'a, T> {
    /// The whole elements in these bytes.
    pub(crate) fn in_bytes(bytes: &'a [u8]) -> Self {
        Elements { bytes, of: PhantomData }
    }

    fn len(&self) -> usize {
        self.bytes.len() / size_of::<T>()
    }
}

impl<'a, T: Pod> From<&'a [T]> for Elements<'a, T> {
    fn from(elements: &'a [T]) -> Self {
        Elements::in_bytes(bytemuck::must_cast_slice(elements))
    }
}

/// A matrix among elements, at any strides: `(i, j)` is number
/// `offset + i * row_stride + j * column_stride`.
#[derive(Clone, Copy)]
pub(crate) struct MatrixRef<'a, T> {
    pub(crate) data: Elements<'a, T>,
    pub(crate) offset: usize,
    pub(crate) row_stride: isize,
    pub(crate) column_stride: isize,
}

/// A matrix whose bounds have been checked. It is at any address, so that nothing behind it may be
/// borrowed as elements, or read as aligned ones.
pub(super) struct View<T> {
    pub(super) first: *const T,
    pub(super) rows: isize,
    pub(super) columns: isize,
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<T> {}

// SAFETY: a view is a shared borrow in all but name.
unsafe impl<T: Sync> Sync for View<T> {}

impl<T: Pod> View<T> {
    /// The part that begins at row `i` and column `j`.
    pub(super) fn at(self, i: usize, j: usize) -> Self {
        let by = (i as isize).wrapping_mul(self.rows);
        let by = by.wrapping_add((j as isize).wrapping_mul(self.columns));
        View { first: self.first.wrapping_offset(by), ..self }
    }

    /// # Safety
    /// `(i, j)` lies inside the sizes the view was checked for.
    pub(super) unsafe fn read(self, i: usize, j: usize) -> T {
        // SAFETY: the element lies inside the bytes the view was made of, and any bytes are one.
        unsafe { self.at(i, j).first.read_unaligned() }
    }

    pub(super) fn transposed(self) -> Self {
        View { first: self.first, rows: self.columns, columns: self.rows }
    }
}

impl<T: Pod> MatrixRef<'_, T> {
    /// The same matrix without a bound on its accesses, if all of them lie inside its memory.
    pub(super) fn view(&self, argument: &str, rows: usize, columns: usize) -> Result<View<T>> {
        let reach = |count: usize, stride: isize| count.saturating_sub(1) as i128 * stride as i128;
        let (down, across) = (reach(rows, self.row_stride), reach(columns, self.column_stride));
        let lowest = self.offset as i128 + down.min(0) + across.min(0);
        let highest = self.offset as i128 + down.max(0) + across.max(0);
        let empty = rows == 0 || columns == 0;
        if !empty && (lowest < 0 || highest >= self.data.len() as i128) {
            let expected = format!("a view inside its buffer of {} elements", self.data.len());
            let got = format!("one of elements {lowest} to {highest}");
            return Err(Error::argument("matrix product", argument, expected, got));
        }
        let first = self.data.bytes.as_ptr().cast::<T>().wrapping_add(self.offset);
        // Strides that are never taken are set to values that suit the kernels.
        let row_stride = if rows == 1 { columns as isize } else { self.row_stride };
        let column_stride = if columns == 1 { 1 } else { self.column_stride };
        Ok(View { first, rows: row_stride, columns: column_stride })
    }
}
