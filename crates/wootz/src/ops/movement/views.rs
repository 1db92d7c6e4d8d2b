//! Views: transpose, reshape, broadcast, slice. No element moves.

use crate::array::{Array, Layout, Meta, Shape, broadcast_shapes, checked_size, normalize_axis};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
use crate::op::{Batch, Case, EVERY, Entry, Metas, Op, Tolerance, expect_inputs};
use crate::ops::elementwise::sum_to_shape;

/// Cases of the views.
pub(crate) fn entries() -> Vec<Entry> {
    let case = |label: &str, shape: &[usize], call: fn(&Array) -> Result<Array>| {
        Case::new(label, &[shape], move |x| Ok(vec![call(&x[0])?]))
            .dtypes(EVERY)
            .tolerance(Tolerance::Exact)
    };
    vec![
        Entry {
            name: "transpose",
            cases: vec![
                case("reversed", &[2, 3, 4], |x| x.transpose()),
                case("permuted", &[2, 3, 4], |x| transpose_axes(x, &[1, -1, 0])),
                case("scalar", &[], |x| x.transpose()),
            ],
        },
        Entry {
            name: "reshape",
            cases: vec![
                case("merge", &[2, 3, 4], |x| reshape(x, &[6, 4])),
                case("split", &[6, 4], |x| reshape(x, &[2, 3, 2, 2])),
                case("empty", &[0, 4], |x| reshape(x, &[2, 0, 2])),
            ],
        },
        Entry {
            name: "broadcast_to",
            cases: vec![
                case("new axes", &[3, 1], |x| broadcast_to(x, &[2, 3, 4])),
                case("scalar", &[], |x| broadcast_to(x, &[5])),
            ],
        },
        Entry {
            name: "slice",
            cases: vec![
                case("steps", &[7, 9], |x| slice(x, &[1, 8], &[6, 0], &[2, -3])),
                case("empty", &[7, 9], |x| slice(x, &[3, 0], &[3, 9], &[1, 1])),
            ],
        },
    ]
}

/// The array with its axes in the given order; negative axes count from the end.
///
/// ```
/// let x = wootz::Array::new([[[1, 2, 3]]])?;
/// assert_eq!(wootz::transpose_axes(&x, &[2, 0, 1])?.shape(), [3, 1, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn transpose_axes(x: &Array, axes: &[i64]) -> Result<Array> {
    if axes.len() != x.rank() {
        let expected = format!("{} axes, one for each", x.rank());
        return Err(Error::argument("transpose", "axes", expected, format!("{axes:?}")));
    }
    let mut order = Vec::with_capacity(axes.len());
    for &axis in axes {
        let normal = normalize_axis("transpose", axis, x.rank())?;
        if order.contains(&normal) {
            return Err(Error::argument("transpose", "axes", "distinct axes", format!("{axes:?}")));
        }
        order.push(normal);
    }
    if order.iter().copied().eq(0..x.rank()) {
        return Ok(x.clone());
    }
    Array::apply(View(Kind::Transpose(order)), &[x])
}

/// The array with its axes reversed.
///
/// ```
/// let x = wootz::Array::new([[1, 2, 3]])?;
/// assert_eq!(wootz::transpose(&x)?.shape(), [3, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn transpose(x: &Array) -> Result<Array> {
    transpose_axes(x, &(0..x.rank() as i64).rev().collect::<Vec<_>>())
}

impl Array {
    /// The array with its axes reversed; see [`transpose`].
    pub fn transpose(&self) -> Result<Array> {
        transpose(self)
    }

    /// The same elements with another shape; see [`reshape`].
    pub fn reshape(&self, shape: &[usize]) -> Result<Array> {
        reshape(self, shape)
    }
}

/// The same elements in row-major order with another shape.
///
/// ```
/// let x = wootz::Array::new([1, 2, 3, 4])?;
/// assert_eq!(wootz::reshape(&x, &[2, 2])?.shape(), [2, 2]);
/// assert!(wootz::reshape(&x, &[3]).is_err());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn reshape(x: &Array, shape: &[usize]) -> Result<Array> {
    if x.shape() == shape {
        return Ok(x.clone());
    }
    if checked_size("reshape", shape, x.dtype())? != x.size() {
        let expected = format!("one of {} elements", x.size());
        return Err(Error::shape("reshape", "shape", expected, shape));
    }
    // An array that strides cannot express in the new shape is copied first.
    let x = match x.meta().layout.reshape(shape) {
        Some(_) => x.clone(),
        None => crate::ops::copy(x)?,
    };
    Array::apply(View(Kind::Reshape(Shape::from_slice(shape))), &[&x])
}

/// The array repeated along new axes and axes of length 1, without copying.
///
/// ```
/// let x = wootz::broadcast_to(&wootz::Array::new([1, 2])?, &[2, 2])?;
/// assert_eq!(x.to_vec::<i32>()?, [1, 2, 1, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn broadcast_to(x: &Array, shape: &[usize]) -> Result<Array> {
    if x.shape() == shape {
        return Ok(x.clone());
    }
    let joined = broadcast_shapes("broadcast_to", x.shape(), shape)?;
    if joined[..] != *shape {
        let expected = format!("one that {:?} broadcasts to", x.shape());
        return Err(Error::shape("broadcast_to", "shape", expected, shape));
    }
    checked_size("broadcast_to", shape, x.dtype())?;
    Array::apply(View(Kind::Broadcast(Shape::from_slice(shape))), &[x])
}

