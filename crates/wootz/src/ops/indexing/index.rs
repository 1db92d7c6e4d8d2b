//! Indexing that reads like Python's: integers, ranges, new axes, an ellipsis, integer arrays, and
//! tuples of them, for reading and for updating.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use super::slice_update::{IndexRange, slice_ranges};
use crate::array::{Arg, Array, DType, Shape, broadcast_shapes};
use crate::error::{Error, Result};
use crate::op::{Case, EVERY, Entry, Tolerance};
use crate::ops::{astype, reshape};

const OP: &str = "index";

/// Cases of reading by index.
pub(super) fn entries() -> Vec<Entry> {
    type Call = fn(&[Array]) -> Result<Array>;
    let case = |label: &str, shapes: &[&[usize]], call: Call| {
        Case::new(label, shapes, move |x| Ok(vec![call(x)?]))
            .dtypes(EVERY)
            .tolerance(Tolerance::Exact)
    };
    let arrays = |label: &str, call: Call| {
        case(label, &[&[3, 4, 5], &[2, 1], &[3]], call).fixed(1, DType::U32, 0.0..3.0).fixed(
            2,
            DType::I32,
            -3.0..3.0,
        )
    };
    vec![Entry {
        name: "index",
        cases: vec![
            case("basic", &[&[4, 5, 6]], |x| x[0].index((1, NewAxis, .., (..).step(-2)))),
            case("ellipsis", &[&[4, 5, 6]], |x| x[0].index((Ellipsis, ..-1))),
            arrays("adjacent", |x| x[0].index((.., &x[1], &x[2]))),
            arrays("separated", |x| x[0].index((&x[1], 1..3, &x[2]))),
            arrays("with an integer", |x| x[0].index((&x[1], 2, NewAxis))),
        ],
    }]
}

/// One position of an index.
#[derive(Clone)]
pub enum Index {
    /// One element; the axis goes away. Negative integers count from the end.
    Int(i64),
    /// Some elements.
    Slice(Slice),
    /// An axis of length 1 that was not there.
    NewAxis,
    /// As many whole axes as are left; also written [`Ellipsis`].
    Ellipsis,
    /// The elements at these integers.
    Array(Array),
}

/// A new axis of length 1 in an index.
///
/// ```
/// use wootz::{Array, NewAxis};
/// assert_eq!(Array::new([1, 2])?.index((.., NewAxis))?.shape(), [2, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;

/// All axes that an index does not name.
///
/// ```
/// use wootz::{Array, Ellipsis};
/// let x = Array::new([[[1, 2], [3, 4]]])?;
/// assert_eq!(x.index((Ellipsis, 0))?.to_vec::<i32>()?, [1, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ellipsis;

/// A range with a step, as in Python: ends that are left out reach to the end of the axis,
/// negative ones count from it, and those outside are clipped.
///
/// ```
/// use wootz::{Array, IndexStep, Slice};
/// let x = Array::new([0, 1, 2, 3, 4])?;
/// assert_eq!(x.index(Slice::new(3, None, -2))?.to_vec::<i32>()?, [3, 1]);
/// assert_eq!(x.index((1..).step(2))?.to_vec::<i32>()?, [1, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
}

impl Slice {
    /// `start..stop` in steps.
    pub fn new(
        start: impl Into<Option<i64>>,
        stop: impl Into<Option<i64>>,
        step: impl Into<Option<i64>>,
    ) -> Slice {
        Slice { start: start.into(), stop: stop.into(), step: step.into().unwrap_or(1) }
    }

