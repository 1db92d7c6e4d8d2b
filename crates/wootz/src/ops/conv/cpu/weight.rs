//! The gradient of weights: windows are gathered, some at a time, into the rows of a matrix that
//! stays in the caches.

use super::super::geometry::{Geometry, each_axis};
use super::{Element, Float, NARROW};
use crate::cpu::gemm::Block;
use crate::cpu::{CpuCall, threads};
use crate::error::Result;

/// Rows of the tallest tiles.
const ROWS: usize = 6;
/// Rows of the gradient of weights in a task, and windows that are gathered for them at once.
const SLICE: usize = 16 * ROWS;
const GATHERED_ROWS: usize = 128;

pub(super) fn products_weight<T: Element>(
    call: &mut CpuCall<'_>,
    geometry: &Geometry,
) -> Result<()> {
    let windows = Windows::new(call.input::<T>(0)?, geometry, geometry.channels);
    let dy = call.input::<T>(1)?;
    let (outputs, all) = (geometry.outputs, geometry.all_outputs());
    let (depth, positions) = (geometry.depth(), geometry.positions());
    let width = outputs.next_multiple_of(NARROW);
    let slice = depth.div_ceil(depth.div_ceil(SLICE));
    let out = call.output::<T>(0)?;
    threads::chunks_mut(out, slice * all, |task, out| {
        let rows = out.len() / all;
        let mut gathered = vec![T::Wide::ZERO; GATHERED_ROWS * rows];
        let mut right = vec![T::Wide::ZERO; GATHERED_ROWS * width];
        let mut sums = vec![T::Wide::ZERO; rows * width];
        for group in 0..geometry.window.groups {
            sums.fill(T::Wide::ZERO);
            for first in (0..positions).step_by(GATHERED_ROWS) {
                let count = GATHERED_ROWS.min(positions - first);
                for i in 0..count {
                    let to = &mut gathered[i * rows..(i + 1) * rows];
                    windows.gather(first + i, group * geometry.channels, task * slice, to);
                    let from = &dy[(first + i) * all + group * outputs..][..outputs];
                    T::widen_slice(from, &mut right[i * width..][..outputs]);
                }
                let product = Block {
                    m: rows,
                    n: width,
                    k: count,
                    a: &gathered,
                    a_rows: 1,
                    a_columns: rows,
                    b: &right,
                    b_rows: width,
                };
                product.write(&mut sums, width, true);
            }
            for (row, sums) in sums.chunks_exact(width).enumerate() {
                let to = &mut out[row * all + group * outputs..][..outputs];
                T::narrow_slice(&sums[..outputs], to);
            }
        }
    });
    Ok(())
}

/// Windows of an input, as rows of a matrix.
pub(super) struct Windows<'a, T> {
    x: &'a [T],
    geometry: &'a Geometry,
    distances: Vec<[isize; 3]>,
    /// Channels that are gathered.
    channels: usize,
    /// Whether the elements of a window along the last axis are neighbours in memory.
    lines: bool,
}

impl<'a, T: Element> Windows<'a, T> {
    pub(super) fn new(x: &'a [T], geometry: &'a Geometry, channels: usize) -> Windows<'a, T> {
        let window = &geometry.window;
        let lines = !window.flip
            && channels == geometry.all_channels()
            && window.kernel_dilation[2] == 1
            && window.input_dilation[2] == 1
            && geometry.kernel[2] > 1;
        Windows { x, geometry, distances: geometry.tap_distances(), channels, lines }
    }

    /// Where the channels for an element of the kernel lie; nowhere if there is a zero.
    #[inline(always)]
    fn tap(&self, (batch, start): (usize, [isize; 3]), tap: usize) -> Option<usize> {
        let by = self.distances[tap];
        let place = each_axis(|axis| start[axis] + by[axis]);
        Some(self.geometry.element(batch, place)? * self.geometry.all_channels())
    }

    /// Part `from..` of the row of a window, of channels from `first` on.
    pub(super) fn gather(&self, position: usize, first: usize, from: usize, to: &mut [T::Wide]) {
        let channels = self.channels;
        let window = self.geometry.position(position);
        if self.lines && from == 0 && to.len() == self.geometry.taps() * channels {
            return self.gather_lines(window, to);
        }
        let (mut at, mut done) = (from, 0);
        while done < to.len() {
            let (tap, channel) = (at / channels, at % channels);
            let count = (channels - channel).min(to.len() - done);
            let place = &mut to[done..done + count];
            match self.tap(window, tap) {
                Some(before) => {
                    let first = before + first + channel;
                    T::widen_slice(&self.x[first..first + count], place);
                }
                None => place.fill(T::Wide::ZERO),
            }
            at += count;
            done += count;
        }
    }

    /// A whole row, copied by lines of a window.
    fn gather_lines(&self, (batch, start): (usize, [isize; 3]), to: &mut [T::Wide]) {
        let (channels, width) = (self.channels, self.geometry.kernel[2]);
        let length = self.geometry.input[2] as isize;
        // Places of a line that are before the input, and up to the input's end.
        let before = (-start[2]).clamp(0, width as isize) as usize;
        let inside = (length - start[2]).clamp(before as isize, width as isize) as usize;
        for (line, to) in to.chunks_exact_mut(width * channels).enumerate() {
            let by = self.distances[line * width];
            let place = [start[0] + by[0], start[1] + by[1], start[2] + before as isize];
            let first = match inside > before {
                true => self.geometry.element(batch, place),
                false => None,
            };
            let Some(first) = first else {
                to.fill(T::Wide::ZERO);
                continue;
            };
            let (head, rest) = to.split_at_mut(before * channels);
            let (middle, tail) = rest.split_at_mut((inside - before) * channels);
            head.fill(T::Wide::ZERO);
            T::widen_slice(&self.x[first * channels..][..middle.len()], middle);
            tail.fill(T::Wide::ZERO);
        }
    }
}