/// Elements `start..stop` in steps, one triple per axis. Indices are not negative here; a negative
/// step runs from `start` down to and excluding `stop - 1`, so that `stop` 0 reaches the first.
/// [`Array::index`](crate::Array) is the comfortable way.
///
/// ```
/// let x = wootz::Array::new([0, 1, 2, 3, 4])?;
/// assert_eq!(wootz::slice(&x, &[1], &[5], &[2])?.to_vec::<i32>()?, [1, 3]);
/// assert_eq!(wootz::slice(&x, &[4], &[0], &[-2])?.to_vec::<i32>()?, [4, 2, 0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn slice(x: &Array, start: &[usize], stop: &[usize], step: &[isize]) -> Result<Array> {
    for (argument, length) in [("start", start.len()), ("stop", stop.len()), ("step", step.len())] {
        if length != x.rank() {
            return Err(Error::argument("slice", argument, format!("{} values", x.rank()), length));
        }
    }
    let mut ranges = Vec::with_capacity(x.rank());
    for (axis, &length) in x.shape().iter().enumerate() {
        let (start, stop, step) = (start[axis], stop[axis], step[axis]);
        if step == 0 {
            return Err(Error::argument("slice", "step", "a step other than 0", step));
        }
        let count = if step > 0 {
            stop.min(length).saturating_sub(start).div_ceil(step as usize)
        } else {
            (start.min(length.saturating_sub(1)) + 1)
                .saturating_sub(stop)
                .div_ceil(step.unsigned_abs())
        };
        let count = if length == 0 { 0 } else { count };
        let start = if step < 0 { start.min(length.saturating_sub(1)) } else { start };
        if count > 0 && start >= length {
            return Err(Error::Index {
                op: "slice",
                argument: "start".into(),
                got: start as i64,
                length,
            });
        }
        ranges.push(Range { start: if count == 0 { 0 } else { start }, count, step });
    }
    if ranges.iter().zip(x.shape()).all(|(r, &length)| r.step == 1 && r.count == length) {
        return Ok(x.clone());
    }
    Array::apply(View(Kind::Slice(ranges)), &[x])
}

/// One axis of a slice.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: usize,
    count: usize,
    step: isize,
}

#[derive(Clone, Debug)]
enum Kind {
    Transpose(Vec<usize>),
    Reshape(Shape),
    Broadcast(Shape),
    Slice(Vec<Range>),
}

/// Another way to see an array's memory.
#[derive(Clone, Debug)]
struct View(Kind);

impl Op for View {
    fn name(&self) -> &'static str {
        match self.0 {
            Kind::Transpose(_) => "transpose",
            Kind::Reshape(_) => "reshape",
            Kind::Broadcast(_) => "broadcast_to",
            Kind::Slice(_) => "slice",
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        let Meta { layout, dtype } = &inputs[0];
        let layout = match &self.0 {
            Kind::Transpose(axes) => layout.permute(axes),
            Kind::Reshape(shape) => layout.reshape(shape).ok_or_else(|| {
                Error::argument(
                    "reshape",
                    "x",
                    "a layout that allows the view",
                    format!("{layout:?}"),
                )
            })?,
            Kind::Broadcast(shape) => layout.broadcast_to(shape),
            Kind::Slice(ranges) => slice_layout(layout, ranges),
        };
        Ok(Metas::from_elem(Meta { layout, dtype: *dtype }, 1))
    }

    fn is_view(&self) -> bool {
        true
    }

    fn cpu(&self, _: &mut CpuCall<'_>) -> Result<()> {
        Ok(())
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(gradient) = &cotangents[0] else { return Ok(vec![None]) };
        let x = &inputs[0];
        Ok(vec![Some(match &self.0 {
            Kind::Transpose(axes) => {
                let mut inverse = vec![0; axes.len()];
                for (to, &from) in axes.iter().enumerate() {
                    inverse[from] = to as i64;
                }
                transpose_axes(gradient, &inverse)?
            }
            Kind::Reshape(_) => reshape(gradient, x.shape())?,
            Kind::Broadcast(_) => sum_to_shape(gradient, x.shape())?,
            Kind::Slice(ranges) => slice_gradient(gradient, x, ranges)?,
        })])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let x = &batch.inputs[0];
        Ok(vec![match &self.0 {
            Kind::Transpose(axes) => {
                let behind = axes.iter().map(|&axis| axis as i64 + 1);
                transpose_axes(x, &std::iter::once(0).chain(behind).collect::<Vec<_>>())?
            }
            Kind::Reshape(shape) => reshape(x, &[&[batch.size], &shape[..]].concat())?,
            Kind::Broadcast(shape) => {
                let missing = vec![1; shape.len() - batch.shape(0).len()];
                let x = reshape(x, &[&[batch.size], &missing[..], batch.shape(0)].concat())?;
                broadcast_to(&x, &[&[batch.size], &shape[..]].concat())?
            }
            Kind::Slice(ranges) => {
                let whole = Range { start: 0, count: batch.size, step: 1 };
                Array::apply(View(Kind::Slice([&[whole], &ranges[..]].concat())), &[x])?
            }
        }])
    }
}

fn slice_layout(layout: &Layout, ranges: &[Range]) -> Layout {
    let mut out = layout.clone();
    let mut offset = layout.offset as isize;
    for (axis, range) in ranges.iter().enumerate() {
        offset += range.start as isize * layout.strides[axis];
        out.shape[axis] = range.count;
        out.strides[axis] = layout.strides[axis] * range.step;
    }
    out.offset = offset as usize;
    out
}

/// Puts a gradient back where the slice took its elements from.
fn slice_gradient(gradient: &Array, x: &Array, ranges: &[Range]) -> Result<Array> {
    let range = |range: &Range| crate::ops::IndexRange {
        start: range.start,
        count: range.count,
        step: range.step,
    };
    crate::ops::update_ranges(
        &crate::ops::zeros_like(x)?,
        gradient,
        ranges.iter().map(range).collect(),
    )
}