    /// The elements of an axis that this names.
    fn resolve(&self, length: usize) -> Result<IndexRange> {
        let (length, step) = (length as i64, self.step);
        if step == 0 {
            return Err(Error::argument(OP, "step", "a step other than 0", step));
        }
        // Downward ranges stop before the first element, upward ones behind the last.
        let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
        let clip = |end: i64| {
            (if end < 0 { end.saturating_add(length) } else { end }).clamp(low, high.max(low))
        };
        let (first, last) = if step > 0 { (low, high) } else { (high, low) };
        let start = self.start.map_or(first, clip);
        let stop = self.stop.map_or(last, clip);
        let span = if step > 0 { stop - start } else { start - stop };
        let count = span.max(0) as u64;
        let count = count.div_ceil(step.unsigned_abs()) as usize;
        let start = if count == 0 { 0 } else { start as usize };
        // A step past the end of the axis is never taken.
        let step = if count <= 1 { step.signum() } else { step };
        Ok(IndexRange { start, count, step: step as isize })
    }
}

/// Gives ranges a step: `(1..7).step(2)`.
pub trait IndexStep {
    /// This range in steps; a negative step runs from `start` down to `stop`.
    fn step(self, step: i64) -> Slice;
}

impl<R: Into<Slice>> IndexStep for R {
    fn step(self, step: i64) -> Slice {
        Slice { step, ..self.into() }
    }
}

impl From<RangeFull> for Slice {
    fn from(_: RangeFull) -> Slice {
        Slice { start: None, stop: None, step: 1 }
    }
}

/// The stop behind an inclusive end; -1 is the last element.
fn behind(end: i64) -> Option<i64> {
    if end == -1 { None } else { end.checked_add(1) }
}

macro_rules! from_integers {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Index {
            fn from(index: $integer) -> Index {
                Index::Int(i64::try_from(index).unwrap_or(i64::MAX))
            }
        }
        impl From<Range<$integer>> for Slice {
            fn from(range: Range<$integer>) -> Slice {
                Slice { start: Some(range.start as i64), stop: Some(range.end as i64), step: 1 }
            }
        }
        impl From<RangeFrom<$integer>> for Slice {
            fn from(range: RangeFrom<$integer>) -> Slice {
                Slice { start: Some(range.start as i64), stop: None, step: 1 }
            }
        }
        impl From<RangeTo<$integer>> for Slice {
            fn from(range: RangeTo<$integer>) -> Slice {
                Slice { start: None, stop: Some(range.end as i64), step: 1 }
            }
        }
        impl From<RangeInclusive<$integer>> for Slice {
            fn from(range: RangeInclusive<$integer>) -> Slice {
                let start = Some(*range.start() as i64);
                Slice { start, stop: behind(*range.end() as i64), step: 1 }
            }
        }
        impl From<RangeToInclusive<$integer>> for Slice {
            fn from(range: RangeToInclusive<$integer>) -> Slice {
                Slice { start: None, stop: behind(range.end as i64), step: 1 }
            }
        }
        into_indices!($integer, Range<$integer>, RangeFrom<$integer>, RangeTo<$integer>,
            RangeInclusive<$integer>, RangeToInclusive<$integer>);
        index_from_slice!(Range<$integer>, RangeFrom<$integer>, RangeTo<$integer>,
            RangeInclusive<$integer>, RangeToInclusive<$integer>);
    )*};
}

macro_rules! index_from_slice {
    ($($type:ty),*) => {$(
        impl From<$type> for Index {
            fn from(range: $type) -> Index {
                Index::Slice(range.into())
            }
        }
    )*};
}

/// What can stand in the brackets of an index: one position, a tuple of up to eight, or a slice of
/// [`Index`].
pub trait IntoIndices {
    /// The positions.
    fn into_indices(self) -> Vec<Index>;
}

/// Types that are one position.
macro_rules! into_indices {
    ($($type:ty),*) => {$(
        impl IntoIndices for $type {
            fn into_indices(self) -> Vec<Index> {
                vec![self.into()]
            }
        }
    )*};
}

from_integers!(i32, i64, usize);
into_indices!(RangeFull, Slice, NewAxis, Ellipsis, Array, &Array, Index);
index_from_slice!(RangeFull, Slice);

impl From<NewAxis> for Index {
    fn from(_: NewAxis) -> Index {
        Index::NewAxis
    }
}

