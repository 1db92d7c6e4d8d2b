//! Putting arrays together: `concatenate`, `stack`, and what is made of them: `repeat`, `tile`,
//! `roll`.

use std::borrow::Borrow;

use smallvec::SmallVec;

use super::copying::{CHUNK, Reader, few_axes, slot};
use super::{expand_dims, flatten, moving_case, one_axis, slice_axis};
use crate::array::{Array, DType, Layout, Meta, Shape, checked_size, normalize_axis};
use crate::cpu::tile::with_width;
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Case, EVERY, Entry, Metas, Op, Tolerance};
use crate::ops::{Axes, astype, broadcast_to, reshape};

/// Cases of joining.
pub(crate) fn entries() -> Vec<Entry> {
    let join = |label: &str, shapes: &[&[usize]], axis: i64| {
        Case::new(label, shapes, move |x| Ok(vec![concatenate(x, axis)?]))
            .dtypes(EVERY)
            .tolerance(Tolerance::Exact)
    };
    vec![
        Entry {
            name: "concatenate",
            cases: vec![
                join("rows", &[&[2, 3], &[4, 3]], 0),
                join("columns", &[&[3, 5], &[3, 1], &[3, 2]], 1),
                join("middle", &[&[2, 3, 4], &[2, 2, 4]], -2),
                join("with an empty one", &[&[2, 0], &[2, 3]], 1),
                join("one", &[&[7]], 0),
                join("more than one chunk", &[&[3, 700], &[3, 4801]], 1),
            ],
        },
        Entry {
            name: "stack",
            cases: vec![
                Case::new("last axis", &[&[3, 5], &[3, 5]], |x| Ok(vec![stack(x, -1)?]))
                    .dtypes(EVERY)
                    .tolerance(Tolerance::Exact),
            ],
        },
        Entry {
            name: "repeat",
            cases: vec![
                moving_case("an axis", &[2, 3, 4], |x| repeat(x, 3, 1)),
                moving_case("flattened", &[2, 3], |x| repeat(x, 2, ())),
                moving_case("zero times", &[2, 3], |x| repeat(x, 0, 0)),
            ],
        },
        Entry {
            name: "tile",
            cases: vec![
                moving_case("more counts than axes", &[2, 3], |x| tile(x, &[2, 1, 3])),
                moving_case("fewer counts than axes", &[2, 3], |x| tile(x, &[2])),
            ],
        },
        Entry {
            name: "roll",
            cases: vec![
                moving_case("flattened", &[3, 5], |x| roll(x, 4, ())),
                moving_case("two axes", &[3, 5], |x| roll(x, [1, -2], [0, 1])),
            ],
        },
    ]
}

/// The arrays one after the other along `axis`, or all flattened with `()`. Dtypes are promoted.
///
/// ```
/// use wootz::{Array, concatenate};
/// let (a, b) = (Array::new([[1, 2]])?, Array::new([[3, 4]])?);
/// assert_eq!(concatenate(&[&a, &b], 0)?.shape(), [2, 2]);
/// assert_eq!(concatenate(&[&a, &b], 1)?.to_vec::<i32>()?, [1, 2, 3, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn concatenate(arrays: &[impl Borrow<Array>], axis: impl Into<Axes>) -> Result<Array> {
    let op = "concatenate";
    let Some(first) = arrays.first() else {
        return Err(Error::argument(op, "arrays", "at least one array", "none"));
    };
    let dtype = arrays.iter().map(|x| x.borrow().dtype()).reduce(DType::promote);
    let dtype = dtype.unwrap_or(first.borrow().dtype());
    let axis = axis.into();
    // A single number is itself along any axis, as in MLX.
    if let ([only], Axes::These(_)) = (arrays, &axis)
        && only.borrow().rank() == 0
    {
        return Ok(only.borrow().clone());
    }
    let axis = one_axis(op, &axis, first.borrow().rank())?;
    let prepare = |x: &Array| match axis {
        Some(_) => astype(x, dtype),
        None => flatten(&astype(x, dtype)?, 0, -1),
    };
    let axis = axis.unwrap_or(0);
    let mut inputs =
        arrays.iter().map(|x| prepare(x.borrow())).collect::<Result<SmallVec<[Array; 4]>>>()?;
    if let [only] = &inputs[..] {
        return Ok(only.clone());
    }
    let total = check_shapes(inputs.iter().map(Array::shape), axis)?;
    // An input whose layout the GPU's kernel cannot walk is made row-major first.
    let slots = slots(inputs.iter().map(Array::shape), axis, total);
    for (input, slot) in inputs.iter_mut().zip(&slots) {
        if !few_axes(&input.meta().layout, slot) {
            *input = input.contiguous()?;
        }
    }
    Array::apply(Concatenate { axis }, &inputs.iter().collect::<SmallVec<[&Array; 4]>>())
}

