//! Matrix multiplication on the CPU: packed panels, register tiles and the thread team.
//!
//! The left matrix is packed for as many rows as fit, unless few columns need it; then the team takes
//! blocks of columns, packs the right matrix for each, and multiplies. Where there are many rows, each
//! member of the team has its own: what another packed is far from its core. An output element sums its products in the
//! order of `k`, in blocks whose length depends on `k` alone; products with a few vectors sum in
//! an order of their own, and the shape alone says which it is. So the bits of a result depend on
//! neither the number of threads, nor the cut, nor where in memory the matrices lie.

mod block;
mod finish;
mod gemv;
mod matrix;
mod microkernel;
mod pack;
mod simd;
mod small;
mod strip;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::LocalKey;

pub(crate) use self::block::Block;
use self::finish::Addend;
pub(crate) use self::gemv::FEW;
use self::matrix::View;
pub(crate) use self::matrix::{Elements, MatrixRef};
pub(crate) use self::microkernel::GemmElement;
use self::microkernel::{Kernels, Loose, Packed, ROWS, WIDEST};
use self::pack::Panel;
use self::simd::Scalar;
pub(crate) use self::strip::Strip;
use crate::cpu::kept::{self, Slot};
use crate::cpu::threads;
use crate::error::{Error, Result};

/// The matrices of a batch, by number.
pub(crate) type Matrices<'f, 'a, T> = &'f (dyn Fn(usize) -> MatrixRef<'a, T> + Sync);

/// `batch` products of one shape: `a` of `m × k` times `b` of `k × n`.
pub(crate) struct Product<'f, 'a, T> {
    pub(crate) batch: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    /// The rows that decide about the order of sums. At least `m`: products that layouts make to
    /// be done one by one, but whose shapes make one, say how many rows that one has.
    pub(crate) rows: usize,
    pub(crate) a: Matrices<'f, 'a, T>,
    pub(crate) b: Matrices<'f, 'a, T>,
    pub(crate) plus: Option<Plus<'f, 'a, T>>,
}

/// What becomes of a product: `alpha · product + beta · c`, in what products are summed in and
/// rounded once. With a `beta` of zero `c` is not looked at.
pub(crate) struct Plus<'f, 'a, T> {
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    /// `m × n`.
    pub(crate) c: Matrices<'f, 'a, T>,
}

impl<T: GemmElement> Product<'_, '_, T> {
    /// Writes row-major matrices one after the other. With `k` zero the products are zeros. An
    /// error if a view leaves its memory or `output` has another length.
    ///
    /// The team is shared out over the batch or inside each product, as fits.
    pub(crate) fn write(&self, output: &mut [T]) -> Result<()> {
        self.write_with(T::kernels(), output)
    }

    fn write_with(&self, kernels: &'static Kernels<T>, output: &mut [T]) -> Result<()> {
        let Product { batch, m, n, k, .. } = *self;
        check_output(batch, m, n, output)?;
        if output.is_empty() {
            return Ok(());
        }
        let work = m.saturating_mul(n).saturating_mul(k).max(1);
        if batch == 1 || work >= LARGE {
            for (i, output) in output.chunks_exact_mut(m * n).enumerate() {
                let job = self.job(kernels, i, output)?;
                // SAFETY: `job` checked all views; the caller's kernels fit the processor.
                unsafe { job.multiply(Run::Team) };
            }
            return Ok(());
        }
        let per_task = SMALL.div_ceil(work).min(batch);
        let failed = AtomicBool::new(false);
        // Errors are rare and not `Copy`: a task only notes that there was one.
        threads::chunks_mut(output, per_task * m * n, |task, output| {
            for (i, output) in output.chunks_exact_mut(m * n).enumerate() {
                match self.job(kernels, task * per_task + i, output) {
                    // SAFETY: as above.
                    Ok(job) => unsafe { job.multiply(Run::Caller) },
                    Err(_) => failed.store(true, Ordering::Relaxed),
                }
            }
        });
        if !failed.into_inner() {
            return Ok(());
        }
        for i in 0..batch {
            self.job(kernels, i, &mut output[i * m * n..(i + 1) * m * n])?;
        }
        Err(Error::argument("matrix product", "a", "views that stay inside their buffer", "others"))
    }

