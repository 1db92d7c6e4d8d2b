//! Products of a matrix with one vector or a few: bound by reading the matrix once, so nothing is
//! packed but the vectors.
//!
//! An output is cut along `k`, and a cut is summed in [`SUMS`] partial sums, product `p` in sum
//! `p % SUMS`, which are then added by halves. Where the matrix is contiguous along `k` the partial
//! sums are the lanes of vectors; where it is contiguous along the outputs, every `SUMS`-th row is
//! added up into a block of sums. Both come to the same bits.

use super::microkernel::GemmElement;
use super::simd::{Lanes, Narrow, Scalar};
use super::{Job, PRODUCT, Run, TASK, View, finish, with_buffer};

/// The most vectors that are multiplied this way.
pub(crate) const FEW: usize = 4;

/// The partial sums of an output.
const SUMS: usize = 8;
/// Rows that are added to the same sums at a time.
const AT_ONCE: usize = 4;
/// Outputs whose sums are held at a time where the matrix is contiguous along them.
const BLOCK: usize = 1024;
/// Matrix elements that one task reads where it is contiguous along `k`.
const PER_TASK: usize = 1 << 15;
/// `k` is cut where there would be fewer tasks than this, but not shorter than `SHORTEST_CUT`.
const TASKS: usize = 16;
const SHORTEST_CUT: usize = 512;
/// Short rows that lie one after another are one stream, which processors do not see in the order that their parts are
/// read in: rows of up to `SHORT` bytes are fetched this many bytes before they are used.
const AHEAD: usize = 16 << 10;
const SHORT: usize = 2 << 10;
/// Below this many matrix elements, waking the team costs more than it brings.
const PARALLEL: usize = 1 << 15;

/// `outputs × vectors` products over `k`.
pub(super) struct Few<T> {
    pub(super) outputs: usize,
    pub(super) vectors: usize,
    pub(super) k: usize,
    /// The length of a cut of `k`.
    pub(super) cut: usize,
    /// Row `r` gives output `r`; columns run along `k`.
    pub(super) matrix: View<T>,
    /// Row `v` is vector `v`; columns run along `k`.
    pub(super) x: View<T>,
    /// Whether an output is a row of the product; otherwise it is a column.
    pub(super) by_row: bool,
}

// SAFETY: tasks only read the views.
unsafe impl<T: Sync> Sync for Few<T> {}

/// The length that `k` is cut into for so many outputs.
pub(super) fn cut(outputs: usize, k: usize) -> usize {
    let cuts = TASKS.div_ceil(outputs.div_ceil(BLOCK).max(1)).min(k / SHORTEST_CUT).max(1);
    k.div_ceil(cuts).next_multiple_of(SUMS * AT_ONCE)
}

/// # Safety
/// The processor has the kernels' instruction set; the views and the output are valid for the
/// sizes.
pub(super) unsafe fn few<T: GemmElement>(run: Run, job: &Job<T>, few: &Few<T>) {
    let Few { outputs, vectors, k, cut, .. } = *few;
    let run = run.if_worth(outputs.saturating_mul(k) >= PARALLEL);
    let across = few.matrix.rows == 1 && outputs > 1 && few.matrix.columns != 1;
    let block = match across {
        true => BLOCK / vectors.next_power_of_two(),
        false => (PER_TASK / k).max(1).next_multiple_of(AT_ONCE),
    };
    let block = block.min(outputs);
    let (blocks, cuts) = (outputs.div_ceil(block), k.div_ceil(cut));
    let results = outputs * vectors;
    // Where there are blocks enough, a task walks through all cuts of its block.
    let parts = if blocks < TASKS { cuts } else { 1 };

    with_buffer(&PRODUCT, vectors * k + (cuts + 1) * results, |buffer: *mut T::Sum| {
        // SAFETY: the buffer holds the widened vectors, then one set of sums a cut, then one in
        // the order of the output; the view of the vectors is valid. Tasks write sums that no
        // other writes.
        unsafe {
            for v in 0..vectors {
                for p in 0..k {
                    *buffer.add(v * k + p) = few.x.read(v, p).widen();
                }
            }
            let sums = buffer.add(vectors * k);
            let task = Task { kernels: job.kernels, few, x: buffer, sums };
            run.for_each(blocks * parts, |number| {
                let (first, part) = (number % blocks * block, number / blocks);
                let of = if parts == cuts { part..part + 1 } else { 0..cuts };
                let count = block.min(outputs - first);
                if across {
                    task.across(first, count, of);
                } else {
                    task.along(first, count, of);
                }
            });
            for part in 1..cuts {
                for i in 0..results {
                    *sums.add(i) = (*sums.add(i)).add(*sums.add(part * results + i));
                }
            }
            let (rows, columns) = if few.by_row { (outputs, vectors) } else { (vectors, outputs) };
            let mut from = sums;
            if few.by_row && vectors > 1 {
                from = sums.add(cuts * results);
                for r in 0..outputs {
                    for v in 0..vectors {
                        *from.add(r * vectors + v) = *sums.add(v * outputs + r);
                    }
                }
            }
            let (from, to) = ((from.cast_const(), columns), (job.c, columns));
            finish::rows(job.kernels, job.plus, from, to, rows, columns);
        }
    });
}

