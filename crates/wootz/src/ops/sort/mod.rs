//! Sorting and searching: `sort`, `argsort`, `partition`, `argpartition`, `topk`, `searchsorted`,
//! `median`, `unique`.
//! Sorting is stable; NaN counts as larger than everything, and -0 equals +0.

mod composed;
mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
mod keys;
mod radix;
#[cfg(test)]
mod tests;

pub use composed::*;

use super::movement::{one_axis, slice_axis};
use crate::array::{Array, DType, Meta, normalize_axis};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Batch, Case, EVERY, Entry, Gradient, Metas, Op, Tolerance, evaluate_argument,
    expect_contiguous, expect_dtype, expect_inputs,
};
use crate::ops::{
    Axes, astype, expand_dims, flatten, isnan, less, less_equal, logical_and, logical_not,
    logical_or, moveaxis, reshape, sum, take_along_axis_backward,
};

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    let case = |label: &str, shape: &[usize], call: fn(&Array) -> Result<Array>| {
        Case::new(label, &[shape], move |x| Ok(vec![call(&x[0])?]))
            .dtypes(EVERY)
            .tolerance(Tolerance::Exact)
    };
    let search = |label: &str, shape: &[usize], side: Side| {
        Case::new(label, &[&[301], shape], move |x| {
            let sorted = sort(&x[0], 0)?;
            evaluate_argument(&sorted)?;
            Ok(vec![searchsorted(&sorted, &x[1], side)?])
        })
        .dtypes(EVERY)
        .tolerance(Tolerance::Exact)
        .gradient(Gradient::Zero)
    };
    let mut entries = vec![
        Entry {
            name: "sort",
            cases: vec![
                case("last axis", &[3, 7], |x| sort(x, -1)),
                case("first axis", &[7, 3], |x| sort(x, 0)),
                case("flattened", &[5, 3], |x| sort(x, ())),
                case("one element", &[4, 1], |x| sort(x, -1)),
                case("nothing", &[4, 0], |x| sort(x, -1)),
                case("longer than a block", &[2, 300], |x| sort(x, -1)),
                case("many blocks", &[2, 1100], |x| sort(x, -1)),
            ],
        },
        Entry {
            name: "argsort",
            cases: vec![
                case("last axis", &[3, 7], |x| argsort(x, -1)).gradient(Gradient::Zero),
                case("middle axis", &[2, 9, 3], |x| argsort(x, 1)).gradient(Gradient::Zero),
                case("longer than a block", &[3, 513], |x| argsort(x, -1)).gradient(Gradient::Zero),
                case("many blocks", &[2, 1100], |x| argsort(x, -1)).gradient(Gradient::Zero),
            ],
        },
        Entry {
            name: "partition",
            cases: vec![
                case("short", &[3, 7], |x| partition(x, 2, -1)),
                case("longer than a block", &[2, 600], |x| partition(x, 300, -1)),
            ],
        },
        Entry {
            name: "argpartition",
            cases: vec![
                case("short", &[3, 7], |x| argpartition(x, 2, -1)).gradient(Gradient::Zero),
                case("longer than a block", &[2, 600], |x| argpartition(x, 300, -1))
                    .gradient(Gradient::Zero),
            ],
        },
        Entry {
            name: "topk",
            cases: vec![
                case("some", &[3, 7], |x| topk(x, 3, -1)),
                case("longer than a block", &[2, 600], |x| topk(x, 40, -1)),
                case("more than a block", &[2, 1100], |x| topk(x, 270, -1)),
                case("largest", &[1025, 3], |x| topk(x, 1, 0)),
                case("none", &[3, 7], |x| topk(x, 0, 0)),
            ],
        },
        Entry {
            name: "searchsorted",
            cases: vec![
                search("left", &[5, 70], Side::Left),
                search("right", &[1025], Side::Right),
            ],
        },
    ];
    entries.extend(composed::entries());
    entries
}

/// The elements in rising order along `axis`, or all of them flattened with `()`.
///
/// ```
/// use wootz::{Array, sort};
/// let x = Array::new([[3, 1], [0, 2]])?;
/// assert_eq!(sort(&x, -1)?.to_vec::<i32>()?, [1, 3, 0, 2]);
/// assert_eq!(sort(&x, ())?.to_vec::<i32>()?, [0, 1, 2, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn sort(x: &Array, axis: impl Into<Axes>) -> Result<Array> {
    by_rows("sort", x, &axis.into(), |rows| Array::apply(Sort { indices: false }, &[rows]))
}

/// The indices (`uint32`) that put the elements in rising order along `axis`, or those of the
/// flattened array with `()`. Equal elements keep their order.
///
/// ```
/// use wootz::{Array, argsort};
/// let x = Array::new([3.0f32, 1.0, 2.0])?;
/// assert_eq!(argsort(&x, -1)?.to_vec::<u32>()?, [1, 2, 0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn argsort(x: &Array, axis: impl Into<Axes>) -> Result<Array> {
    by_rows("argsort", x, &axis.into(), |rows| Array::apply(Sort { indices: true }, &[rows]))
}

