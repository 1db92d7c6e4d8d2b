//! Products with many rows of activations: some rows of weights at a time are unpacked into a panel, once for
//! hundreds of rows of activations, and multiplied as integers in register tiles. None is kept.

use std::cell::Cell;
use std::ops::Range;

use super::formats::AT_ONCE;
use super::panels::lines;
use super::product::{Output, Runs};
use super::tiles::{Beside, MOST_BYTES, Panel, Panels, TALLEST, Tile};
use super::vector::GROUP;
use super::{Activations, Format, Level, Pairs, Shape, Weights};
use crate::cpu::simd::Ahead;
use crate::cpu::threads;
use crate::cpu::tile::Storage;
use crate::error::{Error, Result};

/// Bytes of a panel's codes: with what belongs to them, they stay in the cache nearest to the core.
const PANEL: usize = 16 << 10;
/// Rows of weights in a task, and the fewest tasks to cut a matrix into.
const TASK: usize = 64;
const TASKS: usize = 16;
/// Rows of activations for which a panel is packed anew: tiles of any height, and no fewer than a prompt is cut into.
const PART: usize = 516;

impl Weights<'_> {
    /// Bytes of memory that so many products with rows of activations take.
    pub(crate) fn bytes_for_many(
        format: Format,
        level: Level,
        rows: usize,
        columns: usize,
    ) -> usize {
        let panels = &format.kernels().panels[(level == Level::Exact) as usize];
        rows.saturating_mul(columns / GROUP).saturating_mul(panels.x_bytes)
    }

    /// As [`Weights::multiply`], for many rows of activations, which are laid side by side in memory that is lent. Sums
    /// are in another order.
    pub(crate) fn multiply_many<T: Storage<Wide = f32> + Send>(
        &self,
        op: &'static str,
        n: usize,
        x: &Activations<'_>,
        pairs: Pairs<'_>,
        memory: &mut [u8],
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
        let longest = (0..runs.count()).map(|run| runs.run(run).1.len()).max().unwrap_or(0);
        let parts = longest.div_ceil(PART);
        let width = match n / TASKS < TASK {
            true => panels.width,
            false => TASK.next_multiple_of(panels.width),
        };
        let groups = self.columns / GROUP;
        let wanted = runs.outputs() * groups * panels.x_bytes;
        if memory.len() < wanted || !memory.as_ptr().cast::<Beside>().is_aligned() {
            let (expected, got) = (format!("{wanted} aligned bytes"), memory.len());
            return Err(Error::argument(op, "workspace", expected, format!("{got} bytes")));
        }
        let (laid, output) = (Laid(memory.as_mut_ptr()), Output::new(to));
        let job = Job { weights: self, n, x, runs, panels, laid, groups, output };
        let part = |part: usize| {
            let (matrix, rows) = job.runs.run(part / parts);
            let first = (rows.start + part % parts * PART).min(rows.end);
            (matrix, first..(first + PART).min(rows.end))
        };
        let tiles = longest.min(PART).div_ceil(panels.height);
        threads::for_each(job.runs.count() * parts * tiles, |task| {
            let cut = Cut::new(part(task / tiles).1, panels.height);
            if task % tiles < cut.tiles {
                job.lay(cut.tile(task % tiles));
            }
        });
        // Columns are inside, so that threads share activations.
        let across = n.div_ceil(width);
        threads::for_each(job.runs.count() * parts * across, |task| {
            let (matrix, rows) = part(task / across);
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
    laid: Laid,
    /// Groups of a row.
    groups: usize,
    output: Output<T>,
}

/// Rows of activations in tiles of nearly the same height.
struct Cut {
    first: usize,
    tiles: usize,
    height: usize,
    /// How many of the tiles, the first ones, are higher by one.
    higher: usize,
}

impl Cut {
    fn new(rows: Range<usize>, highest: usize) -> Cut {
        let tiles = rows.len().div_ceil(highest);
        let height = rows.len().checked_div(tiles).unwrap_or(0);
        Cut { first: rows.start, tiles, height, higher: rows.len() - height * tiles }
    }

    /// The rows of a tile.
    fn tile(&self, i: usize) -> Range<usize> {
        let first = self.first + i * self.height + i.min(self.higher);
        first..first + self.height + (i < self.higher) as usize
    }
}

/// Where rows of activations are laid side by side, tile by tile.
struct Laid(*mut u8);

// SAFETY: a tile is written by one task, and read when all are written.
unsafe impl Sync for Laid {}

impl<T: Storage<Wide = f32> + Send> Job<'_, T> {
    /// Where a tile is laid.
    fn place(&self, rows: &Range<usize>) -> *mut u8 {
        self.laid.0.wrapping_add(rows.start * self.groups * self.panels.x_bytes)
    }

    /// Lays the rows of a tile side by side.
    fn lay(&self, rows: Range<usize>) {
        let row = |i: usize| self.x.row(self.runs.place((rows.start + i).min(rows.end - 1)).0);
        let place = self.place(&rows);
        // SAFETY: the rows are there, and there is room for the rows of all runs.
        unsafe { self.panels.lay(&std::array::from_fn(row), rows.len(), self.groups, place) }
    }

    /// Multiplies rows of a run with rows of its matrix, which are columns of the output.
    fn task(
        &self,
        matrix: usize,
        rows: Range<usize>,
        columns: Range<usize>,
        buffers: &mut Buffers,
    ) {
        let Panels { width, bytes, x_bytes, scales, .. } = *self.panels;
        let groups = self.groups;
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
        let cut = Cut::new(rows.clone(), self.panels.height);
        for first in (0..groups).step_by(depth) {
            let count = depth.min(groups - first);
            let last = first + count == groups;
            for column in columns.clone().step_by(width) {
                let row = |i: usize| matrix * self.n + (column + i).min(self.n - 1);
                // SAFETY: the rows are there, and the panel has room for the groups.
                unsafe {
                    let rows = |i: usize| self.weights.row(row(i));
                    self.panels.pack(rows, first / AT_ONCE, count, panel);
                }
                // What comes next.
                let (next, ahead) = match column + width < columns.end {
                    true => (column + width, Next::new(self.weights, first, depth)),
                    false => (columns.start, Next::new(self.weights, first + depth, depth)),
                };
                let mut fetched = 0;
                for i in 0..cut.tiles {
                    let of_tile = cut.tile(i);
                    let (top, height) = (of_tile.start, of_tile.len());
                    let place = (top - rows.start) * stride + column - columns.start;
                    let sums = &mut sums[place..][..(height - 1) * stride + width];
                    let tile = Tile {
                        panel,
                        x: self.place(&of_tile).wrapping_add(first * height * x_bytes),
                        groups: count,
                        sums: sums.as_mut_ptr(),
                        stride,
                        add: first > 0,
                    };
                    // SAFETY: the panel was packed, the rows were laid, and there is room for the sums.
                    unsafe { self.panels.multiply(&tile, height) };
                    for (row, sums) in of_tile.clone().zip(sums.chunks_mut(stride)) {
                        self.add_outliers(
                            row,
                            first / AT_ONCE,
                            &Tile { sums: sums.as_mut_ptr(), ..tile },
                        );
                    }
                    while fetched * cut.tiles < (i + 1) * width {
                        ahead.fetch(matrix * self.n + next + fetched);
                        fetched += 1;
                    }
                    if !last {
                        continue;
                    }
                    // At once, while they are near.
                    let width = width.min(columns.end - column);
                    for (row, sums) in of_tile.zip(sums.chunks(stride)) {
                        let first = self.runs.place(row).1 * self.n + column;
                        // SAFETY: rows of the output are those of the runs, which are checked; tasks have columns
                        // of their own.
                        let to = unsafe { self.output.part(first, width) };
                        T::narrow_slice(&sums[..width], to);
                    }
                }
            }
        }
    }
}

impl<T> Job<'_, T> {
    /// Adds the products of a row's outliers with what was packed from a block of eight groups on.
    fn add_outliers(&self, row: usize, block: usize, tile: &Tile) {
        let outliers = self.x.outliers(self.runs.place(row).0);
        if outliers.is_empty() {
            return;
        }
        let blocks = block..block + tile.groups.div_ceil(AT_ONCE);
        for (number, extra) in self.x.extras(Activations::within(outliers, blocks)) {
            let mut laid = [0u32; AT_ONCE * MOST_BYTES / size_of::<u32>()];
            // SAFETY: there is room for eight groups, and those that have outliers were packed.
            unsafe {
                self.panels.lay(&[extra.x(); TALLEST], 1, AT_ONCE, laid.as_mut_ptr().cast());
                for group in extra.groups() {
                    let x = laid.as_ptr().cast::<u8>().add(group * self.panels.x_bytes);
                    let panel = self.panels.from(tile.panel, (number - block) * AT_ONCE + group);
                    self.panels.multiply(&Tile { panel, x, groups: 1, add: true, ..*tile }, 1);
                }
            }
        }
    }
}

/// Some groups of rows that are wanted next: of each array their first byte in a row, how many they are, and the bytes
/// from row to row.
struct Next<'a> {
    arrays: [(&'a [u8], usize, usize, usize); 3],
}

impl<'a> Next<'a> {
    fn new(weights: &Weights<'a>, first: usize, groups: usize) -> Next<'a> {
        let Weights { format, codes, apart, pitch, pitch_apart, .. } = *weights;
        let Shape { weights, bytes, .. } = format.shape();
        let array = |array: &'a [u8], pitch: usize, weights: usize, bytes: usize| {
            let at = |group: usize| (group * GROUP / weights * bytes).min(pitch);
            (array, at(first), at(first + groups) - at(first), pitch)
        };
        let apart_from = |from| array(from, pitch_apart, apart.group, apart.numbers.bytes());
        let codes = array(codes, pitch, weights, bytes);
        Next { arrays: [codes, apart_from(apart.scales), apart_from(apart.biases)] }
    }

    /// Asks for the memory of a row.
    fn fetch(&self, row: usize) {
        for (array, first, bytes, pitch) in self.arrays {
            let end = (row * pitch + first + bytes).min(array.len());
            Ahead::of(array).fetch_all((row * pitch + first).min(end)..end);
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