/// What all tasks of a product share.
struct Task<'a, T: GemmElement> {
    kernels: &'a super::Kernels<T>,
    few: &'a Few<T>,
    /// The widened vectors, `k` apart.
    x: *const T::Sum,
    /// For every cut, the outputs of every vector.
    sums: *mut T::Sum,
}

// SAFETY: tasks write sums of different outputs or cuts.
unsafe impl<T: GemmElement> Sync for Task<'_, T> {}

impl<T: GemmElement> Task<'_, T> {
    /// Where cut `part` begins, how long it is, and where the sum of its output `first` goes.
    unsafe fn cut(&self, part: usize, first: usize) -> (usize, usize, *mut T::Sum) {
        let Few { outputs, vectors, k, cut, .. } = *self.few;
        let start = part * cut;
        // SAFETY: there is a set of sums for every cut.
        let to = unsafe { self.sums.add(part * outputs * vectors + first) };
        (start, cut.min(k - start), to)
    }

    /// Outputs `first..first + count` as dot products.
    unsafe fn along(&self, first: usize, count: usize, parts: std::ops::Range<usize>) {
        let Few { outputs, vectors, k, cut, matrix, .. } = *self.few;
        let [one, several] = self.kernels.dots[vectors - 1];
        let contiguous = matrix.columns == 1;
        let at_once = if contiguous { rows_at_once(vectors) } else { 1 };
        with_buffer(&TASK, if contiguous { 0 } else { cut }, |line: *mut T::Sum| {
            // An element is no larger than what it is summed in.
            let line = line.cast::<T>();
            let mut r = first;
            while r < first + count {
                let many = at_once > 1 && r + at_once <= first + count;
                for part in parts.clone() {
                    // SAFETY: outputs and cuts lie inside the product; the line has room for a cut.
                    unsafe {
                        let (start, len, to) = self.cut(part, r);
                        let mut rows = matrix.at(r, start).first;
                        if !contiguous {
                            for p in 0..len {
                                *line.add(p) = matrix.read(r, start + p);
                            }
                            rows = line;
                        }
                        let (x, stride) = (self.x.add(start), matrix.rows);
                        let (x_stride, to_stride) = (k, outputs);
                        let fetch = contiguous && in_stream::<T>(stride);
                        let dots = Dots { rows, stride, x, x_stride, to, to_stride, fetch };
                        (if many { several } else { one })(&dots, len);
                    }
                }
                r += if many { at_once } else { 1 };
            }
        });
    }

    /// Outputs `first..first + count` of a matrix that is contiguous along them.
    unsafe fn across(&self, first: usize, count: usize, parts: std::ops::Range<usize>) {
        let Few { outputs, vectors, k, matrix, .. } = *self.few;
        with_buffer(&TASK, vectors * SUMS * count, |sums: *mut T::Sum| {
            // SAFETY: the buffer has the partial sums of every vector; rows lie inside the matrix.
            unsafe {
                for part in parts {
                    let (start, len, to) = self.cut(part, first);
                    for i in 0..vectors * SUMS * count {
                        *sums.add(i) = T::Sum::ZERO;
                    }
                    for p in (0..len).step_by(SUMS * AT_ONCE) {
                        for lane in 0..SUMS.min(len - p) {
                            let p = p + lane;
                            // Every vector finds these few rows in the cache.
                            for v in 0..vectors {
                                let axpy = Axpy {
                                    rows: matrix.at(first, start + p).first,
                                    stride: matrix.columns * SUMS as isize,
                                    x: self.x.add(v * k + start + p),
                                    count: (len - p).div_ceil(SUMS).min(AT_ONCE),
                                    fetch: v == 0 && in_stream::<T>(matrix.columns),
                                };
                                let sums = sums.add((v * SUMS + lane) * count);
                                (self.kernels.axpy)(&axpy, sums, count);
                            }
                        }
                    }
                    for v in 0..vectors {
                        let sums = sums.add(v * SUMS * count);
                        let mut half = SUMS / 2;
                        while half > 0 {
                            for i in 0..half * count {
                                *sums.add(i) = (*sums.add(i)).add(*sums.add(half * count + i));
                            }
                            half /= 2;
                        }
                        to.add(v * outputs).copy_from_nonoverlapping(sums, count);
                    }
                }
            }
        });
    }
}