/// The arrays, all of one shape, along a new axis.
///
/// ```
/// use wootz::{Array, stack};
/// let (a, b) = (Array::new([1, 2])?, Array::new([3, 4])?);
/// assert_eq!(stack(&[&a, &b], 1)?.to_vec::<i32>()?, [1, 3, 2, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn stack(arrays: &[impl Borrow<Array>], axis: i64) -> Result<Array> {
    let Some(first) = arrays.first() else {
        return Err(Error::argument("stack", "arrays", "at least one array", "none"));
    };
    let shape = first.borrow().shape();
    let axis = normalize_axis("stack", axis, shape.len() + 1)? as i64;
    let expand = |x: &Array| match x.shape() == shape {
        true => expand_dims(x, axis),
        false => {
            Err(Error::shape("stack", "arrays", format!("{shape:?}, as the first"), x.shape()))
        }
    };
    let expanded = arrays.iter().map(|x| expand(x.borrow())).collect::<Result<Vec<_>>>()?;
    concatenate(&expanded, axis)
}

/// Each element `repeats` times in a row, along `axis` or flattened with `()`.
///
/// ```
/// use wootz::{Array, repeat};
/// let x = Array::new([[1, 2], [3, 4]])?;
/// assert_eq!(repeat(&x, 2, ())?.to_vec::<i32>()?, [1, 1, 2, 2, 3, 3, 4, 4]);
/// assert_eq!(repeat(&x, 2, 1)?.shape(), [2, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn repeat(x: &Array, repeats: usize, axis: impl Into<Axes>) -> Result<Array> {
    let (x, axis) = match one_axis("repeat", &axis.into(), x.rank())? {
        Some(axis) => (x.clone(), axis),
        None => (flatten(x, 0, -1)?, 0),
    };
    let mut shape = Shape::from_slice(x.shape());
    shape.insert(axis + 1, repeats);
    checked_size("repeat", &shape, x.dtype())?;
    let copies = broadcast_to(&expand_dims(&x, axis + 1)?, &shape)?;
    shape.remove(axis + 1);
    shape[axis] *= repeats;
    reshape(&copies, &shape)
}

/// The whole array `reps` times along each axis; the shorter of shape and counts is filled with
/// ones in front.
///
/// ```
/// use wootz::{Array, tile};
/// let x = Array::new([1, 2])?;
/// assert_eq!(tile(&x, &[2, 2])?.shape(), [2, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn tile(x: &Array, reps: &[usize]) -> Result<Array> {
    let rank = x.rank().max(reps.len());
    let length = |axis: usize| (axis + x.rank()).checked_sub(rank).map_or(1, |a| x.shape()[a]);
    let count = |axis: usize| (axis + reps.len()).checked_sub(rank).map_or(1, |a| reps[a]);
    let single: Shape = (0..rank).flat_map(|axis| [1, length(axis)]).collect();
    let copies: Shape = (0..rank).flat_map(|axis| [count(axis), length(axis)]).collect();
    checked_size("tile", &copies, x.dtype())?;
    let shape: Shape = (0..rank).map(|axis| count(axis) * length(axis)).collect();
    reshape(&broadcast_to(&reshape(x, &single)?, &copies)?, &shape)
}

