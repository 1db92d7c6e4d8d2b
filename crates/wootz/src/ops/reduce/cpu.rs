//! Reductions on the CPU: any axes of any layout, in an order of combination that depends on the
//! number of reduced elements only.
//!
//! Reduced element `i` belongs to block `i / BLOCK` and, within it, to lane `i % LANES`; a lane
//! combines its elements in order, a fixed tree combines the lanes, and the blocks are joined in
//! order. `row` (lanes are neighbours in a row) and `column` (many rows of accumulators side by
//! side) follow that same order, so that the layout decides only how fast it is.

use std::marker::PhantomData;

use bytemuck::Pod;
use num_complex::Complex32;
use smallvec::SmallVec;

use super::fold::Fold;
use crate::array::{DType, Layout, Meta, Shape, Strides, collapse};
use crate::cpu::tile::{self, Storage, TILE, Walk, with_types};
use crate::cpu::{CpuCall, simd, threads};
use crate::error::Result;

/// Reduced elements that are combined before their result is joined with others.
const BLOCK: usize = 4096;
/// Independent accumulators of a block.
pub(super) const LANES: usize = 16;
/// Outputs whose accumulators the column variant keeps side by side.
pub(super) const PANEL: usize = 512;
/// Elements that are worth handing to another thread.
pub(super) const TASK: usize = 32 * 1024;

/// Bytes for the results of blocks, if there is more than one.
pub(super) fn scratch(input: &Meta, axes: &[usize]) -> usize {
    Plan::new(&input.layout, axes).results() * input.dtype.class().size()
}

