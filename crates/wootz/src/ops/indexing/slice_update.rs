//! Writing into a regular part of an array: `slice_update`.

use smallvec::SmallVec;

use super::raw;
use crate::array::{Array, Layout, Meta, Shape, Strides};
use crate::cpu::CpuCall;
use crate::cpu::tile::with_width;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::{Bind, GpuCall, Kernel, packed};
use crate::op::{
    Batch, Case, EVERY, Entry, Metas, Op, Tolerance, expect_contiguous, expect_dtype,
    expect_inputs, expect_shape,
};
use crate::ops::{astype, broadcast_to, slice, zeros_like};

/// Cases of `slice_update`.
pub(super) fn entries() -> Vec<Entry> {
    let case = |label: &str, shapes: &[&[usize]], call: fn(&[Array]) -> Result<Array>| {
        Case::new(label, shapes, move |x| Ok(vec![call(x)?]))
            .dtypes(EVERY)
            .tolerance(Tolerance::Exact)
    };
    vec![Entry {
        name: "slice_update",
        cases: vec![
            case("block", &[&[5, 7], &[2, 3]], |x| {
                slice_update(&x[0], &x[1], &[1, 2], &[3, 5], &[1, 1])
            }),
            case("steps", &[&[7, 9], &[3, 1]], |x| {
                slice_update(&x[0], &x[1], &[1, 8], &[6, 0], &[2, -3])
            }),
            case("rows", &[&[3, 1100], &[1100]], |x| {
                slice_update(&x[0], &x[1], &[1, 0], &[3, 1100], &[1, 1])
            }),
            case("nothing", &[&[4], &[0]], |x| slice_update(&x[0], &x[1], &[2], &[2], &[1])),
        ],
    }]
}

/// A copy of `x` whose elements `start..stop` in steps, as [`slice()`](crate::slice()) counts them, are those of
/// `update`, broadcast and converted to the dtype of `x`. The memory of `x` is reused when nobody
/// else needs it.
///
/// ```
/// use wootz::{Array, slice_update};
/// let x = Array::new([0, 1, 2, 3, 4])?;
/// let y = slice_update(&x, &Array::new([7, 8])?, &[1], &[5], &[2])?;
/// assert_eq!(y.to_vec::<i32>()?, [0, 7, 2, 8, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn slice_update(
    x: &Array,
    update: &Array,
    start: &[usize],
    stop: &[usize],
    step: &[isize],
) -> Result<Array> {
    let counts = slice(x, start, stop, step)?;
    let ranges = (x.shape().iter().enumerate()).map(|(axis, &length)| {
        let start =
            if step[axis] < 0 { start[axis].min(length.saturating_sub(1)) } else { start[axis] };
        IndexRange { start, count: counts.shape()[axis], step: step[axis] }
    });
    update_ranges(x, update, ranges.collect())
}

/// One axis of a region: elements `start`, `start + step`, ….
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IndexRange {
    pub(crate) start: usize,
    pub(crate) count: usize,
    pub(crate) step: isize,
}

/// As [`slice_update`], with the region given by counts.
pub(crate) fn update_ranges(x: &Array, update: &Array, ranges: Vec<IndexRange>) -> Result<Array> {
    let shape: Shape = ranges.iter().map(|range| range.count).collect();
    let update = astype(&stripped(update, shape.len())?, x.dtype())?;
    let update = broadcast_to(&update, &shape).map_err(|_| {
        let expected = format!("one that broadcasts to {:?}", &shape[..]);
        Error::shape("slice_update", "update", expected, update.shape())
    })?;
    if update.size() == 0 {
        return Ok(x.clone());
    }
    if shape[..] == *x.shape() && ranges.iter().all(|range| range.step == 1) {
        return crate::ops::copy(&update);
    }
    Array::apply(SliceUpdate { ranges }, &[&x.contiguous()?, &update])
}

/// The elements of a region, as a view.
pub(crate) fn slice_ranges(x: &Array, ranges: &[IndexRange]) -> Result<Array> {
    let start: Vec<usize> = ranges.iter().map(|range| range.start).collect();
    let stop: Vec<usize> = ranges
        .iter()
        .map(|range| {
            // The last element, and one further in the way `slice` counts.
            let span = range.count.saturating_sub(1) * range.step.unsigned_abs();
            match (range.count, range.step > 0) {
                (0, true) => range.start,
                (0, false) => range.start + 1,
                (_, true) => range.start + span + 1,
                (_, false) => range.start - span,
            }
        })
        .collect();
    let step: Vec<isize> = ranges.iter().map(|range| range.step).collect();
    slice(x, &start, &stop, &step)
}

/// The array without leading axes of length 1 beyond `rank` axes, as assignments allow.
pub(super) fn stripped(x: &Array, rank: usize) -> Result<Array> {
    let extra = x.rank().saturating_sub(rank);
    let ones = x.shape().iter().take(extra).take_while(|&&length| length == 1).count();
    x.reshape(&x.shape()[ones..])
}

