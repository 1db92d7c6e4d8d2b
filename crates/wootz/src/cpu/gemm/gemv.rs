//! Products of a matrix with one vector or a few: bound by reading the matrix once, so nothing is
//! packed but the vectors.
//!
//! Where the matrix is contiguous along `k` every output is a dot product in a fixed number of
//! lanes; where it is contiguous along the outputs, rows are added up into a block of sums.

use super::microkernel::{GemmElement, Kernels};
use super::simd::{Lanes, Scalar, Vector};
use super::{PRODUCT, Run, Shared, View, with_buffer};

/// The most vectors that are multiplied this way.
pub(super) const FEW: usize = 4;

/// Sums held at a time where the matrix is contiguous along the outputs.
const BLOCK: usize = 1024;
/// Matrix elements that one task reads where it is contiguous along `k`.
const PER_TASK: usize = 1 << 15;
/// `k` is cut where there would be fewer tasks than this, but not shorter than `SHORTEST_CUT`.
const TASKS: usize = 16;
const SHORTEST_CUT: usize = 512;
/// Below this many matrix elements, waking the team costs more than it brings.
const PARALLEL: usize = 1 << 15;

/// `outputs × vectors` products over `k`.
pub(super) struct Few<T> {
    pub(super) outputs: usize,
    pub(super) vectors: usize,
    pub(super) k: usize,
    /// Row `r` gives output `r`; columns run along `k`.
    pub(super) matrix: View<T>,
    /// Row `v` is vector `v`; columns run along `k`.
    pub(super) x: View<T>,
    /// Output `r` of vector `v` goes to `r * strides[0] + v * strides[1]`.
    pub(super) c: *mut T,
    pub(super) strides: [usize; 2],
}

/// # Safety
/// The processor has the kernels' instruction set; the views and `c` are valid for the sizes.
pub(super) unsafe fn few<T: GemmElement>(run: Run, kernels: &Kernels<T>, job: &Few<T>) {
    let Few { outputs, vectors, k, .. } = *job;
    let run = run.if_worth(outputs.saturating_mul(k) >= PARALLEL);
    let along_k = job.matrix.columns == 1;
    let rows_contiguous = job.matrix.rows == 1 && outputs > 1 && !along_k;
    let block = if rows_contiguous { BLOCK } else { (PER_TASK / k).max(1) }.min(outputs);
    let blocks = outputs.div_ceil(block);
    // The cut depends on the shape alone, so the order of every sum does too.
    let cuts = TASKS.div_ceil(blocks).min(k / SHORTEST_CUT).max(1);
    let cut = k.div_ceil(cuts);
    let cuts = k.div_ceil(cut);
    let results = outputs * vectors;

    with_buffer(&PRODUCT, vectors * k + cuts * results, |buffer: *mut T::Sum| {
        // SAFETY: the buffer holds the widened vectors and then one set of sums a cut; the view of
        // the vectors is valid. Tasks write sums that no other writes.
        unsafe {
            for v in 0..vectors {
                for p in 0..k {
                    *buffer.add(v * k + p) = job.x.read(v, p).widen();
                }
            }
            let (x, sums) = (Shared(buffer), Shared(buffer.add(vectors * k)));
            let job = Shared((job as *const Few<T>).cast_mut());
            run.for_each(blocks * cuts, |task| {
                let (job, part) = (&*job.get(), task / blocks);
                let (first, start) = (task % blocks * block, part * cut);
                let lines = block.min(outputs - first);
                let steps = cut.min(k - start);
                let (x, sums) = (x.get(), sums.get().add(part * results));
                for v in 0..vectors {
                    for r in first..first + lines {
                        *sums.add(v * outputs + r) = T::Sum::ZERO;
                    }
                }
                let matrix = job.matrix.at(first, start);
                if along_k {
                    for r in 0..lines {
                        let dots = Dots {
                            row: matrix.at(r, 0).first,
                            x: x.add(start),
                            stride: k,
                            to: sums.add(first + r),
                            to_stride: outputs,
                        };
                        (kernels.dots[vectors - 1])(&dots, steps);
                    }
                } else if rows_contiguous {
                    // A few rows at a time, so that every vector finds them in the cache.
                    let at_once = if vectors == 1 { steps } else { 4 };
                    for p in (0..steps).step_by(at_once) {
                        for v in 0..vectors {
                            let axpy = Axpy {
                                rows: matrix.at(0, p).first,
                                stride: matrix.columns,
                                x: x.add(v * k + start + p),
                                count: at_once.min(steps - p),
                            };
                            (kernels.axpy)(&axpy, sums.add(v * outputs + first), lines);
                        }
                    }
                } else {
                    for r in 0..lines {
                        for v in 0..vectors {
                            let sum = &mut *sums.add(v * outputs + first + r);
                            for p in 0..steps {
                                let left = matrix.read(r, p).widen();
                                *sum = left.mul_add(*x.add(v * k + start + p), *sum);
                            }
                        }
                    }
                }
            });
            let sums = sums.get();
            for part in 1..cuts {
                for i in 0..results {
                    *sums.add(i) = (*sums.add(i)).add(*sums.add(part * results + i));
                }
            }
            let job = &*job.get();
            for v in 0..vectors {
                let (from, to) = (sums.add(v * outputs), job.c.add(v * job.strides[1]));
                if job.strides[0] == 1 {
                    (kernels.round)(from, to, outputs);
                } else {
                    for r in 0..outputs {
                        *to.add(r * job.strides[0]) = T::round(*from.add(r));
                    }
                }
            }
        }
    });
}