/// Reduces the call's input over `axes`.
pub(super) fn run<K>(call: &mut CpuCall<'_>, axes: &[usize], scale: f64) -> Result<()>
where
    K: Fold<u32> + Fold<u64> + Fold<i32> + Fold<i64> + Fold<f32> + Fold<f64> + Fold<Complex32>,
{
    use half::{bf16, f16};
    macro_rules! body {
        ($narrow:ty, $wide:ty) => {
            reduce::<$narrow, K>(call, axes, scale)
        };
    }
    with_types!(call.meta(0).dtype, body)
}

/// Reduces with one fold.
pub(super) fn reduce<T: Storage + Sync, K: Fold<T::Wide>>(
    call: &mut CpuCall<'_>,
    axes: &[usize],
    scale: f64,
) -> Result<()> {
    let input = call.strided::<T>(0)?;
    let dtype = call.output_meta(0).dtype;
    let plan = Plan::new(&input.meta.layout, axes);
    let source = Source { data: input.data, dtype: input.meta.dtype };
    let pass = Pass::<T, K>::new(source, &plan);
    let (out, scratch) = call.output_and_scratch::<u8, K::Acc>(0)?;
    let results = &mut scratch[..plan.results()];
    pass.blocks(&[], results);
    let results = &*results;
    plan.panels(out, dtype.size(), |first, count, out| {
        let values = &mut [K::IDENTITY; PANEL][..count];
        pass.panel(results, &[], first, values, scale);
        tile::narrow(dtype, bytemuck::cast_slice(values), out);
    });
    Ok(())
}

/// An input's axes as kept and reduced ones, merged where memory allows.
pub(super) struct Plan {
    offset: isize,
    pub(super) kept: (Shape, Strides),
    pub(super) reduced: (Shape, Strides),
    pub(super) outputs: usize,
    pub(super) length: usize,
    /// Whether neighbouring outputs are closer in memory than neighbouring reduced elements.
    pub(super) across: bool,
    /// Whether they are, and there are enough of them for accumulators side by side.
    pub(super) column: bool,
}

impl Plan {
    pub(super) fn new(layout: &Layout, axes: &[usize]) -> Plan {
        let (reduced, kept): (Vec<usize>, Vec<usize>) =
            (0..layout.rank()).partition(|axis| axes.contains(axis));
        let side = |axes: &[usize]| {
            let part = layout.permute(axes);
            let (shape, mut strides) = collapse(&[&part]);
            (part.size(), (shape, strides.remove(0)))
        };
        let ((outputs, kept), (length, reduced)) = (side(&kept), side(&reduced));
        let across = match (kept.1.last(), reduced.1.last()) {
            (Some(&near), Some(&far)) => near != 0 && near.abs() < far.abs(),
            _ => false,
        };
        let column = across && kept.0.last().is_some_and(|&neighbours| neighbours >= 4);
        Plan { offset: layout.offset as isize, kept, reduced, outputs, length, across, column }
    }

    /// Whether an output's reduced elements are a run of memory.
    #[inline(always)]
    pub(super) fn dense(&self) -> bool {
        matches!(&self.reduced.1[..], [1])
    }

    /// The place of the first element.
    pub(super) fn offset(&self) -> isize {
        self.offset
    }

    pub(super) fn blocks(&self) -> usize {
        self.length.div_ceil(BLOCK).max(1)
    }

    /// How many results of blocks there are: none if one block is all.
    pub(super) fn results(&self) -> usize {
        match self.blocks() {
            1 => 0,
            blocks => self.outputs.next_multiple_of(self.chunk()) * blocks,
        }
    }

    /// Calls `body` for panels of neighbouring outputs: with the number of the first, how many
    /// there are, and their part of `out`, which has `size` elements for each output.
    pub(super) fn panels<E: Send>(
        &self,
        out: &mut [E],
        size: usize,
        body: impl Fn(usize, usize, &mut [E]) + Sync,
    ) {
        let chunk = self.chunk();
        threads::chunks_mut(out, chunk * size, |index, out| {
            for (panel, out) in out.chunks_mut(PANEL * size).enumerate() {
                body(index * chunk + panel * PANEL, out.len() / size, out);
            }
        });
    }

    /// Outputs that a thread takes at a time; of outputs that have several blocks at most a panel.
    fn chunk(&self) -> usize {
        let enough = TASK / self.length.clamp(1, BLOCK);
        if !self.column {
            return enough.max(1);
        }
        // Long vectors, but enough of them for several threads.
        let panel = self.outputs.div_ceil(8).next_multiple_of(16).clamp(64, PANEL);
        if enough > panel { enough.next_multiple_of(PANEL) } else { panel }
    }
}

/// A place that walks through the elements of some axes in row-major order.
pub(super) struct Cursor<'a> {
    axes: &'a (Shape, Strides),
    index: SmallVec<[usize; 8]>,
    pub(super) position: isize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(axes: &'a (Shape, Strides), start: usize, offset: isize) -> Cursor<'a> {
        let mut index = SmallVec::from_elem(0, axes.0.len());
        let (mut rest, mut position) = (start, offset);
        for axis in (0..axes.0.len()).rev() {
            let length = axes.0[axis].max(1);
            index[axis] = rest % length;
            rest /= length;
            position += index[axis] as isize * axes.1[axis];
        }
        Cursor { axes, index, position }
    }

    #[inline(always)]
    pub(super) fn advance(&mut self) {
        let (shape, strides) = self.axes;
        for axis in (0..shape.len()).rev() {
            self.index[axis] += 1;
            self.position += strides[axis];
            if self.index[axis] < shape[axis] {
                return;
            }
            self.position -= strides[axis] * shape[axis] as isize;
            self.index[axis] = 0;
        }
    }
}

/// A reduction's input.
#[derive(Clone, Copy)]
pub(super) struct Source<'a, T> {
    pub(super) data: &'a [T],
    pub(super) dtype: DType,
}

impl<'a, T: Storage> Source<'a, T> {
    /// The reduced elements from number `at` on, as many as `buffer` holds, of the output that is
    /// at `position`: in place if they can be read there.
    #[inline(always)]
    pub(super) fn load<'b>(
        &self,
        plan: &Plan,
        position: isize,
        at: usize,
        buffer: &'b mut [T::Wide],
    ) -> &'b [T::Wide]
    where
        'a: 'b,
    {
        let (first, count) = (position as usize, buffer.len());
        if plan.dense() {
            let run = &self.data[first + at..first + at + count];
            if direct::<T>() {
                return bytemuck::cast_slice(run);
            }
            T::widen_slice(run, buffer);
        } else {
            let walk = Walk {
                bytes: bytemuck::cast_slice(self.data),
                dtype: self.dtype,
                offset: first,
                strides: &plan.reduced.1,
            };
            walk.load(&plan.reduced.0, at, count, bytemuck::cast_slice_mut(buffer));
        }
        buffer
    }

    /// The elements of `buffer.len()` neighbouring outputs that are `stride` apart.
    #[inline(always)]
    pub(super) fn row<'b>(
        &self,
        position: isize,
        stride: isize,
        buffer: &'b mut [T::Wide],
    ) -> &'b [T::Wide]
    where
        'a: 'b,
    {
        if stride != 1 {
            for (j, value) in buffer.iter_mut().enumerate() {
                *value = self.data[(position + j as isize * stride) as usize].widen();
            }
            return buffer;
        }
        let run = &self.data[position as usize..position as usize + buffer.len()];
        if direct::<T>() {
            return bytemuck::cast_slice(run);
        }
        T::widen_slice(run, buffer);
        buffer
    }
}