    /// Product `i` of the batch, if its matrices lie inside their buffers.
    fn job(&self, kernels: &'static Kernels<T>, i: usize, output: &mut [T]) -> Result<Job<T>> {
        let Product { m, n, k, .. } = *self;
        let plus = match &self.plus {
            Some(plus) => Some(Addend {
                alpha: T::Sum::from_f64(plus.alpha),
                beta: T::Sum::from_f64(plus.beta),
                c: (plus.c)(i).view("c", m, n)?,
            }),
            None => None,
        };
        Ok(Job {
            kernels,
            shape: Shape { m, n, k },
            rows: self.rows.max(m),
            a: (self.a)(i).view("a", m, k)?,
            b: (self.b)(i).view("b", k, n)?,
            plus,
            c: output.as_mut_ptr(),
        })
    }
}

/// Products (multiplications) from which one matrix product alone feeds the team.
const LARGE: usize = 1 << 24;
/// Products that make a hand-off worth its cost.
const SMALL: usize = 1 << 17;

/// Rows of the left matrix that are multiplied with all panels of a task before the next: they share
/// the second cache with those panels.
const ROW_BLOCK: usize = 8 * ROWS;
/// The fewest rows that are worth packing the right matrix once more.
const SHORTEST_CUT: usize = 16 * ROWS;
/// The fewest rows of each that let every member of the team do so.
const OWN_ROWS: usize = 64 * ROWS;
/// Columns of the output for which packing the left matrix costs more than reading its rows from far apart.
const FEW_COLUMNS: usize = 1024;
/// Panels of the left matrix that a task packs.
const PACK_PANELS: usize = 8;
/// Panels of the right matrix in a task: more where there are enough of them for all.
const TASK_PANELS: [usize; 2] = [4, 8];
/// Tasks to aim at for each thread where rows must be cut as well.
const TASKS: usize = 4;
/// The packed part of the left matrix, in numbers and in rows.
const PACKED: usize = 1 << 21;
const PACKED_ROWS: usize = 340 * ROWS;
/// The longest part of `k` that is packed at once where sums need a buffer of their own.
const LONGEST_K: usize = 1 << 14;
/// Columns that sums in a buffer of their own may span.
const SUM_COLUMNS: usize = 1 << 13;

#[derive(Clone, Copy)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
}

/// Who does the work.
#[derive(Clone, Copy, PartialEq)]
enum Run {
    Caller,
    Team,
}

impl Run {
    fn if_worth(self, worth: bool) -> Self {
        if worth { self } else { Run::Caller }
    }

    fn for_each(self, tasks: usize, f: impl Fn(usize) + Sync) {
        match self {
            Run::Caller => (0..tasks).for_each(f),
            Run::Team => threads::for_each(tasks, f),
        }
    }
}

fn check_output<T>(batch: usize, m: usize, n: usize, c: &[T]) -> Result<()> {
    let wanted = batch.checked_mul(m).and_then(|bm| bm.checked_mul(n));
    if wanted == Some(c.len()) {
        return Ok(());
    }
    let wanted = wanted.map_or("more elements than can be".to_string(), |w| w.to_string());
    Err(Error::argument("matrix product", "output", format!("a length of {wanted}"), c.len()))
}

/// One product. The views are valid for the shape, and `c` is writable for `m * n` elements that
/// nobody else uses.
#[derive(Clone, Copy)]
struct Job<T: GemmElement> {
    kernels: &'static Kernels<T>,
    shape: Shape,
    /// See [`Product::rows`].
    rows: usize,
    a: View<T>,
    b: View<T>,
    plus: Option<Addend<T>>,
    c: *mut T,
}

