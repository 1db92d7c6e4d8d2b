//! From sums to output elements: scaled, with another matrix added, and rounded once.

use super::View;
use super::microkernel::{GemmElement, Kernels};
use super::simd::{Lanes, Narrow, Scalar};

/// What is added to a product: the element becomes `alpha · sum + beta · c`.
pub(crate) struct Addend<T: GemmElement> {
    pub(super) alpha: T::Sum,
    pub(super) beta: T::Sum,
    pub(super) c: View<T>,
}

impl<T: GemmElement> Clone for Addend<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: GemmElement> Copy for Addend<T> {}

impl<T: GemmElement> Addend<T> {
    /// For the part of the output that begins at row `i` and column `j`.
    pub(super) fn at(self, i: usize, j: usize) -> Self {
        Addend { c: self.c.at(i, j), ..self }
    }
}

/// Makes `rows × columns` output elements of the sums. Both sides come with the distance of their
/// rows. Sums may be in the output already, where they are of the elements' type.
///
/// # Safety
/// The processor has the kernels' instruction set; sums, output and addend are valid for the sizes.
pub(super) unsafe fn rows<T: GemmElement>(
    kernels: &Kernels<T>,
    plus: Option<Addend<T>>,
    (sums, sums_stride): (*const T::Sum, usize),
    (to, stride): (*mut T, usize),
    rows: usize,
    columns: usize,
) {
    if plus.is_none() && sums.cast() == to.cast_const() {
        return;
    }
    // Rows that follow one another are one long row, for the addend as well.
    let dense = sums_stride == columns && stride == columns;
    let addend_dense =
        plus.is_none_or(|plus| plus.c.rows == plus.c.columns.wrapping_mul(columns as isize));
    let (rows, columns) = if dense && addend_dense { (1, rows * columns) } else { (rows, columns) };
    for i in 0..rows {
        let plus = plus.map(|plus| plus.at(i, 0));
        // SAFETY: passed on to the caller.
        unsafe {
            (kernels.finish)(sums.add(i * sums_stride), plus.as_ref(), to.add(i * stride), columns);
        }
    }
}

/// One row of [`rows`].
///
/// # Safety
/// The processor has `V`'s instruction set; everything is valid for `len` elements.
#[inline(always)]
pub(super) unsafe fn finish<T: GemmElement<Sum = V::Scalar> + Lanes<V>, V: Narrow>(
    sums: *const V::Scalar,
    plus: Option<&Addend<T>>,
    to: *mut T,
    len: usize,
) {
    let whole = len - len % V::LANES;
    // SAFETY: indices stay below `len`; what is left over goes through arrays of a vector's size,
    // and the same instructions.
    unsafe {
        let Some(plus) = plus else {
            for i in (0..whole).step_by(V::LANES) {
                <T as Lanes<V>>::store(V::load(sums.add(i)), to.add(i));
            }
            for i in whole..len {
                *to.add(i) = T::round(*sums.add(i));
            }
            return;
        };
        for i in (0..whole).step_by(V::LANES) {
            let sum = added(plus, i, V::LANES, V::load(sums.add(i)));
            <T as Lanes<V>>::store(sum, to.add(i));
        }
        if whole < len {
            let mut rest = [V::Scalar::ZERO; 8];
            for i in whole..len {
                rest[i - whole] = *sums.add(i);
            }
            added(plus, whole, len - whole, V::load(rest.as_ptr())).store(rest.as_mut_ptr());
            for i in whole..len {
                *to.add(i) = T::round(rest[i - whole]);
            }
        }
    }
}

/// `sum` scaled and with the first `count` elements of the addend's row from `first` on added.
#[inline(always)]
unsafe fn added<T: GemmElement<Sum = V::Scalar> + Lanes<V>, V: Narrow>(
    plus: &Addend<T>,
    first: usize,
    count: usize,
    sum: V,
) -> V {
    // SAFETY: passed on to the caller.
    unsafe {
        let mut term = V::splat(V::Scalar::ZERO);
        if plus.beta.is_nonzero() {
            let c = plus.c.at(0, first);
            let c = if c.columns == 1 && count == V::LANES {
                <T as Lanes<V>>::load(c.first)
            } else {
                let mut elements = [V::Scalar::ZERO; 8];
                for (j, element) in elements.iter_mut().enumerate().take(count) {
                    *element = c.read(0, j).widen();
                }
                V::load(elements.as_ptr())
            };
            term = c.mul(V::splat(plus.beta));
        }
        sum.mul_add(V::splat(plus.alpha), term)
    }
}