/// The dot products of a contiguous row with `N` widened vectors, `stride` apart; results go to
/// `to`, `to_stride` apart.
pub(crate) struct Dots<T: GemmElement> {
    row: *const T,
    x: *const T::Sum,
    stride: usize,
    to: *mut T::Sum,
    to_stride: usize,
}

/// # Safety
/// The processor has `V`'s instruction set; the row and the vectors are readable for `len`
/// elements, and the results are writable.
#[inline(always)]
pub(super) unsafe fn dots<T, V, const N: usize>(job: &Dots<T>, len: usize)
where
    T: GemmElement<Sum = V::Scalar> + Lanes<V>,
    V: Vector,
{
    let Dots { row, x, stride, to, to_stride } = *job;
    // Several sums, because each waits for its own last addition.
    let sums_each = if N == 1 { 4 } else { 2 };
    let step = sums_each * V::LANES;
    // SAFETY: all indices stay below `len`.
    unsafe {
        let mut sums = [[V::splat(V::Scalar::ZERO); 4]; N];
        let mut p = 0;
        while p + step <= len {
            for i in 0..sums_each {
                let at = p + i * V::LANES;
                let left = <T as Lanes<V>>::load(row.add(at));
                for (v, sums) in sums.iter_mut().enumerate() {
                    sums[i] = left.mul_add(V::load(x.add(v * stride + at)), sums[i]);
                }
            }
            p += step;
        }
        while p + V::LANES <= len {
            let left = <T as Lanes<V>>::load(row.add(p));
            for (v, sums) in sums.iter_mut().enumerate() {
                sums[0] = left.mul_add(V::load(x.add(v * stride + p)), sums[0]);
            }
            p += V::LANES;
        }
        for (v, sums) in sums.iter().enumerate() {
            let mut sum = sums[0].add(sums[1]).add(sums[2].add(sums[3])).sum();
            for p in p..len {
                sum = (*row.add(p)).widen().mul_add(*x.add(v * stride + p), sum);
            }
            *to.add(v * to_stride) = sum;
        }
    }
}

/// Rows to add up: `count` of them, `stride` apart, times `x`.
pub(crate) struct Axpy<T: GemmElement> {
    rows: *const T,
    stride: isize,
    x: *const T::Sum,
    count: usize,
}

/// Adds the rows to `sums`, each element in the order of the rows.
///
/// # Safety
/// The processor has `V`'s instruction set; the rows and `sums` are valid for `len` elements.
#[inline(always)]
pub(super) unsafe fn axpy<T: GemmElement<Sum = V::Scalar> + Lanes<V>, V: Vector>(
    job: &Axpy<T>,
    sums: *mut V::Scalar,
    len: usize,
) {
    let whole = job.count - job.count % 4;
    // SAFETY: rows stay below `count`.
    unsafe {
        for p in (0..whole).step_by(4) {
            add_rows::<T, V, 4>(job, p, sums, len);
        }
        for p in whole..job.count {
            add_rows::<T, V, 1>(job, p, sums, len);
        }
    }
}

#[inline(always)]
unsafe fn add_rows<T: GemmElement<Sum = V::Scalar> + Lanes<V>, V: Vector, const N: usize>(
    job: &Axpy<T>,
    first: usize,
    sums: *mut V::Scalar,
    len: usize,
) {
    // SAFETY: rows `first..first + N` are readable and indices stay below `len`.
    unsafe {
        let rows: [*const T; N] =
            std::array::from_fn(|i| job.rows.offset((first + i) as isize * job.stride));
        let x: [V::Scalar; N] = std::array::from_fn(|i| *job.x.add(first + i));
        let mut j = 0;
        while j + V::LANES <= len {
            let mut sum = V::load(sums.add(j));
            for i in 0..N {
                sum = <T as Lanes<V>>::load(rows[i].add(j)).mul_add(V::splat(x[i]), sum);
            }
            sum.store(sums.add(j));
            j += V::LANES;
        }
        while j < len {
            let sum = &mut *sums.add(j);
            for i in 0..N {
                *sum = (*rows[i].add(j)).widen().mul_add(x[i], *sum);
            }
            j += 1;
        }
    }
}
