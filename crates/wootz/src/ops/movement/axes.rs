//! Views that move, add, drop, merge and split axes, and cuts along an axis.

use std::borrow::Borrow;

use super::{concatenate, moving_case, slice_axis};
use crate::array::{Array, Meta, Shape, broadcast_shapes, normalize_axis};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
use crate::op::{Batch, Case, EVERY, Entry, Metas, Op, Tolerance, expect_inputs};
use crate::ops::{Axes, broadcast_to, reshape, transpose_axes, zeros_like};

/// Cases of axes.
pub(crate) fn entries() -> Vec<Entry> {
    let split_case = |label: &str, shape: &[usize], call: fn(&Array) -> Result<Vec<Array>>| {
        Case::new(label, &[shape], move |x| call(&x[0])).dtypes(EVERY).tolerance(Tolerance::Exact)
    };
    vec![
        Entry {
            name: "moveaxis",
            cases: vec![moving_case("first to last", &[2, 3, 4], |x| moveaxis(x, 0, -1))],
        },
        Entry {
            name: "swapaxes",
            cases: vec![moving_case("outer", &[2, 3, 4], |x| swapaxes(x, 0, 2))],
        },
        Entry {
            name: "expand_dims",
            cases: vec![moving_case("both ends", &[2, 3], |x| expand_dims(x, [0, -1]))],
        },
        Entry {
            name: "squeeze",
            cases: vec![
                moving_case("all", &[1, 3, 1], |x| squeeze(x, ())),
                moving_case("one", &[1, 3, 1], |x| squeeze(x, -1)),
            ],
        },
        Entry {
            name: "flatten",
            cases: vec![
                moving_case("all", &[2, 3, 4], |x| flatten(x, 0, -1)),
                moving_case("tail", &[2, 3, 4], |x| flatten(x, 1, 2)),
            ],
        },
        Entry {
            name: "unflatten",
            cases: vec![moving_case("inferred", &[2, 12], |x| unflatten(x, 1, &[3, -1]))],
        },
        Entry {
            name: "split",
            cases: vec![
                split_case("sections", &[4, 6], |x| split(x, 3, 1)),
                split_case("cuts", &[7, 3], |x| split(x, [2, 5], 0)),
            ],
        },
        Entry { name: "unstack", cases: vec![split_case("middle", &[2, 3, 4], |x| unstack(x, 1))] },
    ]
}

/// The array with one axis moved to another place.
///
/// ```
/// let x = wootz::Array::zeros(&[2, 3, 4], wootz::DType::F32)?;
/// assert_eq!(wootz::moveaxis(&x, 0, -1)?.shape(), [3, 4, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn moveaxis(x: &Array, source: i64, destination: i64) -> Result<Array> {
    let source = normalize_axis("moveaxis", source, x.rank())?;
    let destination = normalize_axis("moveaxis", destination, x.rank())?;
    let mut order: Vec<i64> = (0..x.rank() as i64).collect();
    let axis = order.remove(source);
    order.insert(destination, axis);
    transpose_axes(x, &order)
}

/// The array with two axes exchanged.
///
/// ```
/// let x = wootz::Array::zeros(&[2, 3, 4], wootz::DType::F32)?;
/// assert_eq!(wootz::swapaxes(&x, 0, -1)?.shape(), [4, 3, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn swapaxes(x: &Array, axis1: i64, axis2: i64) -> Result<Array> {
    let first = normalize_axis("swapaxes", axis1, x.rank())?;
    let second = normalize_axis("swapaxes", axis2, x.rank())?;
    let mut order: Vec<i64> = (0..x.rank() as i64).collect();
    order.swap(first, second);
    transpose_axes(x, &order)
}

/// The array with new axes of length 1 at these places of the result.
///
/// ```
/// let x = wootz::Array::new([1, 2])?;
/// assert_eq!(wootz::expand_dims(&x, 0)?.shape(), [1, 2]);
/// assert_eq!(wootz::expand_dims(&x, [0, -1])?.shape(), [1, 2, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn expand_dims(x: &Array, axis: impl Into<Axes>) -> Result<Array> {
    let Axes::These(axes) = axis.into() else { return Ok(x.clone()) };
    let rank = x.rank() + axes.len();
    let new = Axes::These(axes).normalize("expand_dims", rank)?;
    let mut old = x.shape().iter();
    let shape: Shape = (0..rank)
        .map(|axis| if new.contains(&axis) { 1 } else { old.next().copied().unwrap_or(1) })
        .collect();
    reshape(x, &shape)
}