/// The elements along `axis` with element `kth` in its sorted place, smaller ones before it and
/// larger ones behind it. A negative `kth` counts from the end.
///
/// ```
/// use wootz::{Array, partition};
/// let x = partition(&Array::new([3, 1, 2])?, 1, -1)?;
/// assert_eq!(x.to_vec::<i32>()?[1], 2);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn partition(x: &Array, kth: i64, axis: impl Into<Axes>) -> Result<Array> {
    let axis = axis.into();
    check_kth("partition", x, kth, &axis)?;
    by_rows("partition", x, &axis, |rows| Array::apply(Sort { indices: false }, &[rows]))
}

/// The indices (`uint32`) that [`partition`] the elements along `axis`.
///
/// ```
/// use wootz::{Array, argpartition};
/// let indices = argpartition(&Array::new([3, 1, 2])?, 1, -1)?;
/// assert_eq!(indices.to_vec::<u32>()?[1], 2);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn argpartition(x: &Array, kth: i64, axis: impl Into<Axes>) -> Result<Array> {
    let axis = axis.into();
    check_kth("argpartition", x, kth, &axis)?;
    by_rows("argpartition", x, &axis, |rows| Array::apply(Sort { indices: true }, &[rows]))
}

/// The `k` largest elements along `axis`, in no promised order.
///
/// ```
/// use wootz::{Array, topk};
/// assert_eq!(topk(&Array::new([3, 1, 2])?, 2, -1)?.to_vec::<i32>()?, [2, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn topk(x: &Array, k: usize, axis: impl Into<Axes>) -> Result<Array> {
    by_rows("topk", x, &axis.into(), |rows| {
        let last = rows.rank() - 1;
        let length = rows.shape()[last];
        if k > length {
            let expected = format!("at most the {length} elements of the axis");
            return Err(Error::argument("topk", "k", expected, k));
        }
        if k == length {
            // The order is not promised, and all of them are there already.
            return Ok(rows.clone());
        }
        match k {
            0 => slice_axis(rows, last, 0, 0, 1),
            _ => Array::apply(TopK { k }, &[rows]),
        }
    })
}

/// Which of equal elements [`searchsorted`] places a value beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before the first: the number of elements less than the value.
    Left,
    /// Behind the last: the number of elements not greater than the value.
    Right,
}

/// The indices (`uint32`) at which the values would keep `sorted_sequence`, a sorted vector, in
/// order.
///
/// ```
/// use wootz::{Array, Side, searchsorted};
/// let sorted = Array::new([1, 2, 2, 4])?;
/// let values = Array::new([0, 2, 5])?;
/// assert_eq!(searchsorted(&sorted, &values, Side::Left)?.to_vec::<u32>()?, [0, 1, 4]);
/// assert_eq!(searchsorted(&sorted, &values, Side::Right)?.to_vec::<u32>()?, [0, 3, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn searchsorted(sorted_sequence: &Array, values: &Array, side: Side) -> Result<Array> {
    let dtype = DType::promote(sorted_sequence.dtype(), values.dtype());
    let sorted = astype(sorted_sequence, dtype)?.contiguous()?;
    Array::apply(SearchSorted { side }, &[&sorted, &astype(values, dtype)?.contiguous()?])
}

impl Array {
    /// See [`sort`].
    pub fn sort(&self, axis: impl Into<Axes>) -> Result<Array> {
        sort(self, axis)
    }

    /// See [`argsort`].
    pub fn argsort(&self, axis: impl Into<Axes>) -> Result<Array> {
        argsort(self, axis)
    }
}

/// Applies `f` to the array with `axis` last and row-major, and moves the axis back.
fn by_rows(
    op: &'static str,
    x: &Array,
    axis: &Axes,
    f: impl Fn(&Array) -> Result<Array>,
) -> Result<Array> {
    let Some(axis) = one_axis(op, axis, x.rank())? else {
        return f(&flatten(x, 0, -1)?.contiguous()?);
    };
    let rows = moveaxis(x, axis as i64, -1)?.contiguous()?;
    moveaxis(&f(&rows)?, -1, axis as i64)
}

fn check_kth(op: &'static str, x: &Array, kth: i64, axis: &Axes) -> Result<()> {
    let length = one_axis(op, axis, x.rank())?.map_or(x.size(), |axis| x.shape()[axis]);
    if normalize_axis(op, kth, length).is_err() {
        let expected = format!("an index of an axis of length {length}");
        return Err(Error::argument(op, "kth", expected, kth));
    }
    Ok(())
}

/// Sorts the last axis of a row-major array, or tells the indices that do.
#[derive(Clone, Debug)]
struct Sort {
    indices: bool,
}