/// Elements moved by `shift` places along `axis`, those that leave one end entering at the other.
/// One shift serves all the axes given; several belong to one axis each, or to the one axis given;
/// `()` rolls the flattened array.
///
/// ```
/// use wootz::{Array, roll};
/// let x = Array::new([[0, 1, 2], [3, 4, 5]])?;
/// assert_eq!(roll(&x, 1, 1)?.to_vec::<i32>()?, [2, 0, 1, 5, 3, 4]);
/// assert_eq!(roll(&x, -1, ())?.to_vec::<i32>()?, [1, 2, 3, 4, 5, 0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn roll(x: &Array, shift: impl Into<Shifts>, axis: impl Into<Axes>) -> Result<Array> {
    let Shifts(shifts) = shift.into();
    let axes = match axis.into() {
        Axes::All => {
            let total = shifts.iter().fold(0i64, |sum, &shift| sum.wrapping_add(shift));
            return reshape(&roll_axis(&flatten(x, 0, -1)?, total, 0)?, x.shape());
        }
        Axes::These(axes) => axes,
    };
    let total = shifts.iter().fold(0i64, |sum, &shift| sum.wrapping_add(shift));
    let mut out = x.clone();
    match (&shifts[..], &axes[..]) {
        (_, [axis]) => out = roll_axis(x, total, normalize_axis("roll", *axis, x.rank())?)?,
        ([shift], axes) => {
            for &axis in axes {
                out = roll_axis(&out, *shift, normalize_axis("roll", axis, x.rank())?)?;
            }
        }
        (shifts, axes) => {
            if shifts.len() < axes.len() {
                let expected = format!("one shift or one for each of {} axes", axes.len());
                return Err(Error::argument("roll", "shift", expected, shifts.len()));
            }
            for (&axis, &shift) in axes.iter().zip(shifts) {
                out = roll_axis(&out, shift, normalize_axis("roll", axis, x.rank())?)?;
            }
        }
    }
    Ok(out)
}

/// Distances for [`roll`]: one, or several.
#[derive(Clone, Debug, PartialEq)]
pub struct Shifts(Vec<i64>);

macro_rules! shifts_from {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Shifts {
            fn from(shift: $integer) -> Shifts {
                Shifts(vec![shift as i64])
            }
        }
        impl<const N: usize> From<[$integer; N]> for Shifts {
            fn from(shifts: [$integer; N]) -> Shifts {
                Shifts(shifts.iter().map(|&shift| shift as i64).collect())
            }
        }
        impl From<&[$integer]> for Shifts {
            fn from(shifts: &[$integer]) -> Shifts {
                Shifts(shifts.iter().map(|&shift| shift as i64).collect())
            }
        }
    )*};
}

shifts_from!(i32, i64);

fn roll_axis(x: &Array, shift: i64, axis: usize) -> Result<Array> {
    let length = x.shape()[axis];
    if length == 0 {
        return Ok(x.clone());
    }
    let first = (length as i64 - shift.rem_euclid(length as i64)) as usize % length;
    if first == 0 {
        return Ok(x.clone());
    }
    let (tail, head) = (slice_axis(x, axis, first, length, 1)?, slice_axis(x, axis, 0, first, 1)?);
    concatenate(&[tail, head], axis)
}

/// Checks that shapes agree in all other axes and adds up their lengths along `axis`.
fn check_shapes<'a>(
    shapes: impl Iterator<Item = &'a [usize]> + Clone,
    axis: usize,
) -> Result<usize> {
    let first = shapes.clone().next().unwrap_or(&[]);
    let mut total = 0usize;
    for shape in shapes {
        let same = shape.len() == first.len()
            && shape.iter().zip(first).enumerate().all(|(a, (x, y))| a == axis || x == y);
        if !same {
            let expected = format!("{first:?} but for axis {axis}");
            return Err(Error::shape("concatenate", "arrays", expected, shape));
        }
        total = total.saturating_add(shape.get(axis).copied().unwrap_or(0));
    }
    Ok(total)
}

