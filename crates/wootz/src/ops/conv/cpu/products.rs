//! Windows times weights.

use super::super::geometry::Geometry;
use super::area::{Area, Cut, lend};
use super::{Element, NARROW, Wide};
use crate::cpu::gemm::Strip;
use crate::cpu::tile::is_wide;
use crate::cpu::{CpuCall, threads};
use crate::error::Result;

/// Columns of packed weights that are multiplied at once: a whole number of the widest tiles.
const PANEL: usize = 32;
/// Products of a sum that are taken at once: with a panel's columns they stay in a near cache.
const DEPTH: usize = 576;
/// Elements of a row of weights that are packed at once.
const PIECE: usize = 16;

pub(super) fn products<T: Element>(call: &mut CpuCall<'_>, geometry: &Geometry) -> Result<()> {
    let x = call.input::<T>(0)?;
    let packed = Packed::new(call.input::<T>(1)?, geometry);
    // Elements that are stored as they are computed can be multiplied where they lie.
    let wide = is_wide(call.meta(0).dtype);
    let stored: Option<&[T::Wide]> = if wide { bytemuck::try_cast_slice(x).ok() } else { None };
    let (outputs, all, groups) = (geometry.outputs, geometry.all_outputs(), geometry.window.groups);
    let (cut, pitch) = (Cut::new(geometry, geometry.channels), packed.pitch);
    let area = Area::new(geometry, &cut, geometry.channels, stored.is_some());
    let slices = Slices::new(geometry, &area);
    // Sums can live in the output.
    let dense = wide && groups == 1 && pitch == all;
    threads::chunks_mut(call.output::<T>(0)?, cut.positions * all, |task, out| {
        let mut rows = Vec::with_capacity(cut.positions);
        let (first, count) = (task * cut.positions, out.len() / all);
        let copied = area.rows(geometry, first, count, &mut rows);
        let kept = if dense { 0 } else { count * pitch };
        lend(copied + kept, |lent: &mut [T::Wide]| {
            let (copied, sums) = lent.split_at_mut(copied);
            for group in 0..groups {
                let channel = group * geometry.channels;
                area.fill(geometry, (first, count), x, channel, copied);
                let a = match stored.filter(|_| area.is_input()) {
                    Some(x) => &x[channel..],
                    None => &*copied,
                };
                if dense && let Ok(out) = bytemuck::try_cast_slice_mut(out) {
                    slices.multiply(a, &rows, &packed, group, out);
                    continue;
                }
                slices.multiply(a, &rows, &packed, group, sums);
                for (out, sums) in out.chunks_exact_mut(all).zip(sums.chunks_exact(pitch)) {
                    T::narrow_slice(&sums[..outputs], &mut out[group * outputs..][..outputs]);
                }
            }
        });
    });
    Ok(())
}

/// Weights in panels of columns, one group after the other: element `(k, column)` of a panel
/// lies at `k * width + column`, where only the last panel of a group may be narrower than others. Products of a
/// window are in the order of memory, whether the window is flipped or not.
struct Packed<W> {
    data: Vec<W>,
    /// Columns of all panels of a group, and so from a row of sums to the next.
    pitch: usize,
    depth: usize,
}

impl<W: Wide> Packed<W> {
    fn new<T: Element<Wide = W>>(weight: &[T], geometry: &Geometry) -> Packed<W> {
        let (depth, outputs) = (geometry.depth(), geometry.outputs);
        let pitch = outputs.next_multiple_of(NARROW);
        // Runs of a row that keep their order.
        let run = if geometry.window.flip { geometry.channels } else { depth };
        let mut data = vec![W::ZERO; geometry.window.groups * depth * pitch];
        let panels = pitch.div_ceil(PANEL);
        let mut parts: Vec<&mut [W]> = Vec::with_capacity(geometry.window.groups * panels);
        for group in data.chunks_exact_mut(depth * pitch) {
            parts.extend(group.chunks_mut(depth * PANEL));
        }
        threads::chunks_mut(&mut parts, 1, |number, to| {
            let (group, first) = (number / panels, number % panels * PANEL);
            for to in to {
                let width = to.len() / depth;
                // A few elements of every column at a time, so that what is written stays in a cache.
                let mut piece = [W::ZERO; PIECE];
                for (i, start) in (0..depth).step_by(run).enumerate() {
                    let place = if geometry.window.flip { geometry.taps() - 1 - i } else { i };
                    for at in (0..run).step_by(PIECE) {
                        let count = PIECE.min(run - at);
                        let lines = &mut to[(place * run + at) * width..][..count * width];
                        for column in 0..width.min(outputs - first) {
                            let row = (group * outputs + first + column) * depth + start + at;
                            T::widen_slice(&weight[row..row + count], &mut piece);
                            let lines = lines.chunks_exact_mut(width);
                            for (to, &weight) in lines.zip(&piece[..count]) {
                                to[column] = weight;
                            }
                        }
                    }
                }
            }
        });
        Packed { data, pitch, depth }
    }

    /// The panel that begins at a column, and its width.
    fn panel(&self, group: usize, column: usize) -> (&[W], usize) {
        let width = PANEL.min(self.pitch - column);
        let first = (group * self.pitch + column) * self.depth;
        (&self.data[first..][..self.depth * width], width)
    }
}

/// How the sum of a window is cut, which depends on shapes alone.
struct Slices {
    pieces: Vec<usize>,
    /// Elements of a piece.
    along: usize,
    /// Pieces of a slice, and how much of each: one of them is whole.
    at_once: (usize, usize),
}

impl Slices {
    fn new(geometry: &Geometry, area: &Area) -> Slices {
        let (pieces, along) = area.pieces(geometry);
        let even = |total: usize, most: usize| total.div_ceil(total.div_ceil(most));
        let at_once = match DEPTH / along.max(1) {
            0 => (1, even(along, DEPTH)),
            some => (even(pieces.len(), some), along),
        };
        Slices { pieces, along, at_once }
    }

    /// The products of windows with the weights of a group.
    fn multiply<W: Wide>(
        &self,
        a: &[W],
        rows: &[usize],
        packed: &Packed<W>,
        group: usize,
        sums: &mut [W],
    ) {
        let (some, part) = self.at_once;
        for (number, pieces) in self.pieces.chunks(some).enumerate() {
            for start in (0..self.along).step_by(part) {
                let k = number * some * self.along + start;
                for column in (0..packed.pitch).step_by(PANEL) {
                    let (panel, n) = packed.panel(group, column);
                    let along = part.min(self.along - start);
                    let strip =
                        Strip { a: &a[start..], rows, pieces, along, b: &panel[k * n..], n };
                    strip.write(&mut sums[column..], packed.pitch, k > 0);
                }
            }
        }
    }
}
