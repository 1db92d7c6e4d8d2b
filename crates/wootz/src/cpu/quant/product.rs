//! Products of rows of activations with rows of quantized weights, cut into tasks for the team.

use std::ops::Range;

use smallvec::SmallVec;

use super::activations::Outlier;
use super::formats::{AT_ONCE, Row};
use super::kernel::{AT_A_TIME, Dot, MOST};
use super::vector::GROUP;
use super::{Activations, Level, Weights};
use crate::cpu::threads;
use crate::cpu::tile::Storage;
use crate::error::{Error, Result};

/// Which rows of activations are multiplied with which of the matrices that a stack of weights holds one
/// after the other.
pub(crate) enum Pairs<'a> {
    /// All with the only matrix, or as many with each as there are for it, in order.
    Each,
    /// So many rows of activations at a time with a matrix, by number.
    Chosen { rows: usize, pairs: &'a mut [Pair] },
}

/// The product of one matrix of activations with one of weights. Laid out for memory that is lent.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Pair {
    pub(crate) left: u32,
    pub(crate) right: u32,
    /// Which product it is. Set where products are sorted by what they are multiplied with.
    product: u32,
}

impl Pair {
    pub(crate) fn new(left: u32, right: u32) -> Pair {
        Pair { left, right, product: 0 }
    }
}

/// Times that a kernel is called before its results are stored.
const STRIP: usize = 16;
/// Bytes of weights in a task.
const TASK: usize = 512 << 10;
/// Bytes of weights below which a hand-off costs more than it brings.
const ALONE: usize = 16 << 10;

impl Weights<'_> {
    /// `x · weightsᵀ`: for every row of activations the dot products with all `n` rows of its matrix, one
    /// row of results after the other.
    pub(crate) fn multiply<T: Storage<Wide = f32> + Send>(
        &self,
        op: &'static str,
        n: usize,
        x: &Activations<'_>,
        pairs: Pairs<'_>,
        to: &mut [T],
    ) -> Result<()> {
        self.check_activations(op, x)?;
        let matrices = self.rows.checked_div(n).unwrap_or(0);
        let job = Job { weights: self, n, x, pairs: Runs::new(op, pairs, x.rows(), matrices)? };
        super::check_output(op, job.pairs.outputs().checked_mul(n), to.len())?;
        if to.is_empty() {
            return Ok(());
        }
        let (cut, output) = (Cut::new(n, self.pitch), Output::new(to));
        let (runs, parts) = (job.pairs.count(), cut.parts());
        let task = |task: usize| {
            // SAFETY: sizes were checked, and every task has rows of its own.
            unsafe { job.task(task / parts, cut.part(task % parts), &output) };
        };
        match runs * n * self.pitch < ALONE {
            true => (0..runs * parts).for_each(task),
            false => threads::for_each(runs * parts, task),
        }
        Ok(())
    }
}

