//! Products whose right matrix stays in the nearest caches as it is: nothing is packed, because
//! packing would cost a good part of the product. The sums are those of the packed path, bit for
//! bit.

use super::finish;
use super::microkernel::{GemmElement, Kernels, Loose, ROWS, WIDEST};
use super::pack::Panel;
use super::{Job, PRODUCT, ROW_BLOCK, Run, Shape, Shared, add_tile, k_block, with_buffer};

/// Elements of the largest right matrix that is not packed.
const LARGEST: usize = 1 << 13;

/// Whether a product is small: so is the right matrix, `k` is one block, and nothing needs
/// widening. [`small`] also wants the right matrix's rows to be contiguous.
pub(super) fn fits<T: GemmElement>(kernels: &Kernels<T>, n: usize, k: usize) -> bool {
    T::DIRECT && k <= k_block(kernels) && k * n <= LARGEST
}

/// # Safety
/// As for [`Job::multiply`], [`fits`] holds, and the right matrix's rows are contiguous.
pub(super) unsafe fn small<T: GemmElement>(run: Run, job: &Job<T>) {
    let Job { kernels, shape: Shape { m, n, k }, a, b, plus, c, .. } = *job;
    let rest = n % kernels.columns;
    let pitch = kernels.padded(rest);
    // Columns that fill neither a panel nor half of one are packed, to be read in whole vectors.
    let ragged = rest > 0 && rest < pitch;
    with_buffer(&PRODUCT, if ragged { k * pitch } else { 0 }, |packed: *mut T::Sum| {
        if ragged {
            let first = n - rest;
            let panel = Panel {
                from: b.at(0, first).first,
                across: 1,
                along: b.rows,
                k,
                width: rest,
                pitch,
                lines: rest,
                count: 1,
            };
            // SAFETY: the panel lies inside `b`, and the buffer has room for it.
            unsafe { (kernels.pack)(&panel, packed) };
        }
        let (packed, c) = (Shared(packed), Shared(c.cast::<T::Sum>()));
        run.for_each(m.div_ceil(ROW_BLOCK), |task| {
            let (top, bottom) = (task * ROW_BLOCK, m.min((task + 1) * ROW_BLOCK));
            for column in (0..n).step_by(kernels.columns) {
                let width = kernels.columns.min(n - column);
                let pitch = kernels.padded(width);
                let (b, b_rows) = if width == pitch {
                    (b.at(0, column).first.cast::<T::Sum>(), b.rows)
                } else {
                    (packed.get().cast_const(), pitch as isize)
                };
                for row in (top..bottom).step_by(ROWS) {
                    let rows = ROWS.min(bottom - row);
                    let tile = kernels.loose_tiles[rows - 1][Kernels::<T>::width(pitch)];
                    let from = a.at(row, 0).first.cast::<T::Sum>();
                    let (a_rows, a_columns) = (a.rows, a.columns);
                    let panels = Loose { a: from, a_rows, a_columns, b, b_rows, next: 0 };
                    // SAFETY: the tile lies inside the product, or goes through `spare`; elements
                    // are what they are summed in, so the casts change nothing; tasks write
                    // different rows.
                    unsafe {
                        let to = c.get().add(row * n + column);
                        if width == pitch {
                            tile(k, &panels, to, n, false);
                        } else {
                            let mut spare = [T::widen(T::zero()); ROWS * WIDEST];
                            tile(k, &panels, spare.as_mut_ptr(), pitch, false);
                            add_tile(&spare, pitch, rows, width, to, n, false);
                        }
                    }
                }
            }
            // SAFETY: the rows are this task's, and their sums are complete.
            unsafe {
                let (plus, sums) = (plus.map(|plus| plus.at(top, 0)), c.get().add(top * n));
                finish::rows(kernels, plus, (sums, n), (sums.cast(), n), bottom - top, n);
            }
        });
    });
}