/// One fold over the input.
pub(super) struct Pass<'a, T, K> {
    source: Source<'a, T>,
    plan: &'a Plan,
    kind: PhantomData<fn() -> K>,
}

impl<'a, T: Storage + Sync, K: Fold<T::Wide>> Pass<'a, T, K> {
    pub(super) fn new(source: Source<'a, T>, plan: &'a Plan) -> Pass<'a, T, K> {
        Pass { source, plan, kind: PhantomData }
    }

    /// Computes the results of all blocks of outputs that have several, chunk after chunk of
    /// outputs. `centers` has one element for each output if the fold is centred.
    pub(super) fn blocks(&self, centers: &[T::Wide], results: &mut [K::Acc]) {
        let (blocks, chunk) = (self.plan.blocks(), self.plan.chunk());
        threads::chunks_mut(results, chunk, |index, values| {
            let first = index / blocks * chunk;
            let count = chunk.min(self.plan.outputs - first);
            let centers = if K::CENTERED { &centers[first..first + count] } else { &[] };
            self.block(index % blocks, centers, first, &mut values[..count]);
        });
    }

    /// Computes the outputs of a panel, from the `results` of their blocks if they have several.
    /// `centers` are the panel's.
    pub(super) fn panel(
        &self,
        results: &[K::Acc],
        centers: &[T::Wide],
        first: usize,
        values: &mut [K::Acc],
        scale: f64,
    ) {
        let (blocks, chunk) = (self.plan.blocks(), self.plan.chunk());
        if blocks == 1 {
            self.block(0, centers, first, values);
        } else {
            let results = &results[first * blocks..][..blocks * chunk];
            for (column, value) in values.iter_mut().enumerate() {
                *value = K::join(results[column..].iter().step_by(chunk).copied());
            }
        }
        for value in values {
            *value = K::finish(*value, scale);
        }
    }

    /// Computes the results of one block for neighbouring outputs.
    fn block(&self, block: usize, centers: &[T::Wide], first: usize, values: &mut [K::Acc]) {
        let pass = self;
        match self.plan.column {
            true => simd::run(Column { pass, block, centers, first, values }),
            false => simd::run(Row { pass, block, centers, first, values }),
        }
    }

    /// The reduced elements of a block.
    #[inline(always)]
    fn range(&self, block: usize) -> (usize, usize) {
        (block * BLOCK, ((block + 1) * BLOCK).min(self.plan.length))
    }
}

/// Whether elements can be read in place, because they are stored as they are computed.
#[inline(always)]
fn direct<T: Storage>() -> bool {
    size_of::<T>() == size_of::<T::Wide>()
}

/// Reduced elements are neighbours, or nothing is: one output after the other.
struct Row<'a, T: Storage, K, A> {
    pass: &'a Pass<'a, T, K>,
    block: usize,
    centers: &'a [T::Wide],
    first: usize,
    values: &'a mut [A],
}

impl<T: Storage + Sync, K: Fold<T::Wide>> pulp::WithSimd for Row<'_, T, K, K::Acc> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Row { pass, block, centers, first, values } = self;
        let plan = pass.plan;
        let (start, end) = pass.range(block);
        let dense = plan.dense();
        let mut buffer = [<T::Wide as bytemuck::Zeroable>::zeroed(); TILE];
        let mut cursor = Cursor::new(&plan.kept, first, plan.offset);
        for (index, value) in values.iter_mut().enumerate() {
            let zero = <T::Wide as bytemuck::Zeroable>::zeroed();
            let center = if K::CENTERED { centers[index] } else { zero };
            let mut lanes = [K::IDENTITY; LANES];
            // Nothing to reduce may lie anywhere, also behind the memory.
            if dense && direct::<T>() && start < end {
                // In one go, which keeps the lanes in registers.
                let from = cursor.position as usize;
                let run = bytemuck::cast_slice(&pass.source.data[from + start..from + end]);
                feed_about::<T::Wide, K>(&mut lanes, run, center);
            } else {
                for at in (start..end).step_by(TILE) {
                    let count = TILE.min(end - at);
                    let run = pass.source.load(plan, cursor.position, at, &mut buffer[..count]);
                    feed_about::<T::Wide, K>(&mut lanes, run, center);
                }
            }
            *value = tree::<T::Wide, K>(&mut lanes, end - start);
            cursor.advance();
        }
    }
}

