//! Asking for memory before it is needed. A kernel that makes several passes over a row leaves the
//! memory idle in all but the first; fetching what comes next meanwhile keeps it busy.

use std::ops::Range;

/// Memory that will be needed soon.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    first: *const u8,
    /// Bytes of an element.
    width: usize,
}

/// Bytes of a cache line.
const LINE: usize = 64;

impl Ahead {
    /// The memory of a slice.
    #[inline(always)]
    pub(crate) fn of<T>(slice: &[T]) -> Ahead {
        Ahead { first: slice.as_ptr().cast(), width: size_of::<T>() }
    }

    /// The memory right behind a slice, where the next row lies. There may be none.
    #[inline(always)]
    pub(crate) fn behind<T>(slice: &[T]) -> Ahead {
        Ahead { first: slice.as_ptr_range().end.cast(), width: size_of::<T>() }
    }

    /// Starts to fetch the cache line of element `index` into the second-level cache.
    #[inline(always)]
    pub(crate) fn fetch(self, index: usize) {
        let address = self.first.wrapping_add(index * self.width);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction is part of every x86-64 and reads nothing that can be seen; it
        // does not fault, wherever the address points.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(address.cast());
        }
        // Elsewhere the hardware guesses well enough, and there is no stable way to ask.
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }

    /// Starts to fetch the cache lines of some elements.
    #[inline(always)]
    pub(crate) fn fetch_all(self, elements: Range<usize>) {
        for index in elements.step_by(LINE / self.width.clamp(1, LINE)) {
            self.fetch(index);
        }
    }
}
