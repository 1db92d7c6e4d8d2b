//! Products with many rows of activations: weights are decoded to floats, a panel of a few rows at a time, and
//! multiplied in register tiles. A panel is decoded once for hundreds of rows of activations, and none is kept.

use std::cell::Cell;
use std::ops::Range;
use std::sync::OnceLock;

use super::Pairs;
use super::product::{Output, Runs};
use super::vector::{Portable, Simd};
use crate::cpu::gemm::Block;
use crate::cpu::threads;
use crate::cpu::tile::Storage;
use crate::error::{Error, Result};

/// A stack of matrices of `n` rows each, one after the other, whose weights are decoded when they are needed.
pub(crate) struct Floats<'a> {
    pub(crate) matrices: usize,
    pub(crate) n: usize,
    pub(crate) columns: usize,
    /// Decodes weights of a row of the stack, from a column on that is a multiple of [`DEPTH`].
    pub(crate) decode: &'a (dyn Fn(usize, usize, &mut [f32]) -> Result<()> + Sync),
}

/// Columns of weights that are decoded at a time: whole blocks of every format.
pub(crate) const DEPTH: usize = 256;
/// The most rows of weights in a panel, which has as many as the widest tile has columns.
const PANEL: usize = 32;
/// Rows of weights in a task: what is packed of the activations is read from afar once for so many.
const TASK: usize = 64;
/// Rows of activations in a tile, and for which a panel is decoded anew: no fewer than a prompt is cut into.
const TILE: usize = 6;
const PART: usize = 86 * TILE;

impl Floats<'_> {
    /// Bytes of memory for so many products of rows of `columns` activations.
    pub(crate) fn bytes(rows: usize, columns: usize) -> usize {
        rows.saturating_mul(columns).saturating_mul(size_of::<f32>())
    }

    /// `x · weightsᵀ`: as [`Weights::multiply`](super::Weights::multiply).
    pub(crate) fn multiply<T: Storage<Wide = f32> + Send + Sync>(
        &self,
        op: &'static str,
        x: &[T],
        pairs: Pairs<'_>,
        memory: &mut [u8],
        to: &mut [T],
    ) -> Result<()> {
        let rows = x.len().checked_div(self.columns).unwrap_or(0);
        let runs = Runs::new(op, pairs, rows, self.matrices)?;
        let rows = runs.outputs();
        super::check_output(op, rows.checked_mul(self.n), to.len())?;
        if to.is_empty() {
            return Ok(());
        }
        let wanted = Floats::bytes(rows, self.columns);
        let (got, memory) = (memory.len(), memory.get_mut(..wanted).unwrap_or_default());
        let packed = match bytemuck::try_cast_slice_mut::<u8, f32>(memory) {
            Ok(packed) if size_of_val(packed) == wanted => packed,
            _ => {
                let expected = format!("{wanted} bytes for numbers");
                return Err(Error::argument(op, "workspace", expected, format!("{got} bytes")));
            }
        };
        let job = Job { floats: self, runs, output: Output::new(to), failed: OnceLock::new() };
        job.pack(x, packed);
        let across = self.n.div_ceil(TASK);
        // Columns are inside, so that threads share what was packed.
        let longest = (0..job.runs.count()).map(|run| job.runs.run(run).1.len()).max();
        let parts = longest.unwrap_or(0).div_ceil(PART);
        threads::for_each(job.runs.count() * parts * across, |task| {
            let (run, part) = (task / across / parts, task / across % parts);
            let (matrix, rows) = job.runs.run(run);
            let first = (rows.start + part * PART).min(rows.end);
            let rows = first..(first + PART).min(rows.end);
            let columns = task % across * TASK;
            let columns = columns..(columns + TASK).min(self.n);
            if !rows.is_empty() {
                let done = with_buffers(|buffers| job.task(matrix, rows, columns, packed, buffers));
                if let Err(error) = done {
                    // The first is enough.
                    _ = job.failed.set(error);
                }
            }
        });
        job.failed.into_inner().map_or(Ok(()), Err)
    }
}

struct Job<'a, T> {
    floats: &'a Floats<'a>,
    runs: Runs<'a>,
    output: Output<T>,
    /// What went wrong in a task.
    failed: OnceLock<Error>,
}