impl<T: GemmElement> Job<T> {
    /// # Safety
    /// The processor has the kernels' instruction set, and the views are still valid.
    unsafe fn multiply(&self, run: Run) {
        let Job { kernels, shape: Shape { m, n, k }, rows, a, b, .. } = *self;
        if m == 0 || n == 0 {
            return;
        }
        let large = m.saturating_mul(n).saturating_mul(k) >= 2 * SMALL;
        // The shape alone chooses between the two orders of sums; layouts choose only among ways
        // to one order.
        let (columns_few, rows_few) = (n <= gemv::FEW, rows <= gemv::FEW);
        // SAFETY: passed on to the caller.
        unsafe {
            if k == 0 {
                self.nothing();
            } else if rows > 1 && n > 1 && small::fits(kernels, n, k) {
                if b.columns == 1 {
                    small::small(run.if_worth(large), self);
                } else {
                    self.blocked(run.if_worth(large));
                }
            } else if columns_few && (n <= rows || !rows_few) {
                let cut = gemv::cut(rows, k);
                let (matrix, x) = (a, b.transposed());
                let few = gemv::Few { outputs: m, vectors: n, k, cut, matrix, x, by_row: true };
                gemv::few(run, self, &few);
            } else if rows_few {
                let cut = gemv::cut(n, k);
                let (matrix, x) = (b.transposed(), a);
                let few = gemv::Few { outputs: n, vectors: m, k, cut, matrix, x, by_row: false };
                gemv::few(run, self, &few);
            } else {
                self.blocked(run.if_worth(large));
            }
        }
    }

    /// The product with nothing to sum.
    unsafe fn nothing(&self) {
        let Shape { m, n, .. } = self.shape;
        with_buffer(&PRODUCT, n, |zeros: *mut T::Sum| {
            // SAFETY: the buffer has a row of numbers, which all rows of the output are made of.
            unsafe {
                for j in 0..n {
                    *zeros.add(j) = T::Sum::ZERO;
                }
                finish::rows(self.kernels, self.plus, (zeros, 0), (self.c, n), m, n);
            }
        });
    }

    /// Cuts the product into parts whose packed left matrix fits, and gives each to the team.
    ///
    /// # Safety
    /// As for [`Job::multiply`].
    unsafe fn blocked(&self, run: Run) {
        let Job { kernels, shape: Shape { m, n, k }, a, b, plus, c, .. } = *self;
        // Blocks of `k` are of one length (but the last), so that no block is a sliver.
        let k_block = even(k, k_block(kernels), 1);
        // Sums that live in the output may be left and taken up again; others want `k` in one go.
        let longest = if T::DIRECT { 4 * k_block } else { LONGEST_K / k_block * k_block };
        let k_part = longest.min(k);
        let row_part = (PACKED / k_part / ROWS * ROWS).clamp(SHORTEST_CUT, PACKED_ROWS);
        let kept = !T::DIRECT && k_part < k;
        let column_part = if kept { SUM_COLUMNS.min(n) } else { n };
        let row_part = even(m, if kept { row_part.min(4 * SHORTEST_CUT) } else { row_part }, ROWS);

        let in_place = T::DIRECT && a.columns == 1 && n <= FEW_COLUMNS;
        let packed = if in_place { 0 } else { row_part * k_part };
        let sums = if kept { row_part * column_part } else { 0 };
        with_buffer(&PRODUCT, packed.next_multiple_of(16) + sums, |buffer: *mut T::Sum| {
            for row in (0..m).step_by(row_part) {
                for column in (0..n).step_by(column_part) {
                    for start in (0..k).step_by(k_part) {
                        let shape = Shape {
                            m: row_part.min(m - row),
                            n: column_part.min(n - column),
                            k: k_part.min(k - start),
                        };
                        // SAFETY: the part lies inside the product, and the buffer holds what it
                        // says.
                        unsafe {
                            let part = Part {
                                kernels,
                                shape,
                                k_block,
                                a: a.at(row, start),
                                b: b.at(start, column),
                                in_place,
                                packed: buffer,
                                plus: plus.map(|plus| plus.at(row, column)),
                                c: c.add(row * n + column),
                                c_stride: n,
                                sums: kept.then(|| buffer.add(packed.next_multiple_of(16))),
                                first: start == 0,
                                last: start + shape.k == k,
                            };
                            part.multiply(run);
                        }
                    }
                }
            }
        });
    }
}

/// The longest block of `k`.
fn k_block<T: GemmElement>(kernels: &Kernels<T>) -> usize {
    kernels.panel_bytes / size_of::<T::Sum>() / kernels.columns
}

