//! Where windows lie in memory: in the input itself if none of them looks beyond it; else in patches, which are
//! parts of the input with zeros around them and between their elements; or gathered one by one, if
//! windows are so far apart, or so wide, that this is less.

use std::cell::Cell;

use super::super::geometry::{Geometry, each_axis};
use super::weight::Windows;
use super::{Element, Float};
use crate::cpu::kept::{self, Slot};
use crate::cpu::threads;

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Input,
    Patches,
    Gathered,
}

/// Places that windows move over, row-major.
#[derive(Clone, Copy)]
pub(super) struct Area {
    place: Place,
    /// Places along each axis: of the input, or of a patch.
    extent: [usize; 3],
    /// Elements from a place to the next.
    pitch: usize,
}

impl Area {
    /// For the windows of each task, with so many channels; if `stored`, all of the input's, which may then be
    /// read where they lie.
    pub(super) fn new(geometry: &Geometry, cut: &Cut, channels: usize, stored: bool) -> Area {
        if stored && geometry.within() {
            let pitch = geometry.all_channels();
            return Area { place: Place::Input, extent: geometry.input, pitch };
        }
        let patch = Area::patch(geometry, cut.part, channels);
        let gathered = cut.positions.saturating_mul(geometry.taps()).saturating_mul(channels);
        let place = if patch.size() > gathered { Place::Gathered } else { Place::Patches };
        Area { place, ..patch }
    }

    pub(super) fn is_input(&self) -> bool {
        self.place == Place::Input
    }

    /// A patch for so many windows along each axis.
    fn patch(geometry: &Geometry, windows: [usize; 3], pitch: usize) -> Area {
        let extent = each_axis(|axis| {
            let between = (windows[axis].max(1) - 1).saturating_mul(geometry.window.stride[axis]);
            between.saturating_add(geometry.reach(axis))
        });
        Area { place: Place::Patches, extent, pitch }
    }

    fn size(&self) -> usize {
        self.extent.iter().fold(self.pitch, |size, &places| size.saturating_mul(places))
    }

    fn offset(&self, [plane, line, column]: [usize; 3]) -> usize {
        // Where windows are gathered, the extents may be more than a word holds.
        let lines = plane.wrapping_mul(self.extent[1]).wrapping_add(line);
        lines.wrapping_mul(self.extent[2]).wrapping_add(column).wrapping_mul(self.pitch)
    }

    /// Where the pieces of a window that are contiguous begin, from the window's beginning, and how
    /// many elements each of them has. Together they are the window, in the order of memory.
    pub(super) fn pieces(&self, geometry: &Geometry) -> (Vec<usize>, usize) {
        let (kernel, dilation) = (geometry.kernel, geometry.window.kernel_dilation);
        let whole = kernel[2] == 1 || (dilation[2] == 1 && self.pitch == geometry.channels);
        let across = if whole { 1 } else { kernel[2] };
        let mut pieces = Vec::with_capacity(kernel[0] * kernel[1] * across);
        for plane in 0..kernel[0] {
            for line in 0..kernel[1] {
                for column in 0..across {
                    let place = [plane, line, column];
                    let by = each_axis(|axis| place[axis].wrapping_mul(dilation[axis]));
                    pieces.push(self.offset(by));
                }
            }
        }
        let places = kernel[2] / across;
        if self.place == Place::Gathered {
            // Cut in the same way, so that the order of sums is the same.
            pieces.iter_mut().enumerate().for_each(|(i, piece)| *piece = i * places * self.pitch);
        }
        (pieces, places * geometry.channels)
    }

    /// Where `count` windows from a position on begin; returns how many elements [`Area::fill`] needs.
    pub(super) fn rows(
        &self,
        geometry: &Geometry,
        position: usize,
        count: usize,
        rows: &mut Vec<usize>,
    ) -> usize {
        rows.clear();
        if self.place == Place::Gathered {
            let each = geometry.taps() * self.pitch;
            rows.extend((0..count).map(|window| window * each));
            return count * each;
        }
        let ([_, down, across], mut patches) = (geometry.window.stride, 0);
        for part in parts(geometry, position, count) {
            let first = match self.place {
                Place::Input => {
                    let (batch, start) = geometry.position(part.position);
                    let start = each_axis(|axis| start[axis].max(0) as usize);
                    batch * self.size() + self.offset(start)
                }
                _ => patches * self.size(),
            };
            for line in 0..part.lines {
                let first = first + self.offset([0, line * down, 0]);
                rows.extend((0..part.columns).map(|column| first + column * across * self.pitch));
            }
            patches += 1;
        }
        if self.is_input() { 0 } else { patches * self.size() }
    }

    /// Copies what these windows look at, from channel `channel` on.
    pub(super) fn fill<T: Element>(
        &self,
        geometry: &Geometry,
        (position, count): (usize, usize),
        x: &[T],
        channel: usize,
        to: &mut [T::Wide],
    ) {
        match self.place {
            Place::Input => {}
            Place::Patches => {
                let patches = to.chunks_exact_mut(self.size());
                for (part, to) in parts(geometry, position, count).zip(patches) {
                    self.copy(geometry, &part, x, channel, to);
                }
            }
            Place::Gathered => {
                // In the order of memory.
                let mut geometry = *geometry;
                geometry.window.flip = false;
                let windows = Windows::new(x, &geometry, self.pitch);
                let to = to.chunks_exact_mut(geometry.taps() * self.pitch);
                for (i, to) in to.enumerate().take(count) {
                    windows.gather(position + i, channel, 0, to);
                }
            }
        }
    }