/// Where each input goes in the row-major output.
fn slots<'a>(
    shapes: impl Iterator<Item = &'a [usize]>,
    axis: usize,
    total: usize,
) -> SmallVec<[Layout; 4]> {
    let mut start = 0;
    shapes
        .map(|shape| {
            let mut whole = Shape::from_slice(shape);
            whole[axis] = total;
            let mut starts = Shape::from_elem(0, shape.len());
            starts[axis] = start;
            start += shape[axis];
            slot(&whole, &starts, shape)
        })
        .collect()
}

/// Joins along an axis that all inputs have.
#[derive(Clone, Debug)]
struct Concatenate {
    axis: usize,
}

impl Op for Concatenate {
    fn name(&self) -> &'static str {
        "concatenate"
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let Some(first) = inputs.first() else {
            return Err(Error::argument(self.name(), "arrays", "at least one array", "none"));
        };
        if self.axis >= first.shape().len() {
            let (got, rank) = (self.axis as i64, first.shape().len());
            return Err(Error::Axis { op: self.name(), argument: "axis".into(), got, rank });
        }
        for index in 1..inputs.len() {
            crate::op::expect_dtype(self, inputs, index, first.dtype)?;
        }
        let mut shape = Shape::from_slice(first.shape());
        shape[self.axis] = check_shapes(inputs.iter().map(|input| input.shape()), self.axis)?;
        Ok(Metas::from_elem(Meta::new(self.name(), &shape, first.dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        macro_rules! body {
            ($type:ty) => {
                self.run::<$type>(call)
            };
        }
        with_width!(call.output_meta(0).dtype.size(), body)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let total = call.output_meta(0).shape()[self.axis];
        let slots = slots(call.input_metas().map(Meta::shape), self.axis, total);
        for (input, slot) in slots.iter().enumerate() {
            super::copying::copy_into(call, input, slot)?;
        }
        Ok(())
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(gradient) = &cotangents[0] else { return Ok(vec![None; inputs.len()]) };
        let mut start = 0;
        let parts = inputs.iter().map(|input| {
            let stop = start + input.shape()[self.axis];
            let part = slice_axis(gradient, self.axis, start, stop, 1);
            start = stop;
            part.map(Some)
        });
        parts.collect()
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        Ok(vec![concatenate(&batch.spread_all()?, self.axis + 1)?])
    }
}

impl Concatenate {
    /// The output's rows are the inputs' runs one after the other.
    fn run<T: bytemuck::Pod + Send + Sync>(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let inner: usize = call.output_meta(0).shape()[self.axis + 1..].iter().product();
        let mut readers: SmallVec<[(Reader<'_, T>, usize); 4]> = SmallVec::new();
        for index in 0..call.inputs.len() {
            let run = call.meta(index).shape()[self.axis] * inner;
            if run > 0 {
                readers.push((Reader::new(call.strided::<T>(index)?), run));
            }
        }
        let row: usize = readers.iter().map(|(_, run)| run).sum();
        threads::chunks_mut(call.output::<T>(0)?, CHUNK, |chunk, mut out| {
            let (mut outer, mut column) = (chunk * CHUNK / row, chunk * CHUNK % row);
            while !out.is_empty() {
                for (reader, run) in &readers {
                    if column >= *run {
                        column -= run;
                        continue;
                    }
                    let count = (run - column).min(out.len());
                    let (part, rest) = out.split_at_mut(count);
                    reader.read(outer * run + column, part);
                    (out, column) = (rest, 0);
                    if out.is_empty() {
                        break;
                    }
                }
                outer += 1;
            }
        });
        Ok(())
    }
}