/// The array without these axes of length 1; with `()`, without any of length 1.
///
/// ```
/// let x = wootz::Array::new([[[1], [2]]])?;
/// assert_eq!(wootz::squeeze(&x, ())?.shape(), [2]);
/// assert_eq!(wootz::squeeze(&x, -1)?.shape(), [1, 2]);
/// assert!(wootz::squeeze(&x, 1).is_err());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn squeeze(x: &Array, axis: impl Into<Axes>) -> Result<Array> {
    let axis = axis.into();
    let all = axis == Axes::All;
    let axes = axis.normalize("squeeze", x.rank())?;
    let mut shape = Shape::new();
    for (axis, &length) in x.shape().iter().enumerate() {
        match (axes.contains(&axis), length) {
            (true, 1) => {}
            (true, _) if !all => {
                let expected = format!("one with length 1 in axis {axis}");
                return Err(Error::shape("squeeze", "x", expected, x.shape()));
            }
            _ => shape.push(length),
        }
    }
    reshape(x, &shape)
}

/// The array with the axes `start_axis..=end_axis` merged into one. Axes beyond the ends mean the
/// ends; a scalar becomes an array of one axis.
///
/// ```
/// let x = wootz::Array::zeros(&[2, 3, 4], wootz::DType::F32)?;
/// assert_eq!(wootz::flatten(&x, 0, -1)?.shape(), [24]);
/// assert_eq!(wootz::flatten(&x, 1, 2)?.shape(), [2, 12]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn flatten(x: &Array, start_axis: i64, end_axis: i64) -> Result<Array> {
    if x.rank() == 0 {
        return reshape(x, &[1]);
    }
    let rank = x.rank() as i64;
    let from_front = |axis: i64| if axis < 0 { axis.saturating_add(rank) } else { axis };
    let (start, end) = (from_front(start_axis).max(0), from_front(end_axis).min(rank - 1));
    if start > end {
        let got = format!("{start_axis} and {end_axis}");
        return Err(Error::argument("flatten", "axes", "start_axis not behind end_axis", got));
    }
    let (start, end) = (start as usize, end as usize);
    let mut shape = Shape::from_slice(&x.shape()[..start]);
    shape.push(x.shape()[start..=end].iter().product());
    shape.extend_from_slice(&x.shape()[end + 1..]);
    reshape(x, &shape)
}

/// The array with one axis split into several; one of the lengths may be -1 and is inferred.
///
/// ```
/// let x = wootz::Array::zeros(&[2, 12], wootz::DType::F32)?;
/// assert_eq!(wootz::unflatten(&x, 1, &[3, -1])?.shape(), [2, 3, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn unflatten(x: &Array, axis: i64, shape: &[i64]) -> Result<Array> {
    if shape.is_empty() {
        return Err(Error::argument("unflatten", "shape", "at least one length", "none"));
    }
    let axis = normalize_axis("unflatten", axis, x.rank())?;
    let parts = infer_length("unflatten", shape, x.shape()[axis])?;
    if parts.iter().product::<usize>() != x.shape()[axis] {
        let expected = format!("one of {} elements", x.shape()[axis]);
        return Err(Error::shape("unflatten", "shape", expected, &parts));
    }
    let mut whole = Shape::from_slice(&x.shape()[..axis]);
    whole.extend_from_slice(&parts);
    whole.extend_from_slice(&x.shape()[axis + 1..]);
    reshape(x, &whole)
}

/// As [`reshape`], but one of the lengths may be -1 and is inferred from the number of elements.
///
/// ```
/// let x = wootz::Array::zeros(&[2, 6], wootz::DType::F32)?;
/// assert_eq!(wootz::reshape_infer(&x, &[3, -1])?.shape(), [3, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn reshape_infer(x: &Array, shape: &[i64]) -> Result<Array> {
    reshape(x, &infer_length("reshape", shape, x.size())?)
}

/// The lengths, with at most one -1 replaced by what is left of `size`.
fn infer_length(op: &'static str, shape: &[i64], size: usize) -> Result<Shape> {
    let bad = |expected: &str| Error::argument(op, "shape", expected, format!("{shape:?}"));
    let mut known = 1usize;
    let mut missing = None;
    for (axis, &length) in shape.iter().enumerate() {
        match (usize::try_from(length), missing) {
            (Ok(length), _) => {
                known = known.checked_mul(length).ok_or_else(|| bad("lengths that fit memory"))?;
            }
            (Err(_), None) if length == -1 => missing = Some(axis),
            (Err(_), Some(_)) if length == -1 => return Err(bad("at most one length of -1")),
            _ => return Err(bad("lengths of -1 or more")),
        }
    }
    if missing.is_some() && known == 0 {
        return Err(bad("no axis of length 0 beside the inferred one"));
    }
    let length = |(axis, &length): (usize, &i64)| match missing {
        Some(inferred) if inferred == axis => size / known,
        _ => length as usize,
    };
    Ok(shape.iter().enumerate().map(length).collect())
}