/// `x · weightsᵀ` for each of several matrices, as [`Weights::multiply`] has it; the tasks of all are handed to the
/// team together.
pub(crate) fn multiply_each<T: Storage<Wide = f32> + Send>(
    op: &'static str,
    x: &Activations<'_>,
    wanted: &mut [(&Weights<'_>, &mut [T])],
) -> Result<()> {
    let mut parts: SmallVec<[(Job<'_>, Cut, Output<T>, usize); 4]> = SmallVec::new();
    let (mut tasks, mut bytes) = (0, 0);
    for (weights, to) in wanted.iter_mut() {
        weights.check_activations(op, x)?;
        let (n, pitch) = (weights.rows, weights.pitch);
        super::check_output(op, x.rows().checked_mul(n), to.len())?;
        if to.is_empty() {
            continue;
        }
        let pairs = Runs::Each { rows: x.rows(), matrices: 1 };
        let (cut, output) = (Cut::new(n, pitch), Output::new(to));
        (tasks, bytes) = (tasks + cut.parts(), bytes + n * pitch);
        parts.push((Job { weights, n, x, pairs }, cut, output, tasks));
    }
    let task = |task: usize| {
        let part = parts.partition_point(|(.., end)| *end <= task);
        let (job, cut, output, end) = &parts[part];
        // SAFETY: sizes were checked, and every task has rows of its own.
        unsafe { job.task(0, cut.part(task + cut.parts() - end), output) };
    };
    match bytes < ALONE {
        true => (0..tasks).for_each(task),
        false => threads::for_each(tasks, task),
    }
    Ok(())
}

/// Products that share a matrix follow each other; no two write the same row of the output.
pub(super) enum Runs<'a> {
    Each {
        rows: usize,
        matrices: usize,
    },
    /// Sorted.
    Chosen {
        rows: usize,
        pairs: &'a [Pair],
    },
}

impl<'a> Runs<'a> {
    pub(super) fn new(
        op: &'static str,
        pairs: Pairs<'a>,
        rows: usize,
        matrices: usize,
    ) -> Result<Runs<'a>> {
        match pairs {
            Pairs::Each if matrices == 0 || rows.is_multiple_of(matrices) => {
                Ok(Runs::Each { rows, matrices })
            }
            Pairs::Each => {
                let expected = format!("as many rows for each of {matrices} matrices");
                Err(Error::argument(op, "x", expected, rows))
            }
            Pairs::Chosen { rows: each, pairs } => {
                let lefts = rows.checked_div(each).unwrap_or(0);
                for (product, pair) in pairs.iter_mut().enumerate() {
                    if pair.left as usize >= lefts || pair.right as usize >= matrices {
                        let expected = format!("{lefts} matrices times {matrices}");
                        let got = format!("{} times {}", pair.left, pair.right);
                        return Err(Error::argument(op, "indices", expected, got));
                    }
                    pair.product = product as u32;
                }
                pairs.sort_unstable_by_key(|pair| (pair.right, pair.product));
                Ok(Runs::Chosen { rows: each, pairs })
            }
        }
    }

    /// Rows of the output.
    pub(super) fn outputs(&self) -> usize {
        match *self {
            Runs::Each { rows, .. } => rows,
            Runs::Chosen { rows, pairs } => rows * pairs.len(),
        }
    }

    /// Products with a matrix each. Where they are chosen, a run begins at each pair, and is empty if one before
    /// it has the same matrix.
    pub(super) fn count(&self) -> usize {
        match self {
            Runs::Each { matrices, .. } => *matrices,
            Runs::Chosen { pairs, .. } => pairs.len(),
        }
    }

    /// The matrix of a run and its rows of activations, by number within all runs.
    pub(super) fn run(&self, run: usize) -> (usize, Range<usize>) {
        match *self {
            Runs::Each { rows, matrices } => {
                let each = rows / matrices;
                (run, run * each..(run + 1) * each)
            }
            Runs::Chosen { rows, pairs } => {
                let right = pairs[run].right;
                if run > 0 && pairs[run - 1].right == right {
                    return (0, 0..0);
                }
                let count = pairs[run..].partition_point(|pair| pair.right == right);
                (right as usize, run * rows..(run + count) * rows)
            }
        }
    }

    /// Where a row of a run lies among the activations and in the output.
    pub(super) fn place(&self, row: usize) -> (usize, usize) {
        match *self {
            Runs::Each { .. } => (row, row),
            Runs::Chosen { rows, pairs } => {
                let (pair, row) = (pairs[row / rows], row % rows);
                (pair.left as usize * rows + row, pair.product as usize * rows + row)
            }
        }
    }
}

/// Rows of a matrix in parts. Those of a large matrix are long stretches of memory, and at the end shorter ones, so that
/// all threads finish together. A small one has a part for each thread: memory is slow at the start of every stretch.
struct Cut {
    n: usize,
    long: usize,
    /// How many long ones.
    longs: usize,
    short: usize,
}

impl Cut {
    fn new(n: usize, pitch: usize) -> Cut {
        let (rows, share) = (TASK / pitch.max(1), n.div_ceil(threads::threads()));
        let long = rows.min(share).next_multiple_of(MOST).max(MOST);
        if share <= rows {
            return Cut { n, long, longs: 0, short: long };
        }
        let short = (long / 4).next_multiple_of(MOST);
        Cut { n, long, longs: n * 3 / 4 / long, short }
    }

    fn parts(&self) -> usize {
        self.longs + (self.n - self.longs * self.long).div_ceil(self.short)
    }

    fn part(&self, part: usize) -> Range<usize> {
        let first = match part < self.longs {
            true => return part * self.long..(part + 1) * self.long,
            false => self.longs * self.long + (part - self.longs) * self.short,
        };
        first..(first + self.short).min(self.n)
    }
}

struct Job<'a> {
    weights: &'a Weights<'a>,
    /// Rows of a matrix.
    n: usize,
    x: &'a Activations<'a>,
    pairs: Runs<'a>,
}

impl Job<'_> {
    /// Some rows of the matrix of a run with all activations of the run.
    ///
    /// # Safety
    /// The rows are there, and nobody else writes their columns of the run's output.
    unsafe fn task<T: Storage<Wide = f32>>(&self, run: usize, rows: Range<usize>, to: &Output<T>) {
        let groups = self.weights.columns / GROUP;
        let exact = self.x.level() == Level::Exact;
        let [one, two, four] = self.weights.set.kernels.dots[exact as usize];
        let (matrix, vectors) = self.pairs.run(run);
        let mut vector = vectors.start;
        while vector < vectors.end {
            let left = vectors.end - vector;
            // Vectors past the last are the last again, and are not stored.
            let places: [_; MOST] =
                std::array::from_fn(|n| self.pairs.place((vector + n).min(vectors.end - 1)));
            let x = places.map(|(row, _)| self.x.row(row));
            let outliers = places.map(|(row, _)| self.x.outliers(row));
            let (kernel, across, down) = match left {
                1 => (one, 1, AT_A_TIME),
                2 => (two, 2, 1),
                _ => (four, MOST, 1),
            };
            // Each of the rows that are multiplied at once begins a stretch of its own, so that memory is
            // read in few long runs.
            let stretch = rows.len().div_ceil(down);
            let row = |r: usize, first: usize| first + r * stretch;
            let end = rows.start + stretch;
            for start in (rows.start..end).step_by(STRIP) {
                let strip = start..(start + STRIP).min(end);
                let mut results = [[0f32; MOST]; STRIP];
                let numbers = |first: usize| {
                    let last = self.n - 1;
                    std::array::from_fn(|r| matrix * self.n + row(r, first).min(last))
                };
                for (first, results) in strip.clone().zip(&mut results) {
                    let weights: [Row; MOST] =
                        numbers(first).map(|number: usize| self.weights.row(number));
                    // SAFETY: the rows were checked; kernels fit the processor.
                    unsafe { kernel(&weights, &x, groups, results) };
                }
                for (n, outliers) in outliers[..across].iter().enumerate() {
                    if !outliers.is_empty() {
                        let kernel = if across == 1 { one } else { two };
                        let rows = strip.clone().map(numbers).zip(&mut results);
                        let rows = rows.map(|(rows, results)| (rows, &mut results[n..n + down]));
                        // SAFETY: as above.
                        unsafe { self.add_outliers(kernel, outliers, rows.collect()) };
                    }
                }
                for (first, results) in strip.zip(&results) {
                    for r in 0..down {
                        for n in 0..across.min(left) {
                            if row(r, first) < rows.end {
                                // SAFETY: the row is there, and nobody else writes it.
                                unsafe {
                                    let place = to.0.add(places[n].1 * self.n + row(r, first));
                                    *place = T::narrow(results[r + n]);
                                }
                            }
                        }
                    }
                }
            }
            vector += across;
        }
    }

    /// Adds the products of outliers to those of some rows, by number, with the others.
    ///
    /// # Safety
    /// The rows are there, and the kernel fits the processor.
    #[cold]
    unsafe fn add_outliers(
        &self,
        kernel: Dot,
        outliers: &[Outlier],
        mut rows: SmallVec<[([usize; MOST], &mut [f32]); STRIP]>,
    ) {
        let groups = self.weights.columns / GROUP;
        for (block, extra) in self.x.extras(outliers) {
            let count = (groups - block * AT_ONCE).min(AT_ONCE);
            for (rows, results) in &mut rows {
                let weights = rows.map(|row| self.weights.row_from(row, block * AT_ONCE * GROUP));
                let mut products = [0f32; MOST];
                // SAFETY: passed on to the caller; outliers are within the rows.
                unsafe { kernel(&weights, &[extra.x(); MOST], count, &mut products) };
                results.iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
            }
        }
    }
}

/// Where results go: a row of them for every row of activations.
pub(super) struct Output<T>(*mut T);

impl<T> Output<T> {
    pub(super) fn new(to: &mut [T]) -> Output<T> {
        Output(to.as_mut_ptr())
    }

    /// # Safety
    /// The elements lie in the output, which is still borrowed, and nobody else uses them.
    #[expect(clippy::mut_from_ref, reason = "the caller guarantees that parts are disjoint")]
    pub(super) unsafe fn part(&self, first: usize, length: usize) -> &mut [T] {
        // SAFETY: passed on to the caller.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(first), length) }
    }
}

// SAFETY: tasks write different columns of different rows.
unsafe impl<T: Send> Sync for Output<T> {}