impl<T: Storage<Wide = f32> + Send + Sync> Job<'_, T> {
    /// Lays rows of activations, in the order of the runs, side by side in tiles: of each tile the first numbers, the
    /// second, …
    fn pack(&self, x: &[T], packed: &mut [f32]) {
        let k = self.floats.columns;
        if let Runs::Each { matrices: 1, .. } = self.runs {
            // One run: tiles are chunks of the same length.
            return threads::chunks_mut(packed, TILE * k, |tile, packed| {
                self.pack_tile(x, tile * TILE, packed);
            });
        }
        for run in 0..self.runs.count() {
            let rows = self.runs.run(run).1;
            let first = rows.start;
            for (tile, packed) in packed[first * k..rows.end * k].chunks_mut(TILE * k).enumerate() {
                self.pack_tile(x, first + tile * TILE, packed);
            }
        }
    }

    fn pack_tile(&self, x: &[T], first: usize, packed: &mut [f32]) {
        let k = self.floats.columns;
        let height = packed.len() / k;
        let mut wide = [0f32; DEPTH];
        for row in 0..height {
            let from = &x[self.runs.place(first + row).0 * k..][..k];
            let steps = packed.chunks_mut(DEPTH * height);
            for (from, steps) in from.chunks(DEPTH).zip(steps) {
                T::widen_slice(from, &mut wide[..from.len()]);
                for (step, &x) in steps.chunks_exact_mut(height).zip(&wide) {
                    step[row] = x;
                }
            }
        }
    }

    /// Multiplies rows of a run with rows of its matrix, which are columns of the output.
    fn task(
        &self,
        matrix: usize,
        rows: Range<usize>,
        columns: Range<usize>,
        packed: &[f32],
        buffers: &mut Buffers,
    ) -> Result<()> {
        let Floats { n, columns: k, decode, .. } = *self.floats;
        let width = Block::<f32>::widest().min(PANEL);
        let decoded = lines(&mut buffers.decoded, width * DEPTH);
        let panel = lines(&mut buffers.panel, width * DEPTH);
        let sums = lines(&mut buffers.sums, rows.len() * TASK);
        for start in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - start);
            for column in columns.clone().step_by(width) {
                for (i, to) in decoded.chunks_exact_mut(DEPTH).enumerate() {
                    let row = matrix * n + (column + i).min(n - 1);
                    decode(row, start, &mut to[..depth])?;
                }
                turn(decoded, depth, panel, width);
                for top in rows.clone().step_by(TILE) {
                    let height = TILE.min(rows.end - top);
                    let tile = Block {
                        m: height,
                        n: width,
                        k: depth,
                        a: &packed[top * k + start * height..],
                        a_rows: 1,
                        a_columns: height,
                        b: &panel[..],
                        b_rows: width,
                    };
                    let place = (top - rows.start) * TASK + column - columns.start;
                    tile.write(&mut sums[place..], TASK, start > 0);
                }
            }
        }
        for (row, sums) in rows.zip(sums.chunks_exact(TASK)) {
            let first = self.runs.place(row).1 * n + columns.start;
            // SAFETY: rows of the output are those of the runs, which are checked; tasks have columns of their
            // own.
            let to = unsafe { self.output.part(first, columns.len()) };
            T::narrow_slice(&sums[..columns.len()], to);
        }
        Ok(())
    }
}

/// What a task needs for a while, kept between tasks.
#[derive(Default)]
struct Buffers {
    /// Rows of a panel.
    decoded: Vec<f32>,
    panel: Vec<f32>,
    sums: Vec<f32>,
}

thread_local! {
    static BUFFERS: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

fn with_buffers<R>(f: impl FnOnce(&mut Buffers) -> R) -> R {
    let mut buffers = BUFFERS.take().unwrap_or_default();
    let result = f(&mut buffers);
    BUFFERS.set(Some(buffers));
    result
}

/// So many numbers that begin with a cache line, which vectors then do not cross.
pub(super) fn lines(buffer: &mut Vec<f32>, count: usize) -> &mut [f32] {
    const LINE: usize = 64;
    buffer.resize(count + LINE / size_of::<f32>(), 0.0);
    let first = buffer.as_ptr().align_offset(LINE).min(LINE / size_of::<f32>());
    &mut buffer[first..first + count]
}

/// Rows of a panel of `width`, [`DEPTH`] apart, become columns of it: `depth` of each, a multiple of eight.
fn turn(rows: &[f32], depth: usize, panel: &mut [f32], width: usize) {
    let (rows, panel) = (&rows[..width * DEPTH], &mut panel[..width * DEPTH]);
    // SAFETY: the slices hold what a panel has; instruction sets are those of this processor.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if super::detected(0, super::avx2::detected) {
            return turn_avx2(rows.as_ptr(), depth.min(DEPTH), panel.as_mut_ptr(), width);
        }
        turn_as::<Portable>(rows.as_ptr(), depth.min(DEPTH), panel.as_mut_ptr(), width);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn turn_avx2(rows: *const f32, depth: usize, panel: *mut f32, width: usize) {
    // SAFETY: passed on to the caller.
    unsafe { turn_as::<super::avx2::Avx2>(rows, depth, panel, width) }
}

/// # Safety
/// The processor has `S`'s instruction set; both hold a panel.
#[inline(always)]
unsafe fn turn_as<S: Simd>(rows: *const f32, depth: usize, panel: *mut f32, width: usize) {
    for step in (0..depth / 8 * 8).step_by(8) {
        for part in (0..width).step_by(8) {
            // SAFETY: passed on to the caller.
            unsafe {
                let mut square = [S::zero(); 8];
                for (i, line) in square.iter_mut().enumerate() {
                    *line = S::load_floats(rows.add((part + i) * DEPTH + step));
                }
                for (i, line) in S::transpose(square).into_iter().enumerate() {
                    S::store_floats(line, panel.add((step + i) * width + part));
                }
            }
        }
    }
}