/// The array itself, or of shape `[1]` if it is a scalar.
///
/// ```
/// let x = wootz::Array::scalar(3, wootz::DType::I32)?;
/// assert_eq!(wootz::atleast_1d(&x)?.shape(), [1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn atleast_1d(x: &Array) -> Result<Array> {
    if x.rank() == 0 { reshape(x, &[1]) } else { Ok(x.clone()) }
}

/// The array with at least two axes: a vector becomes a row.
///
/// ```
/// let x = wootz::Array::new([1, 2])?;
/// assert_eq!(wootz::atleast_2d(&x)?.shape(), [1, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn atleast_2d(x: &Array) -> Result<Array> {
    match *x.shape() {
        [] => reshape(x, &[1, 1]),
        [length] => reshape(x, &[1, length]),
        _ => Ok(x.clone()),
    }
}

/// The array with at least three axes: a vector of length n becomes `[1, n, 1]`, a matrix
/// `[rows, columns, 1]`.
///
/// ```
/// let x = wootz::Array::new([1, 2])?;
/// assert_eq!(wootz::atleast_3d(&x)?.shape(), [1, 2, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn atleast_3d(x: &Array) -> Result<Array> {
    match *x.shape() {
        [] => reshape(x, &[1, 1, 1]),
        [length] => reshape(x, &[1, length, 1]),
        [rows, columns] => reshape(x, &[rows, columns, 1]),
        _ => Ok(x.clone()),
    }
}

/// The arrays broadcast to their common shape.
///
/// ```
/// use wootz::{Array, broadcast_arrays};
/// let both = broadcast_arrays(&[Array::new([[1], [2]])?, Array::new([1, 2, 3])?])?;
/// assert_eq!(both[0].shape(), [2, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn broadcast_arrays(arrays: &[impl Borrow<Array>]) -> Result<Vec<Array>> {
    let mut shape = Shape::new();
    for array in arrays {
        shape = broadcast_shapes("broadcast_arrays", &shape, array.borrow().shape())?;
    }
    arrays.iter().map(|array| broadcast_to(array.borrow(), &shape)).collect()
}

/// A row-major array with the same elements: the array itself, if it is row-major already.
///
/// ```
/// let x = wootz::Array::new([[1, 2], [3, 4]])?.transpose()?;
/// assert!(wootz::contiguous(&x)?.is_contiguous());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn contiguous(x: &Array) -> Result<Array> {
    x.contiguous()
}

/// The slices of the array along `axis`, without that axis.
///
/// ```
/// let rows = wootz::unstack(&wootz::Array::new([[1, 2], [3, 4]])?, 0)?;
/// assert_eq!(rows[1].to_vec::<i32>()?, [3, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn unstack(x: &Array, axis: i64) -> Result<Vec<Array>> {
    let axis = normalize_axis("unstack", axis, x.rank())?;
    let count = x.shape()[axis];
    if count == 0 {
        return Ok(Vec::new());
    }
    let parts = split(x, Sections::Equal(count), axis as i64)?;
    parts.iter().map(|part| squeeze(part, axis)).collect()
}

/// Where [`split`] cuts.
#[derive(Clone, Debug, PartialEq)]
pub enum Sections {
    /// Into this many parts of equal length.
    Equal(usize),
    /// Before these indices, which count from the end if they are negative.
    At(Vec<i64>),
}

macro_rules! sections_from {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Sections {
            /// A negative number of parts is no number of parts, and refused.
            fn from(parts: $integer) -> Sections {
                Sections::Equal(usize::try_from(parts).unwrap_or(0))
            }
        }
        impl<const N: usize> From<[$integer; N]> for Sections {
            fn from(cuts: [$integer; N]) -> Sections {
                Sections::At(cuts.iter().map(|&cut| cut as i64).collect())
            }
        }
        impl From<&[$integer]> for Sections {
            fn from(cuts: &[$integer]) -> Sections {
                Sections::At(cuts.iter().map(|&cut| cut as i64).collect())
            }
        }
    )*};
}

sections_from!(i32, i64, usize);