/// `total` cut into pieces of at most `most`, all but the last of one length, which is a multiple
/// of `unit`.
fn even(total: usize, most: usize, unit: usize) -> usize {
    total.div_ceil(total.div_ceil(most)).next_multiple_of(unit)
}

/// One part of a product, for which the left matrix is packed at once.
struct Part<'a, T: GemmElement> {
    kernels: &'a Kernels<T>,
    shape: Shape,
    k_block: usize,
    a: View<T>,
    b: View<T>,
    /// Whether the left matrix is read where it lies, and where it is packed otherwise.
    in_place: bool,
    packed: *mut T::Sum,
    plus: Option<Addend<T>>,
    c: *mut T,
    c_stride: usize,
    /// Where sums wait between parts, `shape.n` wide, if they cannot wait in `c` and need to.
    sums: Option<*mut T::Sum>,
    /// Whether sums begin here, and whether they end here.
    first: bool,
    last: bool,
}

/// Rows of a product that a member of the team began with.
#[derive(Default)]
struct Cut {
    packed: AtomicBool,
    /// The first block of columns that nobody has taken.
    next: AtomicUsize,
}

// SAFETY: tasks read the views and write disjoint blocks behind the pointers.
unsafe impl<T: GemmElement> Sync for Part<'_, T> {}