/// Whether rows so far apart are a stream that is to be fetched ahead.
fn in_stream<T>(stride: isize) -> bool {
    (1..=(SHORT / size_of::<T>()) as isize).contains(&stride)
}

/// Fetches what lies ahead of an element of a row, once a line of the cache.
///
/// # Safety
/// The processor has `V`'s instruction set.
#[inline(always)]
unsafe fn fetch_ahead<T, V: Narrow>(row: *const T, at: usize) {
    if at.is_multiple_of(64 / size_of::<T>()) {
        // SAFETY: a prefetch may name any address.
        unsafe { V::prefetch(row.wrapping_add(at).wrapping_byte_add(AHEAD).cast()) };
    }
}

/// Rows whose dot products are computed at once, because each waits for its own last addition.
pub(super) const fn rows_at_once(vectors: usize) -> usize {
    if vectors == 1 { AT_ONCE } else { 2 }
}

/// The dot products of contiguous rows, at any address, with widened vectors. The product of row
/// `r` and vector `v` goes to `r + v * to_stride`.
pub(crate) struct Dots<T: GemmElement> {
    rows: *const T,
    stride: isize,
    x: *const T::Sum,
    x_stride: usize,
    to: *mut T::Sum,
    to_stride: usize,
    /// Whether rows are fetched ahead.
    fetch: bool,
}

/// `R` rows with `N` vectors.
///
/// # Safety
/// The processor has `V`'s instruction set; the rows and the vectors are readable for `len`
/// elements, and the results are writable.
#[inline(always)]
pub(super) unsafe fn dots<T, V, const R: usize, const N: usize>(job: &Dots<T>, len: usize)
where
    T: GemmElement<Sum = V::Scalar> + Lanes<V>,
    V: Narrow,
{
    let Dots { rows, stride, x, x_stride, to, to_stride, fetch } = *job;
    let parts = SUMS / V::LANES;
    let whole = len - len % SUMS;
    // SAFETY: all indices stay below `len`.
    unsafe {
        let rows: [*const T; R] =
            std::array::from_fn(|r| rows.wrapping_offset(r as isize * stride));
        // Vectors have two lanes at least.
        let mut sums = [[[V::splat(V::Scalar::ZERO); SUMS / 2]; N]; R];
        let mut p = 0;
        while p < whole {
            for i in 0..parts {
                let at = p + i * V::LANES;
                let mut right = [V::splat(V::Scalar::ZERO); N];
                for (v, right) in right.iter_mut().enumerate() {
                    *right = V::load(x.add(v * x_stride + at));
                }
                for (row, sums) in rows.iter().zip(&mut sums) {
                    if fetch {
                        fetch_ahead::<T, V>(*row, at);
                    }
                    let left = <T as Lanes<V>>::load(row.add(at));
                    for (right, sums) in right.iter().zip(sums) {
                        sums[i] = left.mul_add(*right, sums[i]);
                    }
                }
            }
            p += SUMS;
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            for (v, sums) in sums.iter_mut().enumerate() {
                if whole < len {
                    add_rest::<T, V>(rows[r], x.add(v * x_stride), whole, len, sums);
                }
                let mut half = parts / 2;
                while half > 0 {
                    for i in 0..half {
                        sums[i] = sums[i].add(sums[i + half]);
                    }
                    half /= 2;
                }
                *to.add(r + v * to_stride) = sums[0].sum();
            }
        }
    }
}