    fn copy<T: Element>(
        &self,
        geometry: &Geometry,
        part: &Part,
        x: &[T],
        channel: usize,
        to: &mut [T::Wide],
    ) {
        let (batch, start) = geometry.position(part.position);
        // Lines that a part shorter than others does not look at stay as they are.
        let lines = (part.lines - 1) * geometry.window.stride[1] + geometry.reach(1);
        for plane in 0..self.extent[0] {
            for line in 0..lines {
                let to = &mut to[self.offset([plane, line, 0])..][..self.extent[2] * self.pitch];
                let place = [start[0] + plane as isize, start[1] + line as isize, start[2]];
                self.copy_line(geometry, (batch, place), x, channel, to);
            }
        }
    }

    fn copy_line<T: Element>(
        &self,
        geometry: &Geometry,
        (batch, [plane, line, column]): (usize, [isize; 3]),
        x: &[T],
        channel: usize,
        to: &mut [T::Wide],
    ) {
        let (all, step) = (geometry.all_channels(), geometry.window.input_dilation[2]);
        let Some(first) = geometry.element(batch, [plane, line, 0]) else {
            return to.fill(T::Wide::ZERO);
        };
        // Places before the input, and up to its end.
        let columns = self.extent[2] as isize;
        let before = (-column).clamp(0, columns) as usize;
        let length = ((geometry.input[2] - 1) * step + 1) as isize;
        let inside = (length - column).clamp(before as isize, columns) as usize;
        let (head, rest) = to.split_at_mut(before * self.pitch);
        let (middle, tail) = rest.split_at_mut((inside - before) * self.pitch);
        head.fill(T::Wide::ZERO);
        tail.fill(T::Wide::ZERO);
        if middle.is_empty() {
            return;
        }
        let at = (column + before as isize) as usize;
        if step == 1 && self.pitch == all {
            return T::widen_slice(&x[(first + at) * all..][..middle.len()], middle);
        }
        for (i, to) in middle.chunks_exact_mut(self.pitch).enumerate() {
            let at = at + i;
            if at.is_multiple_of(step) {
                let from = (first + at / step) * all + channel;
                T::widen_slice(&x[from..from + self.pitch], to);
            } else {
                to.fill(T::Wide::ZERO);
            }
        }
    }
}

/// Windows one after the other in the order of the output: whole lines of a plane, or a part of a line.
struct Part {
    position: usize,
    lines: usize,
    columns: usize,
}

/// `count` windows from a position on.
fn parts(geometry: &Geometry, position: usize, count: usize) -> impl Iterator<Item = Part> {
    let ([_, rows, columns], mut position, end) = (geometry.output, position, position + count);
    std::iter::from_fn(move || {
        let (column, left) = (position % columns, end - position);
        let part = if left == 0 {
            return None;
        } else if column > 0 || left < columns {
            Part { position, lines: 1, columns: left.min(columns - column) }
        } else {
            let lines = rows - position / columns % rows;
            Part { position, lines: lines.min(left / columns), columns }
        };
        position += part.lines * part.columns;
        Some(part)
    })
}

/// How the output is cut into tasks. No sum depends on it.
pub(super) struct Cut {
    /// Windows of a task.
    pub(super) positions: usize,
    /// The largest part in a task, as planes, lines and columns of windows.
    part: [usize; 3],
}

/// Tasks to aim at for each thread.
const TASKS: usize = 8;
/// Elements that the windows of a task look at: with the weights they stay in the second cache.
const ELEMENTS: usize = 1 << 17;
/// The fewest windows of a task, and what their number is a multiple of: several of the tallest tiles.
const FEWEST: usize = 56;
/// The fewest lines of windows, for each line of a window, that share a patch if they must not be short.
const LINES: usize = 2;

impl Cut {
    pub(super) fn new(geometry: &Geometry, channels: usize) -> Cut {
        let [_, rows, columns] = geometry.output;
        let lines = geometry.positions() / columns;
        let tasks = TASKS * threads::threads().max(2);
        let size = |lines: usize, columns: usize| {
            Area::patch(geometry, [1, lines, columns], channels).size()
        };
        // What a line adds, and the lines that are there in any case.
        let (first, each) = (size(1, columns), size(2, columns) - size(1, columns));
        if lines < tasks && columns > FEWEST || first > 2 * ELEMENTS {
            let one = size(1, 2) - size(1, 1);
            let most = ELEMENTS.saturating_sub(size(1, 1)) / one.max(1);
            let wanted = (lines * columns).div_ceil(tasks).min(most.max(1));
            let positions = wanted.next_multiple_of(FEWEST);
            if positions < columns {
                return Cut { positions, part: [1, 1, positions] };
            }
        }
        let fit = 1 + ELEMENTS.saturating_sub(first) / each.max(1);
        let least = (LINES * geometry.kernel[1]).saturating_sub(1).max(FEWEST.div_ceil(columns));
        let mut wanted = lines.div_ceil(tasks).min(fit).max(least).min(lines);
        if wanted > rows {
            wanted = wanted.next_multiple_of(rows);
        }
        Cut { positions: wanted * columns, part: [1, wanted.min(rows), columns] }
    }
}

thread_local! {
    static KEPT: Slot = const { Cell::new(None) };
}

/// Lends numbers of any values.
pub(super) fn lend<W: bytemuck::Pod, R>(length: usize, f: impl FnOnce(&mut [W]) -> R) -> R {
    let bytes = length * size_of::<W>();
    kept::lend_to_task(&KEPT, bytes, |lent| f(bytemuck::cast_slice_mut(&mut lent[..bytes])))
}