impl<T: GemmElement> Part<'_, T> {
    /// # Safety
    /// All fields are valid for the shape.
    unsafe fn multiply(&self, run: Run) {
        let members = if run == Run::Team { threads::threads() } else { 1 };
        // SAFETY: passed on to the caller.
        unsafe {
            if members > 1 && self.shape.m >= members * OWN_ROWS {
                self.multiply_own(run, members);
            } else {
                self.multiply_shared(run);
            }
        }
    }

    /// A member of the team packs rows of its own, which stay near it, and the right matrix for them. Who is
    /// done helps others.
    unsafe fn multiply_own(&self, run: Run, members: usize) {
        let Shape { m, n, .. } = self.shape;
        let rows = even(m, m.div_ceil(members), ROWS);
        let columns = TASK_PANELS[1] * self.kernels.columns;
        let across = n.div_ceil(columns);
        let cuts: Vec<Cut> = (0..m.div_ceil(rows)).map(|_| Cut::default()).collect();
        run.for_each(cuts.len(), |own| {
            // Few panels at a time: what is written of many of them falls into the same places of a cache.
            let end = m.min((own + 1) * rows);
            for row in (own * rows..end).step_by(PACK_PANELS * ROWS) {
                // SAFETY: passed on to the caller; every panel has its own place.
                unsafe { self.pack_left(row, (PACK_PANELS * ROWS).min(end - row)) };
            }
            cuts[own].packed.store(true, Ordering::Release);
            for number in (own..cuts.len()).chain(0..own) {
                let cut = &cuts[number];
                while cut.packed.load(Ordering::Acquire) {
                    let column = cut.next.fetch_add(1, Ordering::Relaxed) * columns;
                    if column >= across * columns {
                        break;
                    }
                    let row = number * rows;
                    // SAFETY: passed on to the caller; blocks are disjoint.
                    unsafe { self.block(row, rows.min(m - row), column, columns.min(n - column)) };
                }
            }
        });
    }

    /// The team packs the left matrix, and then shares out blocks of the output.
    unsafe fn multiply_shared(&self, run: Run) {
        let Shape { m, n, .. } = self.shape;
        let rows = if run == Run::Team { PACK_PANELS * ROWS } else { m };
        run.for_each(m.div_ceil(rows), |task| {
            let row = task * rows;
            // SAFETY: passed on to the caller; every panel has its own place.
            unsafe { self.pack_left(row, rows.min(m - row)) };
        });

        let [few, many] = TASK_PANELS.map(|panels| panels * self.kernels.columns);
        // How the output is cut never changes a bit of it, so it may depend on the team.
        let tasks = TASKS * threads::threads().max(2);
        let columns = if n >= tasks * many { many } else { few };
        let across = n.div_ceil(columns);
        // Cutting rows packs the right matrix once more a cut, so cuts stay long.
        let cuts = tasks.div_ceil(across).min(m.div_ceil(SHORTEST_CUT));
        let rows = even(m, m.div_ceil(cuts), ROWS);
        let down = m.div_ceil(rows);
        run.for_each(across * down, |task| {
            let (row, column) = (task / across * rows, task % across * columns);
            // SAFETY: passed on to the caller; blocks are disjoint.
            unsafe { self.block(row, rows.min(m - row), column, columns.min(n - column)) };
        });
    }

    unsafe fn pack_left(&self, row: usize, rows: usize) {
        if self.in_place {
            return;
        }
        let Shape { m, k, .. } = self.shape;
        let view = self.a.at(row, 0);
        // SAFETY: passed on to the caller. Panels before this one have `ROWS` rows.
        unsafe {
            let to = self.packed.add(row * k);
            self.pack(view.transposed(), rows, m - row, k, ROWS, |width| width, to);
        }
    }

    unsafe fn pack_right(
        &self,
        start: usize,
        k: usize,
        column: usize,
        columns: usize,
        to: *mut T::Sum,
    ) {
        let (view, lines) = (self.b.at(start, column), self.shape.n - column);
        // SAFETY: passed on to the caller.
        unsafe {
            let padded = |columns| self.kernels.padded(columns);
            self.pack(view, columns, lines, k, self.kernels.columns, padded, to);
        };
    }

    /// Packs the first `width` columns of `view`, which has `lines` of them, into panels of `whole`
    /// columns and maybe one narrower, whose pitch `pitch` tells.
    #[expect(clippy::too_many_arguments, reason = "what the two sides have in common")]
    unsafe fn pack(
        &self,
        view: View<T>,
        width: usize,
        lines: usize,
        k: usize,
        whole: usize,
        pitch: impl Fn(usize) -> usize,
        to: *mut T::Sum,
    ) {
        let panel = |first: usize, width: usize, count: usize| Panel {
            from: view.at(0, first).first,
            across: view.columns,
            along: view.rows,
            k,
            width,
            pitch: pitch(width),
            lines: lines - first,
            count,
        };
        let (count, rest) = (width / whole, width % whole);
        // SAFETY: passed on to the caller.
        unsafe {
            if count > 0 {
                (self.kernels.pack)(&panel(0, whole, count), to);
            }
            if rest > 0 {
                let first = count * whole;
                (self.kernels.pack)(&panel(first, rest, 1), to.add(first * k));
            }
        }
    }

    /// Multiplies `rows × columns` of the part.
    unsafe fn block(&self, row: usize, rows: usize, column: usize, columns: usize) {
        let n = self.shape.n;
        let packed = self.k_block * columns.next_multiple_of(self.kernels.columns);
        let own_sums = !T::DIRECT && self.sums.is_none();
        let own = if own_sums { rows * columns } else { 0 };
        with_buffer(&TASK, packed + own, |buffer: *mut T::Sum| {
            // SAFETY: passed on to the caller; the buffer holds the panels and then the sums.
            unsafe {
                let (sums, stride) = match self.sums {
                    _ if T::DIRECT => {
                        (self.c.cast::<T::Sum>().add(row * self.c_stride + column), self.c_stride)
                    }
                    Some(sums) => (sums.add(row * n + column), n),
                    None => (buffer.add(packed), columns),
                };
                for start in (0..self.shape.k).step_by(self.k_block) {
                    let k = self.k_block.min(self.shape.k - start);
                    self.pack_right(start, k, column, columns, buffer);
                    for top in (row..row + rows).step_by(ROW_BLOCK) {
                        let height = ROW_BLOCK.min(row + rows - top);
                        let sums = sums.add((top - row) * stride);
                        let add = start > 0 || !self.first;
                        self.panels(top, height, start, k, columns, buffer, sums, stride, add);
                        // While the sums are near.
                        if self.last && start + k == self.shape.k {
                            let plus = self.plus.map(|plus| plus.at(top, column));
                            let to = (self.c.add(top * self.c_stride + column), self.c_stride);
                            finish::rows(self.kernels, plus, (sums, stride), to, height, columns);
                        }
                    }
                }
            }
        });
    }

    /// Multiplies packed panels: all tiles of a block of rows and columns over a block of `k`.
    #[expect(clippy::too_many_arguments, reason = "the one place where all sizes meet")]
    unsafe fn panels(
        &self,
        row: usize,
        rows: usize,
        start: usize,
        k: usize,
        columns: usize,
        right: *const T::Sum,
        to: *mut T::Sum,
        stride: usize,
        accumulate: bool,
    ) {
        for column in (0..columns).step_by(self.kernels.columns) {
            let width = self.kernels.columns.min(columns - column);
            let padded = self.kernels.padded(width);
            for top in (0..rows).step_by(ROWS) {
                let height = ROWS.min(rows - top);
                let (sizes, table) = ([height, width, padded], Kernels::<T>::width(padded));
                // SAFETY: passed on to the caller.
                unsafe {
                    let b = right.add(column * k);
                    let to = (to.add(top * stride + column), stride);
                    // Other panels of the right matrix find those of the left near.
                    let next = if column == 0 { ROWS as isize } else { 0 };
                    if self.in_place {
                        // Elements are what they are summed in.
                        let a = self.a.at(row + top, start).first.cast();
                        let (a_rows, b_rows) = (self.a.rows, padded as isize);
                        let next = next * a_rows;
                        let panels = Loose { a, a_rows, a_columns: 1, b, b_rows, next };
                        let tile = self.kernels.loose_tiles[height - 1][table];
                        put(
                            |to, stride, add| tile(k, &panels, to, stride, add),
                            sizes,
                            to,
                            accumulate,
                        );
                    } else {
                        let a = self.packed.add((row + top) * self.shape.k + start * height);
                        let next = next * self.shape.k as isize;
                        let panels = Packed { a, b, next };
                        let tile = self.kernels.tiles[height - 1][table];
                        put(
                            |to, stride, add| tile(k, &panels, to, stride, add),
                            sizes,
                            to,
                            accumulate,
                        );
                    }
                }
            }
        }
    }
}