/// Replaces a region; the update has the region's shape and any layout.
#[derive(Debug)]
struct SliceUpdate {
    ranges: Vec<IndexRange>,
}

impl SliceUpdate {
    /// Where the region lies in the output.
    fn region(&self, output: &Meta) -> Layout {
        let mut region = output.layout.clone();
        let mut offset = 0;
        for (axis, range) in self.ranges.iter().enumerate() {
            offset += range.start as isize * region.strides[axis];
            region.shape[axis] = range.count;
            region.strides[axis] *= range.step;
        }
        region.offset = offset as usize;
        region
    }

    /// The region's axes merged: lengths, strides in the output, strides in the update.
    fn walks(&self, output: &Meta, update: &Meta) -> (usize, Shape, Strides, Strides) {
        let region = self.region(output);
        let (shape, strides) = crate::array::collapse(&[&region, &update.layout]);
        (region.offset, shape, strides[0].clone(), strides[1].clone())
    }
}

impl Op for SliceUpdate {
    fn name(&self) -> &'static str {
        "slice_update"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "update", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 2)?;
        expect_contiguous(self, inputs, 0)?;
        expect_dtype(self, inputs, 1, inputs[0].dtype)?;
        let shape: Shape = self.ranges.iter().map(|range| range.count).collect();
        expect_shape(self, inputs, 1, &shape)?;
        Ok(Metas::from_elem(Meta::new(self.name(), inputs[0].shape(), inputs[0].dtype)?, 1))
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        raw::copy_on_cpu(call, 0, 0)?;
        let (offset, shape, to, from) = self.walks(call.output_meta(0), call.meta(1));
        macro_rules! body {
            ($type:ty) => {{
                let update = call.strided::<$type>(1)?;
                let origin = update.meta.layout.offset as isize;
                let output = call.output::<$type>(0)?;
                put_region(output, offset as isize, &to, update.data, origin, &from, &shape);
            }};
        }
        with_width!(call.output_meta(0).dtype.size(), body);
        Ok(())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        raw::copy_on_gpu(call, 0, 0, false)?;
        let (update, size) = (call.meta(1), call.meta(1).dtype.size());
        let (offset, shape, to, from) = self.walks(call.output_meta(0), update);
        let mut words = raw::Words::default();
        words.push("n", update.size());
        words.push("out_offset", offset);
        words.push("update_offset", update.layout.offset);
        words.walk("to_place", &raw::Walk::merged(shape.clone(), to));
        words.walk("from_place", &raw::Walk::merged(shape, from));
        let source = || {
            format!(
                "{}{}{}{}{}{}",
                packed::PACKING,
                words.text(),
                raw::reader("update", 0, size),
                raw::writer("out", 1, size),
                raw::MAIN,
                include_str!("region.wgsl")
            )
        };
        call.launch(&Kernel {
            variant: format!("region {size}{}", words.key()),
            source: &source,
            bindings: &[Bind::Input(1), Bind::Output(0)],
            params: &words.words,
            groups: raw::threads_grid(update.size()),
        })
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(gradient) = &cotangents[0] else { return Ok(vec![None, None]) };
        let hidden = update_ranges(gradient, &zeros_like(&inputs[1])?, self.ranges.clone())?;
        Ok(vec![Some(hidden), Some(slice_ranges(gradient, &self.ranges)?)])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let whole = IndexRange { start: 0, count: batch.size, step: 1 };
        let inputs = batch.spread_all()?;
        let ranges = [&[whole], &self.ranges[..]].concat();
        Ok(vec![update_ranges(&inputs[0], &inputs[1], ranges)?])
    }
}

/// Writes a region row by row.
fn put_region<T: Copy>(
    output: &mut [T],
    offset: isize,
    to: &[isize],
    update: &[T],
    origin: isize,
    from: &[isize],
    shape: &[usize],
) {
    let Some(last) = shape.len().checked_sub(1) else {
        output[offset as usize] = update[origin as usize];
        return;
    };
    let (mut target, mut source) = (offset, origin);
    let mut index: SmallVec<[usize; 8]> = SmallVec::from_elem(0, last);
    loop {
        if (to[last], from[last]) == (1, 1) {
            let (target, source) = (target as usize, source as usize);
            output[target..target + shape[last]]
                .copy_from_slice(&update[source..source + shape[last]]);
        } else {
            for i in 0..shape[last] as isize {
                output[(target + i * to[last]) as usize] =
                    update[(source + i * from[last]) as usize];
            }
        }
        // Carry into the outer axes.
        let mut axis = last;
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            target += to[axis];
            source += from[axis];
            if index[axis] < shape[axis] {
                break;
            }
            target -= to[axis] * shape[axis] as isize;
            source -= from[axis] * shape[axis] as isize;
            index[axis] = 0;
        }
    }
}