impl From<Ellipsis> for Index {
    fn from(_: Ellipsis) -> Index {
        Index::Ellipsis
    }
}

impl From<Array> for Index {
    fn from(array: Array) -> Index {
        Index::Array(array)
    }
}

impl From<&Array> for Index {
    fn from(array: &Array) -> Index {
        Index::Array(array.clone())
    }
}

impl IntoIndices for &[Index] {
    fn into_indices(self) -> Vec<Index> {
        self.to_vec()
    }
}

impl IntoIndices for Vec<Index> {
    fn into_indices(self) -> Vec<Index> {
        self
    }
}

impl IntoIndices for () {
    fn into_indices(self) -> Vec<Index> {
        Vec::new()
    }
}

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<$($name: Into<Index>),+> IntoIndices for ($($name,)+) {
            #[allow(non_snake_case)]
            fn into_indices(self) -> Vec<Index> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);

impl Array {
    /// The elements at an index: an integer, a range, [`NewAxis`], [`Ellipsis`], an array of
    /// integers, or a tuple of these.
    ///
    /// Integers and ranges give a view. Arrays broadcast together and pick elements; their axes
    /// stand where the arrays stood if those are neighbours, and first otherwise, as in NumPy.
    ///
    /// ```
    /// use wootz::{Array, NewAxis};
    /// let x = Array::new([[1, 2, 3], [4, 5, 6]])?;
    /// assert_eq!(x.index((-1, 0))?.item::<i32>()?, 4);
    /// assert_eq!(x.index((.., 1..))?.to_vec::<i32>()?, [2, 3, 5, 6]);
    /// assert_eq!(x.index((.., NewAxis, ..-1))?.shape(), [2, 1, 2]);
    /// let columns = Array::new([2, 0])?;
    /// assert_eq!(x.index((.., &columns))?.to_vec::<i32>()?, [3, 1, 6, 4]);
    /// assert!(x.index(2).is_err());
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn index(&self, index: impl IntoIndices) -> Result<Array> {
        Plan::new(self, index.into_indices())?.read(self)
    }
}

/// An index made fit for an array.
pub(super) struct Plan {
    /// What is read of each axis of the array; one element where the index is an integer.
    pub(super) ranges: Vec<IndexRange>,
    /// The shape of that without the axes of integers.
    pub(super) base: Shape,
    /// Index arrays, with their axis in `base`.
    pub(super) arrays: Vec<(usize, Array)>,
    /// How many axes of the result stand before those of the arrays, not counting new ones.
    pub(super) before: usize,
    /// The shape of the result.
    pub(super) shape: Shape,
}

impl Plan {
    pub(super) fn new(x: &Array, indices: Vec<Index>) -> Result<Plan> {
        let indices = expand(x, indices)?;
        let arrays_like = |index: &Index| matches!(index, Index::Array(_) | Index::Int(_));
        let any_array = indices.iter().any(|index| matches!(index, Index::Array(_)));
        // Separated by anything else, the arrays' axes come first.
        let first = indices.iter().position(arrays_like).unwrap_or(0);
        let last = indices.iter().rposition(arrays_like).unwrap_or(0);
        let separated = any_array && !indices[first..=last].iter().all(arrays_like);
        let mut common = Shape::new();
        for index in &indices {
            if let Index::Array(array) = index {
                super::offsets::check_index_dtype(OP, "indices", array.dtype())?;
                common = broadcast_shapes(OP, &common, array.shape())?;
            }
        }
        let mut plan = Plan {
            ranges: Vec::with_capacity(x.rank()),
            base: Shape::new(),
            arrays: Vec::new(),
            before: 0,
            shape: Shape::new(),
        };
        if separated {
            plan.shape.extend_from_slice(&common);
        }
        let mut kept = 0;
        for (position, index) in indices.into_iter().enumerate() {
            let length = x.shape().get(plan.ranges.len()).copied().unwrap_or(0);
            if any_array && !separated && position == first {
                plan.before = kept;
                plan.shape.extend_from_slice(&common);
            }
            match index {
                Index::NewAxis => plan.shape.push(1),
                Index::Int(index) => {
                    let start = resolve(OP, index, length)?;
                    plan.ranges.push(IndexRange { start, count: 1, step: 1 });
                }
                Index::Slice(slice) => {
                    let range = slice.resolve(length)?;
                    plan.ranges.push(range);
                    plan.base.push(range.count);
                    plan.shape.push(range.count);
                    kept += 1;
                }
                Index::Array(array) => {
                    plan.ranges.push(IndexRange { start: 0, count: length, step: 1 });
                    plan.arrays.push((plan.base.len(), array));
                    plan.base.push(length);
                }
                Index::Ellipsis => {}
            }
        }
        Ok(plan)
    }