/// Combines the lanes that `count` elements have reached.
#[inline(always)]
pub(super) fn tree<W: Pod, K: Fold<W>>(lanes: &mut [K::Acc; LANES], count: usize) -> K::Acc {
    for step in [8, 4, 2, 1] {
        for lane in 0..step {
            if lane + step < count {
                lanes[lane] = K::combine(lanes[lane], lanes[lane + step]);
            }
        }
    }
    lanes[0]
}

/// Combines a run of elements, the first of which belongs to lane 0, into the lanes.
#[inline(always)]
pub(super) fn feed<W: Pod, K: Fold<W>>(lanes: &mut [K::Acc; LANES], run: &[W]) {
    feed_about::<W, K>(lanes, run, W::zeroed());
}

/// [`feed`] with the centre that elements are taken relative to.
#[inline(always)]
fn feed_about<W: Pod, K: Fold<W>>(lanes: &mut [K::Acc; LANES], run: &[W], center: W) {
    let mut local = *lanes;
    let (whole, rest) = run.as_chunks::<LANES>();
    for elements in whole {
        for lane in 0..LANES {
            local[lane] = K::combine(local[lane], K::map_about(elements[lane], center));
        }
    }
    for (lane, &element) in rest.iter().enumerate() {
        local[lane] = K::combine(local[lane], K::map_about(element, center));
    }
    *lanes = local;
}

/// Outputs are neighbours: whole vectors of them are combined at a time.
struct Column<'a, T: Storage, K, A> {
    pass: &'a Pass<'a, T, K>,
    block: usize,
    centers: &'a [T::Wide],
    first: usize,
    values: &'a mut [A],
}

impl<T: Storage + Sync, K: Fold<T::Wide>> pulp::WithSimd for Column<'_, T, K, K::Acc> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Column { pass, block, centers, first, values } = self;
        let plan = pass.plan;
        let (start, end) = pass.range(block);
        let last = plan.kept.0.len() - 1;
        let (inner, stride) = (plan.kept.0[last], plan.kept.1[last]);
        let lanes = (end - start).clamp(1, LANES);
        let width = values.len().min(inner);
        let mut accumulators = vec![K::IDENTITY; lanes * width];
        let mut buffer = [<T::Wide as bytemuck::Zeroable>::zeroed(); PANEL];
        let mut done = 0;
        while done < values.len() {
            let index = first + done;
            let run = (inner - index % inner).min(values.len() - done);
            accumulators.fill(K::IDENTITY);
            let base = Cursor::new(&plan.kept, index, plan.offset).position;
            let mut cursor = Cursor::new(&plan.reduced, start, base);
            for i in 0..end - start {
                let row = pass.source.row(cursor.position, stride, &mut buffer[..run]);
                let lane = &mut accumulators[i % LANES * width..][..run];
                if K::CENTERED {
                    let elements = row.iter().zip(&centers[done..done + run]);
                    for (accumulator, (&element, &center)) in lane.iter_mut().zip(elements) {
                        *accumulator = K::combine(*accumulator, K::map_about(element, center));
                    }
                } else {
                    for (accumulator, &element) in lane.iter_mut().zip(row) {
                        *accumulator = K::combine(*accumulator, K::map(element));
                    }
                }
                cursor.advance();
            }
            for step in [8, 4, 2, 1] {
                for lane in 0..step {
                    if lane + step < lanes {
                        let (low, high) = accumulators.split_at_mut((lane + step) * width);
                        let low = &mut low[lane * width..][..run];
                        for (a, &b) in low.iter_mut().zip(&high[..run]) {
                            *a = K::combine(*a, b);
                        }
                    }
                }
            }
            values[done..done + run].copy_from_slice(&accumulators[..run]);
            done += run;
        }
    }
}
