//! Copies a panel of a matrix (a few rows of the left, a few columns of the right) into the order
//! in which the tiles read it, widening narrow elements on the way.

use super::microkernel::GemmElement;
use super::simd::{Lanes, Narrow, Scalar};

/// What to copy, from any address: panels of `width` lines of `k` elements. The element of line `w` at
/// step `p` lies at `w * across + p * along` from `from` and goes to `p * pitch + w`.
pub(crate) struct Panel<T> {
    pub(super) from: *const T,
    /// From one line to the next.
    pub(super) across: isize,
    /// From one step of `k` to the next.
    pub(super) along: isize,
    pub(super) k: usize,
    pub(super) width: usize,
    /// At least `width`; what lies between becomes zero.
    pub(super) pitch: usize,
    /// How many lines from `from` on the matrix has. At least `width * count`.
    pub(super) lines: usize,
    /// How many panels side by side are packed, one after the other.
    pub(super) count: usize,
}

/// Steps that are asked for before they are copied.
const AHEAD: usize = 8;
/// Elements of a line that are asked for before they are copied.
const AHEAD_ALONG: isize = 64;

/// Writes exactly `k * pitch` numbers a panel.
///
/// # Safety
/// The processor has `V`'s instruction set; the panel and the other lines it counts lie inside
/// their buffer; `to` is writable for `count * k * pitch` numbers.
#[inline(always)]
pub(super) unsafe fn panel<T: GemmElement<Sum = V::Scalar> + Lanes<V>, V: Narrow>(
    panel: &Panel<T>,
    to: *mut V::Scalar,
) {
    let groups = panel.pitch.div_ceil(V::LANES);
    // Vectors may reach past the pitch into the next step's place, which is written later; the
    // last steps, which have no next, are left to the plain loop.
    let reach = groups * V::LANES - panel.pitch;
    let safe_steps = panel.k - reach.div_ceil(panel.pitch).min(panel.k);
    let vectors_fit = |panel: &Panel<T>| {
        panel.width == panel.pitch
            && panel.lines >= (panel.count - 1) * panel.width + groups * V::LANES
    };
    // SAFETY: passed on to the caller; each helper gets no more steps than it may write.
    unsafe {
        if panel.along != 1 && panel.across == 1 && vectors_fit(panel) {
            straight::<T, V>(panel, to, groups, safe_steps);
            for i in 0..panel.count {
                plain(panel, i, to, safe_steps);
            }
            return;
        }
        for i in 0..panel.count {
            let mut done = 0;
            if panel.along == 1 {
                done = turned::<T, V>(panel, i, to, groups, safe_steps);
            }
            plain(panel, i, to, done);
        }
    }
}

impl<T: Copy> Panel<T> {
    /// Where panel `i` begins, and where it goes.
    #[inline(always)]
    fn nth<S>(&self, i: usize, to: *mut S) -> (*const T, *mut S) {
        let from = self.from.wrapping_offset((i * self.width) as isize * self.across);
        (from, to.wrapping_add(i * self.k * self.pitch))
    }
}

/// Lines are contiguous: reads squares and transposes them.
#[inline(always)]
unsafe fn turned<T: GemmElement<Sum = V::Scalar> + Lanes<V>, V: Narrow>(
    panel: &Panel<T>,
    index: usize,
    to: *mut V::Scalar,
    groups: usize,
    steps: usize,
) -> usize {
    let (from, to) = panel.nth(index, to);
    // Copied, because the compiler must take it that the stores could change the panel.
    let Panel { across, width, pitch, .. } = *panel;
    let whole = steps - steps % V::LANES;
    // A cache line of every line of a group at a time: lines that lie a power of two apart share
    // few places of the nearest cache, which the other groups' lines take.
    let at_once = (64 / size_of::<T>()).max(V::LANES);
    for block in (0..whole).step_by(at_once) {
        // Backwards, because a group may reach into the first group of the next step.
        for group in (0..groups).rev() {
            let first = group * V::LANES;
            for p in (block..whole.min(block + at_once)).step_by(V::LANES) {
                // SAFETY: lines below `width` and steps below `k` are readable; `panel` says why
                // the stores may reach past the pitch.
                unsafe {
                    let mut square = [V::splat(V::Scalar::ZERO); 8];
                    for (i, line) in square.iter_mut().enumerate().take(V::LANES) {
                        if first + i < width {
                            let at = (first + i) as isize * across + p as isize;
                            // So many lines at once are more than processors foresee.
                            V::prefetch(from.wrapping_offset(at + AHEAD_ALONG).cast());
                            *line = <T as Lanes<V>>::load(from.offset(at));
                        }
                    }
                    V::transpose(&mut square);
                    for (i, step) in square.iter().enumerate().take(V::LANES) {
                        step.store(to.add((p + i) * pitch + first));
                    }
                }
            }
        }
    }
    whole
}

/// Steps are contiguous: copies them, all panels at each step because they lie side by side.
#[inline(always)]
unsafe fn straight<T: GemmElement<Sum = V::Scalar> + Lanes<V>, V: Narrow>(
    panel: &Panel<T>,
    to: *mut V::Scalar,
    groups: usize,
    steps: usize,
) {
    // Copied, because the compiler must take it that the stores could change the panel.
    let Panel { from, along, k, width, pitch, count, .. } = *panel;
    for p in 0..steps {
        let mut from = from.wrapping_offset(p as isize * along);
        let mut to = to.wrapping_add(p * pitch);
        for _ in 0..count {
            // SAFETY: a prefetch may name any address. Rows lie pages apart, which no processor
            // guesses.
            unsafe { V::prefetch(from.wrapping_offset(AHEAD as isize * along).cast()) };
            for first in (0..groups).map(|group| group * V::LANES) {
                // SAFETY: the matrix has `groups * LANES` lines from the last panel on, and `panel`
                // says why the stores may reach past the pitch.
                unsafe { <T as Lanes<V>>::load(from.add(first)).store(to.add(first)) };
            }
            from = from.wrapping_add(width);
            to = to.wrapping_add(k * pitch);
        }
    }
}

/// Any strides, from step `start` on.
#[inline(always)]
unsafe fn plain<T: GemmElement>(panel: &Panel<T>, index: usize, to: *mut T::Sum, start: usize) {
    let (from, to) = panel.nth(index, to);
    let Panel { across, along, k, width, pitch, .. } = *panel;
    for p in start..k {
        for w in 0..pitch {
            let x = if w < width {
                let at = w as isize * across + p as isize * along;
                // SAFETY: lines below `width` and steps below `k` are readable.
                unsafe { from.offset(at).read_unaligned() }.widen()
            } else {
                T::Sum::ZERO
            };
            // SAFETY: `p` is below `k` and `w` below `pitch`.
            unsafe { *to.add(p * pitch + w) = x };
        }
    }
}