impl Op for Sort {
    fn name(&self) -> &'static str {
        if self.indices { "argsort" } else { "sort" }
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        expect_contiguous(self, inputs, 0)?;
        let shape = inputs[0].shape();
        match shape.last() {
            None => return Err(Error::shape(self.name(), "x", "one of at least 1 axis", shape)),
            Some(&length) if length > u32::MAX as usize => {
                let (op, argument, got) = (self.name(), "x".into(), format!("axis of {length}"));
                return Err(Error::SizeOverflow { op, argument, got, limit: u32::MAX as u64 });
            }
            _ => {}
        }
        let dtype = if self.indices { DType::U32 } else { inputs[0].dtype };
        Ok(Metas::from_elem(Meta::new(self.name(), shape, dtype)?, 1))
    }

    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        match gpu {
            #[cfg(feature = "gpu")]
            true => gpu::scratch(inputs[0]),
            _ => cpu::scratch(inputs[0], self.indices),
        }
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        if self.indices { cpu::argsort(call) } else { cpu::sort(call) }
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let length = call.meta(0).shape().last().copied().unwrap_or(1);
        gpu::sort(call, self.indices, length)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(gradient) = cotangents[0].as_ref().filter(|_| !self.indices) else {
            return Ok(vec![None]);
        };
        let indices = Array::apply(Sort { indices: true }, &[&inputs[0]])?;
        let last = gradient.rank() - 1;
        let length = gradient.shape()[last];
        Ok(vec![Some(take_along_axis_backward(&indices, gradient, last as i64, length)?)])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

/// The `k` largest elements along the last axis of a row-major array, in rising order.
#[derive(Clone, Debug)]
struct TopK {
    k: usize,
}

impl TopK {
    /// The end of the sorted rows.
    fn sliced(&self, rows: &Array) -> Result<Array> {
        let sorted = Array::apply(Sort { indices: false }, &[rows])?;
        let last = rows.rank() - 1;
        let length = rows.shape()[last];
        slice_axis(&sorted, last, length - self.k, length, 1)
    }
}

impl Op for TopK {
    fn name(&self) -> &'static str {
        "topk"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        expect_contiguous(self, inputs, 0)?;
        let mut shape = inputs[0].shape().to_vec();
        match shape.last_mut() {
            Some(length) if *length >= self.k && self.k > 0 => *length = self.k,
            _ => {
                let expected = format!("{} elements or more along the last axis", self.k.max(1));
                return Err(Error::shape(self.name(), "x", expected, inputs[0].shape()));
            }
        }
        Ok(Metas::from_elem(Meta::new(self.name(), &shape, inputs[0].dtype)?, 1))
    }

    #[cfg(feature = "gpu")]
    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        if gpu { gpu::scratch(inputs[0]) } else { 0 }
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::topk(call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::sort(call, false, self.k)
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(inputs.iter().map(|rows| self.sliced(rows)).collect())
    }
}

/// Binary search of the second input's elements in the first, a sorted vector.
#[derive(Clone, Debug)]
struct SearchSorted {
    side: Side,
}

impl Op for SearchSorted {
    fn name(&self) -> &'static str {
        "searchsorted"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["sorted_sequence", "values", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 2)?;
        expect_contiguous(self, inputs, 0)?;
        expect_contiguous(self, inputs, 1)?;
        expect_dtype(self, inputs, 1, inputs[0].dtype)?;
        let [length] = *inputs[0].shape() else {
            let expected = "one of 1 axis";
            return Err(Error::shape(self.name(), "sorted_sequence", expected, inputs[0].shape()));
        };
        if length > u32::MAX as usize {
            let (op, argument) = (self.name(), "sorted_sequence".into());
            let got = format!("{length} elements");
            return Err(Error::SizeOverflow { op, argument, got, limit: u32::MAX as u64 });
        }
        Ok(Metas::from_elem(Meta::new(self.name(), inputs[1].shape(), DType::U32)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::searchsorted(call, self.side)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::searchsorted(call, self.side)
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        Ok(vec![None, None])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        if !batch.batched[0] {
            return batch.again(&[batch.inputs[0].clone(), batch.inputs[1].contiguous()?]);
        }
        // A sequence of its own for each: the elements before each value are counted.
        let behind = vec![1; batch.shape(1).len()];
        let sorted = [&[batch.size], &behind[..], batch.shape(0)].concat();
        let (sorted, values) =
            (reshape(&batch.inputs[0], &sorted)?, expand_dims(&batch.inputs[1], -1)?);
        let before = match self.side {
            Side::Left => logical_or(
                less(&sorted, &values)?,
                logical_and(isnan(&values)?, logical_not(isnan(&sorted)?)?)?,
            )?,
            Side::Right => logical_or(less_equal(&sorted, &values)?, isnan(&values)?)?,
        };
        Ok(vec![astype(&sum(&before, -1, false)?, DType::U32)?])
    }
}