/// Adds products `whole..len` to the first sums, with the instructions that add all others.
#[inline(always)]
unsafe fn add_rest<T: GemmElement<Sum = V::Scalar> + Lanes<V>, V: Narrow>(
    row: *const T,
    x: *const V::Scalar,
    whole: usize,
    len: usize,
    sums: &mut [V; SUMS / 2],
) {
    let (mut left, mut right) = ([V::Scalar::ZERO; SUMS], [V::Scalar::ZERO; SUMS]);
    let (mut before, mut after) = (left, left);
    // SAFETY: indices stay below `len`, and the arrays are whole vectors.
    unsafe {
        for p in whole..len {
            left[p - whole] = row.add(p).read_unaligned().widen();
            right[p - whole] = *x.add(p);
        }
        for (at, sum) in (0..SUMS).step_by(V::LANES).zip(sums.iter()) {
            sum.store(before.as_mut_ptr().add(at));
            let product = V::load(left.as_ptr().add(at));
            let product = product.mul_add(V::load(right.as_ptr().add(at)), *sum);
            product.store(after.as_mut_ptr().add(at));
        }
        // The others stay as they are: even adding zero would change a negative zero.
        after[len - whole..].copy_from_slice(&before[len - whole..]);
        for (at, sum) in (0..SUMS).step_by(V::LANES).zip(sums) {
            *sum = V::load(after.as_ptr().add(at));
        }
    }
}

/// Rows to add up, at any address: `count` of them, `stride` apart, times every [`SUMS`]-th element of `x`.
pub(crate) struct Axpy<T: GemmElement> {
    rows: *const T,
    stride: isize,
    x: *const T::Sum,
    count: usize,
    /// Whether rows are fetched ahead.
    fetch: bool,
}

/// Adds the rows to `sums`, each element in the order of the rows.
///
/// # Safety
/// The processor has `V`'s instruction set; the rows and `sums` are valid for `len` elements.
#[inline(always)]
pub(super) unsafe fn axpy<T: GemmElement<Sum = V::Scalar> + Lanes<V>, V: Narrow>(
    job: &Axpy<T>,
    sums: *mut V::Scalar,
    len: usize,
) {
    // SAFETY: rows stay below `count`.
    unsafe {
        if job.count == AT_ONCE {
            return add_rows::<T, V, AT_ONCE>(job, 0, sums, len);
        }
        for p in 0..job.count {
            add_rows::<T, V, 1>(job, p, sums, len);
        }
    }
}

#[inline(always)]
unsafe fn add_rows<T: GemmElement<Sum = V::Scalar> + Lanes<V>, V: Narrow, const N: usize>(
    job: &Axpy<T>,
    first: usize,
    sums: *mut V::Scalar,
    len: usize,
) {
    // SAFETY: rows `first..first + N` are readable and indices stay below `len`; what is left over
    // goes through arrays of a vector's size, and the same instructions.
    unsafe {
        let rows: [*const T; N] =
            std::array::from_fn(|i| job.rows.offset((first + i) as isize * job.stride));
        let x: [V::Scalar; N] = std::array::from_fn(|i| *job.x.add((first + i) * SUMS));
        let mut j = 0;
        while j + V::LANES <= len {
            let mut sum = V::load(sums.add(j));
            for i in 0..N {
                if job.fetch {
                    fetch_ahead::<T, V>(rows[i], j);
                }
                sum = <T as Lanes<V>>::load(rows[i].add(j)).mul_add(V::splat(x[i]), sum);
            }
            sum.store(sums.add(j));
            j += V::LANES;
        }
        if j < len {
            let mut rest = [V::Scalar::ZERO; 8];
            rest[..len - j].copy_from_slice(std::slice::from_raw_parts(sums.add(j), len - j));
            let mut sum = V::load(rest.as_ptr());
            for i in 0..N {
                let mut row = [V::Scalar::ZERO; 8];
                for (at, element) in row.iter_mut().enumerate().take(len - j) {
                    *element = rows[i].add(j + at).read_unaligned().widen();
                }
                sum = V::load(row.as_ptr()).mul_add(V::splat(x[i]), sum);
            }
            sum.store(rest.as_mut_ptr());
            sums.add(j).copy_from_nonoverlapping(rest.as_ptr(), len - j);
        }
    }
}