    /// The part of the array that arrays index into: a view.
    pub(super) fn base_of(&self, x: &Array) -> Result<Array> {
        reshape(&slice_ranges(x, &self.ranges)?, &self.base)
    }

    pub(super) fn items(&self) -> Vec<(usize, &Array)> {
        self.arrays.iter().map(|(axis, array)| (*axis, array)).collect()
    }

    fn read(&self, x: &Array) -> Result<Array> {
        let base = self.base_of(x)?;
        if self.arrays.is_empty() {
            return reshape(&base, &self.shape);
        }
        let gathered = super::gather::gather_axes(OP, &base, &self.items(), self.before)?;
        reshape(&gathered, &self.shape)
    }
}

/// Replaces the ellipsis, or the end, by whole axes.
fn expand(x: &Array, mut indices: Vec<Index>) -> Result<Vec<Index>> {
    let of_axes = |index: &&Index| !matches!(index, Index::NewAxis | Index::Ellipsis);
    let named = indices.iter().filter(of_axes).count();
    if named > x.rank() {
        let expected = format!("at most {}, one for each axis", x.rank());
        return Err(Error::argument(OP, "indices", expected, named));
    }
    let ellipsis = |index: &Index| matches!(index, Index::Ellipsis);
    if indices.iter().filter(|index| ellipsis(index)).count() > 1 {
        return Err(Error::argument(OP, "indices", "at most one ellipsis", "several"));
    }
    let place = indices.iter().position(ellipsis).unwrap_or(indices.len());
    let rest = std::iter::repeat_n(Index::Slice((..).into()), x.rank() - named);
    indices.splice(place..(place + 1).min(indices.len()), rest);
    Ok(indices)
}

/// The elements at one index of an axis, which goes away: a view.
pub(super) fn pick(op: &'static str, x: &Array, axis: usize, index: i64) -> Result<Array> {
    let start = resolve(op, index, x.shape()[axis])?;
    let mut ranges: Vec<IndexRange> =
        x.shape().iter().map(|&count| IndexRange { start: 0, count, step: 1 }).collect();
    ranges[axis] = IndexRange { start, count: 1, step: 1 };
    let mut shape = x.shape().to_vec();
    shape.remove(axis);
    reshape(&slice_ranges(x, &ranges)?, &shape)
}

/// A value to store into `x`, in its dtype.
pub(super) fn value_like(value: Arg, x: &Array) -> Result<Array> {
    match value {
        // A scalar of another device is moved before it is broadcast.
        Arg::Array(value) if value.rank() == 0 => {
            crate::ops::to_device(&astype(&value, x.dtype())?, x.device())
        }
        Arg::Array(value) => astype(&value, x.dtype()),
        Arg::Scalar(value) => crate::ops::constant(value, x.dtype(), x.device()),
    }
}

/// An index counted from the front, if it is in range.
fn resolve(op: &'static str, index: i64, length: usize) -> Result<usize> {
    let place = if index < 0 { index.saturating_add(length as i64) } else { index };
    if place < 0 || place >= length as i64 {
        return Err(Error::Index { op, argument: "indices".into(), got: index, length });
    }
    Ok(place as usize)
}