/// Writes a tile of some rows and columns, or adds it. One that is padded to more columns goes through a place
/// of its own.
///
/// # Safety
/// `to` is writable for the rows and columns at rows a stride apart.
unsafe fn put<S: Scalar>(
    tile: impl Fn(*mut S, usize, bool),
    [rows, columns, padded]: [usize; 3],
    (to, stride): (*mut S, usize),
    accumulate: bool,
) {
    if columns == padded {
        return tile(to, stride, accumulate);
    }
    let mut spare = [S::ZERO; ROWS * WIDEST];
    tile(spare.as_mut_ptr(), padded, false);
    // SAFETY: passed on to the caller.
    unsafe { add_tile(&spare, padded, rows, columns, to, stride, accumulate) };
}

/// # Safety
/// `to` is writable for `rows × columns` at rows `stride` apart.
unsafe fn add_tile<S: Scalar>(
    tile: &[S],
    pitch: usize,
    rows: usize,
    columns: usize,
    to: *mut S,
    stride: usize,
    accumulate: bool,
) {
    for i in 0..rows {
        for j in 0..columns {
            // SAFETY: passed on to the caller.
            unsafe {
                let to = to.add(i * stride + j);
                let sum = tile[i * pitch + j];
                *to = if accumulate { (*to).add(sum) } else { sum };
            }
        }
    }
}

/// A pointer that tasks share; each writes only what no other touches.
struct Shared<T>(*mut T);

// SAFETY: see above; those who make one say why it holds.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

thread_local! {
    /// What a product holds for its whole length.
    static PRODUCT: Slot = const { Cell::new(None) };
    /// What a task of a product holds, maybe on the same thread.
    static TASK: Slot = const { Cell::new(None) };
}

/// Lends a buffer of `len` numbers with any values in it, kept between calls.
fn with_buffer<S: Scalar, R>(
    slot: &'static LocalKey<Slot>,
    len: usize,
    f: impl FnOnce(*mut S) -> R,
) -> R {
    kept::lend_to_task(slot, len * size_of::<S>(), |bytes| f(bytes.as_mut_ptr().cast()))
}