/// The array cut along `axis`: into equal parts, or before the given indices. The parts are views.
///
/// ```
/// use wootz::{Array, split};
/// let x = Array::new([0, 1, 2, 3, 4, 5])?;
/// assert_eq!(split(&x, 3, 0)?[1].to_vec::<i32>()?, [2, 3]);
/// assert_eq!(split(&x, [1, 4], 0)?[1].to_vec::<i32>()?, [1, 2, 3]);
/// assert!(split(&x, 4, 0).is_err());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn split(x: &Array, sections: impl Into<Sections>, axis: i64) -> Result<Vec<Array>> {
    let axis = normalize_axis("split", axis, x.rank())?;
    let length = x.shape()[axis];
    let cuts: Vec<usize> = match sections.into() {
        Sections::Equal(parts) => {
            if parts == 0 || !length.is_multiple_of(parts) {
                let expected = format!("a number of parts that divides {length}");
                return Err(Error::argument("split", "sections", expected, parts));
            }
            (1..parts).map(|part| part * (length / parts)).collect()
        }
        Sections::At(cuts) => {
            let clip =
                |cut: i64| if cut < 0 { cut.saturating_add(length as i64).max(0) } else { cut };
            cuts.into_iter().map(|cut| (clip(cut) as usize).min(length)).collect()
        }
    };
    if cuts.is_empty() {
        return Ok(vec![x.clone()]);
    }
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let stops = cuts.iter().copied().chain([length]);
    if cuts.is_sorted() {
        return Ok(Array::apply_all(Split { axis, cuts }, &[x])?.into_vec());
    }
    // Parts overlap, so that their gradients add up: each is a slice of its own.
    starts.zip(stops).map(|(start, stop)| slice_axis(x, axis, start, stop.max(start), 1)).collect()
}

/// Cuts an axis before rising indices. Every output is a view of the input.
#[derive(Clone, Debug)]
struct Split {
    axis: usize,
    cuts: Vec<usize>,
}

impl Op for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        let Meta { layout, dtype } = &inputs[0];
        let length = layout.shape[self.axis];
        let starts = std::iter::once(0).chain(self.cuts.iter().copied());
        let stops = self.cuts.iter().copied().chain([length]);
        let part = |(start, stop): (usize, usize)| {
            let mut part = layout.clone();
            part.shape[self.axis] = stop - start;
            if stop > start {
                // The first element of the part is one of the array, so this is not negative.
                let first = layout.offset as isize + start as isize * layout.strides[self.axis];
                part.offset = first as usize;
            }
            Meta { layout: part, dtype: *dtype }
        };
        Ok(starts.zip(stops).map(part).collect())
    }

    fn is_view(&self) -> bool {
        true
    }

    fn cpu(&self, _: &mut CpuCall<'_>) -> Result<()> {
        Ok(())
    }

    fn vjp(
        &self,
        _: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let parts = (outputs.iter().zip(cotangents))
            .map(|(output, gradient)| gradient.clone().map_or_else(|| zeros_like(output), Ok))
            .collect::<Result<Vec<Array>>>()?;
        Ok(vec![Some(concatenate(&parts, self.axis)?)])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.apply(Split { axis: self.axis + 1, cuts: self.cuts.clone() }, batch.inputs)
    }
}

impl Array {
    /// See [`moveaxis`].
    pub fn moveaxis(&self, source: i64, destination: i64) -> Result<Array> {
        moveaxis(self, source, destination)
    }

    /// See [`swapaxes`].
    pub fn swapaxes(&self, axis1: i64, axis2: i64) -> Result<Array> {
        swapaxes(self, axis1, axis2)
    }

    /// See [`expand_dims`].
    pub fn expand_dims(&self, axis: impl Into<Axes>) -> Result<Array> {
        expand_dims(self, axis)
    }

    /// See [`squeeze`].
    pub fn squeeze(&self, axis: impl Into<Axes>) -> Result<Array> {
        squeeze(self, axis)
    }

    /// See [`flatten`].
    pub fn flatten(&self, start_axis: i64, end_axis: i64) -> Result<Array> {
        flatten(self, start_axis, end_axis)
    }

    /// See [`unflatten`].
    pub fn unflatten(&self, axis: i64, shape: &[i64]) -> Result<Array> {
        unflatten(self, axis, shape)
    }

    /// See [`reshape_infer`].
    pub fn reshape_infer(&self, shape: &[i64]) -> Result<Array> {
        reshape_infer(self, shape)
    }

    /// See [`split`].
    pub fn split(&self, sections: impl Into<Sections>, axis: i64) -> Result<Vec<Array>> {
        split(self, sections, axis)
    }
}
