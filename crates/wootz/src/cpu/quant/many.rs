//! Products with many rows of activations: some rows of weights at a time are unpacked into a panel, once for
//! hundreds of rows of activations, and multiplied as integers in register tiles. None is kept.

use std::cell::Cell;
use std::ops::Range;

use super::activations::X;
use super::formats::AT_ONCE;
use super::panels::lines;
use super::product::{Output, Runs};
use super::tiles::{Panel, Panels, TALLEST, Tile};
use super::vector::GROUP;
use super::{Activations, Level, Pairs, Shape, Weights};
use crate::cpu::simd::Ahead;
use crate::cpu::threads;
use crate::cpu::tile::Storage;
use crate::error::Result;

/// Bytes of a panel's codes: with what belongs to them, they stay in the cache nearest to the core.
const PANEL: usize = 16 << 10;
/// Rows of weights in a task, and the fewest tasks to cut a matrix into.
const TASK: usize = 64;
const TASKS: usize = 16;
/// Rows of activations for which a panel is packed anew.
const PART: usize = 510;

impl Weights<'_> {
    /// As [`Weights::multiply`], for many rows of activations. Sums are in another order.
    pub(crate) fn multiply_many<T: Storage<Wide = f32> + Send>(
        &self,
        op: &'static str,
        n: usize,
        x: &Activations<'_>,
        pairs: Pairs<'_>,
        to: &mut [T],
    ) -> Result<()> {
        self.check_activations(op, x)?;
        let matrices = self.rows.checked_div(n).unwrap_or(0);
        let runs = Runs::new(op, pairs, x.rows(), matrices)?;
        super::check_output(op, runs.outputs().checked_mul(n), to.len())?;
        if to.is_empty() {
            return Ok(());
        }
        let panels = &self.set.panels[(x.level() == Level::Exact) as usize];
        let job = Job { weights: self, n, x, runs, panels, output: Output::new(to) };
        let longest = (0..job.runs.count()).map(|run| job.runs.run(run).1.len()).max();
        let parts = longest.unwrap_or(0).div_ceil(PART);
        let width = match n / TASKS < TASK {
            true => panels.width,
            false => TASK.next_multiple_of(panels.width),
        };
        // Columns are inside, so that threads share activations.
        let across = n.div_ceil(width);
        threads::for_each(job.runs.count() * parts * across, |task| {
            let (run, part) = (task / across / parts, task / across % parts);
            let (matrix, rows) = job.runs.run(run);
            let first = (rows.start + part * PART).min(rows.end);
            let rows = first..(first + PART).min(rows.end);
            let columns = task % across * width;
            let columns = columns..(columns + width).min(n);
            if !rows.is_empty() {
                with_buffers(|buffers| job.task(matrix, rows, columns, buffers));
            }
        });
        Ok(())
    }
}

struct Job<'a, T> {
    weights: &'a Weights<'a>,
    /// Rows of a matrix.
    n: usize,
    x: &'a Activations<'a>,
    runs: Runs<'a>,
    panels: &'a Panels,
    output: Output<T>,
}

impl<T: Storage<Wide = f32> + Send> Job<'_, T> {
    /// Multiplies rows of a run with rows of its matrix, which are columns of the output.
    fn task(
        &self,
        matrix: usize,
        rows: Range<usize>,
        columns: Range<usize>,
        buffers: &mut Buffers,
    ) {
        let Panels { width, height, bytes, scales, .. } = *self.panels;
        let groups = self.weights.columns / GROUP;
        // Groups of a panel.
        let depth = (PANEL / (width * bytes) / AT_ONCE).max(1) * AT_ONCE;
        let numbers = depth * scales * width;
        let panel = Panel {
            codes: lines(&mut buffers.codes, depth * width * bytes / size_of::<f32>())
                .as_mut_ptr()
                .cast(),
            scales: lines(&mut buffers.scales, numbers).as_mut_ptr(),
            offsets: lines(&mut buffers.offsets, numbers).as_mut_ptr(),
        };
        let stride = columns.len().next_multiple_of(width);
        let sums = lines(&mut buffers.sums, rows.len() * stride);
        let tiles = rows.len().div_ceil(height);
        // Tiles of nearly the same height.
        let tile = |i: usize| {
            rows.start + i * rows.len() / tiles..rows.start + (i + 1) * rows.len() / tiles
        };
        for first in (0..groups).step_by(depth) {
            let count = depth.min(groups - first);
            for column in columns.clone().step_by(width) {
                let row = |i: usize| matrix * self.n + (column + i).min(self.n - 1);
                // SAFETY: the rows are there, and the panel has room for the groups.
                unsafe {
                    let rows = |i: usize| self.weights.row(row(i));
                    self.panels.pack(rows, first / AT_ONCE, count, panel);
                }
                // What comes next.
                let next = match column + width < columns.end {
                    true => (column + width, first),
                    false => (columns.start, first + depth),
                };
                for i in 0..tiles {
                    let rows_of_tile = tile(i);
                    let (top, height) = (rows_of_tile.start, rows_of_tile.len());
                    let x: [X; TALLEST] = std::array::from_fn(|r| {
                        let row = (top + r).min(rows_of_tile.end - 1);
                        let x = self.x.row(self.runs.place(row).0);
                        X {
                            codes: x.codes.wrapping_add(first * bytes),
                            sides: x.sides.wrapping_add(first / AT_ONCE),
                        }
                    });
                    let place = (top - rows.start) * stride + column - columns.start;
                    let tile = Tile {
                        panel,
                        x,
                        groups: count,
                        sums: sums[place..][..(height - 1) * stride + width].as_mut_ptr(),
                        stride,
                        add: first > 0,
                    };
                    // SAFETY: the panel was packed, the activations have the groups, and there is room for the sums.
                    unsafe { self.panels.multiply(&tile, height) };
                    let ahead = i * width / tiles..(i + 1) * width / tiles;
                    for i in ahead {
                        self.fetch(matrix * self.n + next.0 + i, next.1, depth);
                    }
                }
            }
        }
        for (row, sums) in rows.zip(sums.chunks_exact(stride)) {
            let first = self.runs.place(row).1 * self.n + columns.start;
            // SAFETY: rows of the output are those of the runs, which are checked; tasks have columns of their
            // own.
            let to = unsafe { self.output.part(first, columns.len()) };
            T::narrow_slice(&sums[..columns.len()], to);
        }
    }

    /// Asks for the memory of some groups of a row.
    fn fetch(&self, row: usize, first: usize, groups: usize) {
        let Weights { format, columns, codes, apart, .. } = *self.weights;
        let Shape { weights, bytes, .. } = format.shape();
        let ask = |array: &[u8], weights: usize, bytes: usize| {
            let at = |column: usize| (row * (columns / weights) + column / weights) * bytes;
            let end = at((first + groups) * GROUP).min(array.len());
            Ahead::of(array).fetch_all(at(first * GROUP).min(end)..end);
        };
        ask(codes, weights, bytes);
        for array in [apart.scales, apart.biases] {
            if !array.is_empty() {
                ask(array, apart.group, apart.numbers.bytes());
            }
        }
    }
}

/// What a task needs for a while, kept between tasks.
#[derive(Default)]
struct Buffers {
    codes: Vec<f32>,
    scales: Vec<f32>,
    offsets: Vec<f32>,
    sums: Vec<f32>,
}

thread_local! {
    static BUFFERS: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

fn with_buffers(f: impl FnOnce(&mut Buffers)) {
    let mut buffers = BUFFERS.take().unwrap_or_default();
    f(&mut buffers);
    BUFFERS.set(Some(buffers));
}
