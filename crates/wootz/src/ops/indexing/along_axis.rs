//! Picking and putting one element per index along an axis: `take_along_axis`, its backward as an
//! operation of its own, and `put_along_axis`.
//!
//! All indices are checked before anything is written. Updates of one element take effect in the
//! order of their indices.

#[cfg(feature = "gpu")]
mod gpu;

use half::{bf16, f16};

#[cfg(feature = "gpu")]
pub(in crate::ops) use gpu::check_on_gpu;

use super::gather::broadcast_argument;
use super::offsets::{by_index, check, check_index_dtype, place};
use super::raw;
use super::slice_update::stripped;
use crate::array::{Array, DType, Meta, Shape, broadcast_shapes, normalize_axis};
use crate::cpu::tile::{Storage, with_types, with_width};
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Batch, Case, EVERY, Entry, Metas, Op, Tolerance, argument_name, expect_contiguous,
    expect_dtype, expect_inputs, expect_shape,
};
use crate::ops::{astype, equal, multiply, reshape, zeros_like};

/// Cases of the operations along an axis.
pub(super) fn entries() -> Vec<Entry> {
    type Call = fn(&[Array]) -> Result<Array>;
    let case = |label: &str, shapes: &[&[usize]], length: usize, index: DType, call: Call| {
        Case::new(label, shapes, move |x| Ok(vec![call(x)?]))
            .fixed(1, index, 0.0..length as f64)
            .dtypes(EVERY)
            .tolerance(Tolerance::Exact)
    };
    // More than one launch on a GPU goes through, and more turns than a software driver has for one.
    let runs = |label: &str, shapes: &[&[usize]], index: DType, call: Call| {
        case(label, shapes, 4, index, call).dtypes(&[DType::F32, DType::BF16, DType::I32])
    };
    vec![
        Entry {
            name: "take_along_axis",
            cases: vec![
                case("last", &[&[5, 7], &[5, 3]], 7, DType::U32, |x| {
                    take_along_axis(&x[0], &x[1], Some(-1))
                }),
                case("more than there are", &[&[2, 3], &[2, 1100]], 3, DType::I32, |x| {
                    take_along_axis(&x[0], &x[1], Some(1))
                }),
                case("first, broadcast", &[&[4, 1, 3], &[2, 5, 1]], 4, DType::I64, |x| {
                    take_along_axis(&x[0], &x[1], Some(0))
                }),
                case("flat", &[&[4, 3], &[6]], 12, DType::U8, |x| {
                    take_along_axis(&x[0], &x[1], None)
                }),
            ],
        },
        Entry {
            name: "take_along_axis_backward",
            cases: vec![
                case("last", &[&[5, 9], &[5, 9]], 4, DType::U32, |x| {
                    take_along_axis_backward(&x[1], &x[0], -1, 4)
                })
                .dtypes(&EVERY[1..])
                .tolerance(Tolerance::Reduction),
                case("many", &[&[3, 1100, 2], &[3, 1100, 2]], 7, DType::I32, |x| {
                    take_along_axis_backward(&x[1], &x[0], 1, 7)
                })
                .dtypes(&EVERY[1..])
                .tolerance(Tolerance::Reduction),
                runs("40000 for each", &[&[1, 40_000], &[1, 40_000]], DType::U32, |x| {
                    take_along_axis_backward(&x[1], &x[0], 1, 4)
                })
                .tolerance(Tolerance::Reduction),
                runs("70001 for each", &[&[2, 70_001], &[2, 70_001]], DType::U8, |x| {
                    take_along_axis_backward(&x[1], &x[0], 1, 4)
                })
                .tolerance(Tolerance::Reduction),
            ],
        },
        Entry {
            name: "put_along_axis",
            cases: vec![
                case("last", &[&[5, 7], &[5, 3], &[5, 3]], 7, DType::U32, |x| {
                    put_along_axis(&x[0], &x[1], &x[2], Some(-1))
                }),
                case("first, broadcast", &[&[4, 5, 3], &[6, 1, 3], &[3]], 4, DType::I16, |x| {
                    put_along_axis(&x[0], &x[1], &x[2], Some(0))
                }),
                case("flat", &[&[4, 3], &[6], &[]], 12, DType::U8, |x| {
                    put_along_axis(&x[0], &x[1], &x[2], None)
                }),
                runs("40000 for each", &[&[1, 4], &[1, 40_000], &[40_000]], DType::U32, |x| {
                    put_along_axis(&x[0], &x[1], &x[2], Some(1))
                }),
                runs("70001 for each", &[&[4, 2], &[70_001, 2], &[70_001, 2]], DType::U8, |x| {
                    put_along_axis(&x[0], &x[1], &x[2], Some(0))
                }),
            ],
        },
    ]
}

/// For each index its element along `axis`: `y[i][j] = x[i][indices[i][j]]` for the last axis of
/// a matrix. The other axes broadcast together; without an axis `x` is flattened. Negative indices
/// count from the end.
///
/// ```
/// use wootz::{Array, take_along_axis};
/// let x = Array::new([[1, 2, 3], [4, 5, 6]])?;
/// let y = take_along_axis(&x, &Array::new([[0, 0], [-1, 1]])?, Some(1))?;
/// assert_eq!(y.to_vec::<i32>()?, [1, 1, 6, 5]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn take_along_axis(x: &Array, indices: &Array, axis: Option<i64>) -> Result<Array> {
    const OP: &str = "take_along_axis";
    let (x, axis) = flattened(OP, x, axis)?;
    check_index_dtype(OP, "indices", indices.dtype())?;
    let common = common_shape(OP, &x, indices, axis)?;
    let length = x.shape()[axis];
    if length == 0 && indices.size() > 0 {
        let expected = "no indices into an axis of length 0";
        return Err(Error::argument(OP, "indices", expected, format!("{}", indices.size())));
    }
    let mut shape = common.clone();
    shape[axis] = length;
    let x = broadcast_argument(OP, "x", &x, &shape)?.contiguous()?;
    let indices = broadcast_argument(OP, "indices", indices, &common)?.contiguous()?;
    Array::apply(TakeAlongAxis { axis: axis as i64 }, &[&x, &indices])
}

/// The gradient of [`take_along_axis`] with respect to an array of `length` elements along `axis`:
/// zeros, with `dy` added where `indices` say. Gradients of repeated indices add up in their order.
///
/// ```
/// use wootz::{Array, take_along_axis_backward};
/// let indices = Array::new([[2, 0, 2]])?;
/// let dx = take_along_axis_backward(&indices, &Array::new([[1, 2, 3]])?, -1, 4)?;
/// assert_eq!(dx.to_vec::<i32>()?, [2, 0, 4, 0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn take_along_axis_backward(
    indices: &Array,
    dy: &Array,
    axis: i64,
    length: usize,
) -> Result<Array> {
    let op = TakeAlongAxisBackward { axis, length };
    Array::apply(op, &[&indices.contiguous()?, &dy.contiguous()?])
}

/// A copy of `x` with `values` stored at `indices` along `axis`; of several values for one element
/// the last one stays. Indices broadcast to the other axes of `x`, values to the indices; without
/// an axis `x` is seen flattened. Values may have more axes before, of length 1. Negative indices count
/// from the end.
///
/// ```
/// use wootz::{Array, put_along_axis};
/// let x = Array::new([[1, 2, 3], [4, 5, 6]])?;
/// let y = put_along_axis(&x, &Array::new([[0], [-1]])?, 0, Some(1))?;
/// assert_eq!(y.to_vec::<i32>()?, [0, 2, 3, 4, 5, 0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn put_along_axis(
    x: &Array,
    indices: &Array,
    values: impl Into<crate::array::Arg>,
    axis: Option<i64>,
) -> Result<Array> {
    const OP: &str = "put_along_axis";
    let (flat, axis) = flattened(OP, x, axis)?;
    check_index_dtype(OP, "indices", indices.dtype())?;
    let mut shape = Shape::from_slice(flat.shape());
    if indices.rank() != flat.rank() {
        let expected = format!("one of {} axes", flat.rank());
        return Err(Error::shape(OP, "indices", expected, indices.shape()));
    }
    shape[axis] = indices.shape()[axis];
    let indices = broadcast_argument(OP, "indices", indices, &shape)?.contiguous()?;
    let values = stripped(&super::index::value_like(values.into(), x)?, shape.len())?;
    let values = broadcast_argument(OP, "values", &values, &shape)?.contiguous()?;
    if indices.size() == 0 {
        return Ok(x.clone());
    }
    let op = PutAlongAxis { axis: axis as i64 };
    let put = Array::apply(op, &[&flat.contiguous()?, &indices, &values])?;
    reshape(&put, x.shape())
}

/// The array and the axis counted from the front; without an axis the flattened array.
fn flattened(op: &'static str, x: &Array, axis: Option<i64>) -> Result<(Array, usize)> {
    match axis {
        None => Ok((reshape(x, &[x.size()])?, 0)),
        Some(axis) => Ok((x.clone(), normalize_axis(op, axis, x.rank())?)),
    }
}

/// The shape that indices broadcast to beside `x`: its other axes, and their own along `axis`.
fn common_shape(op: &'static str, x: &Array, indices: &Array, axis: usize) -> Result<Shape> {
    if indices.rank() != x.rank() {
        let expected = format!("one of {} axes", x.rank());
        return Err(Error::shape(op, "indices", expected, indices.shape()));
    }
    let mut beside = Shape::from_slice(x.shape());
    beside[axis] = indices.shape()[axis];
    broadcast_shapes(op, &beside, indices.shape())
}

/// `y[…, j, …] = x[…, indices[…, j, …], …]` along an axis; the other axes are equal. All arrays
/// are row-major. The inputs are `x` and `indices`.
#[derive(Clone, Copy, Debug)]
pub struct TakeAlongAxis {
    /// The axis, which may count from the end.
    pub axis: i64,
}

/// Zeros of `length` along an axis, with `dy` added at `indices`. All arrays are row-major. The
/// inputs are `indices` and `dy`, of the same shape.
#[derive(Clone, Copy, Debug)]
pub struct TakeAlongAxisBackward {
    /// The axis, which may count from the end.
    pub axis: i64,
    /// The length of the output along the axis.
    pub length: usize,
}

/// A copy of `x` with values stored at indices along an axis.
#[derive(Clone, Copy, Debug)]
struct PutAlongAxis {
    axis: i64,
}

/// An axis of the elements of a batch, which is the first.
fn behind_batch(axis: i64) -> i64 {
    if axis < 0 { axis } else { axis + 1 }
}

/// Lengths around an axis: `[outer, along, inner]`.
#[derive(Clone, Copy)]
struct Sides {
    outer: usize,
    inner: usize,
    /// Elements of the array along the axis.
    length: usize,
    /// Indices along the axis.
    count: usize,
}

impl Sides {
    fn new(axis: i64, indices: &[usize], length: usize) -> Result<Sides> {
        let axis = normalize_axis("take_along_axis", axis, indices.len())?;
        Ok(Sides {
            outer: indices[..axis].iter().product(),
            inner: indices[axis + 1..].iter().product(),
            length,
            count: indices[axis],
        })
    }

    /// The lengths for indices into `x`.
    fn within(axis: i64, x: &Meta, indices: &Meta) -> Result<Sides> {
        let normal = normalize_axis("take_along_axis", axis, x.shape().len())?;
        Sides::new(axis, indices.shape(), x.shape()[normal])
    }
}

/// Checks indices for a kernel; the array it indexes has this shape with another length along
/// `axis`.
fn expect_indices(op: &dyn Op, inputs: &[&Meta], index: usize) -> Result<()> {
    let argument = argument_name(op, index);
    check_index_dtype(op.name(), &argument, inputs[index].dtype)?;
    expect_contiguous(op, inputs, index)
}

/// The shape of the indices, the second input: that of the first with a length of their own along
/// the axis.
fn indices_shape(op: &dyn Op, axis: i64, inputs: &[&Meta]) -> Result<Shape> {
    let axis = normalize_axis(op.name(), axis, inputs[0].shape().len())?;
    let mut shape = Shape::from_slice(inputs[0].shape());
    if let Some(&count) = inputs[1].shape().get(axis) {
        shape[axis] = count;
    }
    Ok(shape)
}

impl Op for TakeAlongAxis {
    fn name(&self) -> &'static str {
        "take_along_axis"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "indices", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 2)?;
        expect_contiguous(self, inputs, 0)?;
        expect_indices(self, inputs, 1)?;
        let expected = indices_shape(self, self.axis, inputs)?;
        expect_shape(self, inputs, 1, &expected)?;
        Ok(Metas::from_elem(Meta::new(self.name(), &expected, inputs[0].dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let sides = Sides::within(self.axis, call.meta(0), call.meta(1))?;
        macro_rules! by_type {
            ($index:ty) => {{
                let indices = call.input::<$index>(1)?;
                check(self, 1, indices, sides.length, true)?;
                macro_rules! body {
                    ($type:ty) => {
                        pick(call.input::<$type>(0)?, indices, sides, call.output::<$type>(0)?)
                    };
                }
                with_width!(call.meta(0).dtype.size(), body);
            }};
        }
        by_index!(call.meta(1).dtype, by_type);
        Ok(())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::take(call, Sides::within(self.axis, call.meta(0), call.meta(1))?)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(gradient) = &cotangents[0] else { return Ok(vec![None, None]) };
        let length = inputs[0].dim(self.axis)?;
        let dx = take_along_axis_backward(&inputs[1], gradient, self.axis, length)?;
        Ok(vec![Some(dx), None])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let inputs = batch.spread_all()?;
        Ok(vec![take_along_axis(&inputs[0], &inputs[1], Some(behind_batch(self.axis)))?])
    }
}

impl Op for TakeAlongAxisBackward {
    fn name(&self) -> &'static str {
        "take_along_axis_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["indices", "dy", "dx"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 2)?;
        expect_indices(self, inputs, 0)?;
        expect_contiguous(self, inputs, 1)?;
        expect_shape(self, inputs, 1, inputs[0].shape())?;
        if inputs[1].dtype == DType::Bool {
            return Err(Error::dtype(self.name(), "dy", "a numeric type", inputs[1].dtype));
        }
        let axis = normalize_axis(self.name(), self.axis, inputs[0].shape().len())?;
        let mut shape = Shape::from_slice(inputs[0].shape());
        if self.length == 0 && inputs[0].size() > 0 {
            let expected = "at least 1 where there are indices";
            return Err(Error::argument(self.name(), "length", expected, self.length));
        }
        shape[axis] = self.length;
        Ok(Metas::from_elem(Meta::new(self.name(), &shape, inputs[1].dtype)?, 1))
    }

    #[cfg(feature = "gpu")]
    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        let [indices, gradient] = inputs else { return 0 };
        let sides = Sides::new(self.axis, indices.shape(), self.length);
        sides.map_or(0, |sides| if gpu { gpu::scratch(sides, gradient.dtype) } else { 0 })
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let sides = Sides::new(self.axis, call.meta(0).shape(), self.length)?;
        macro_rules! by_type {
            ($index:ty) => {{
                let indices = call.input::<$index>(0)?;
                check(self, 0, indices, self.length, true)?;
                macro_rules! body {
                    ($type:ty, $wide:ty) => {
                        add_back(indices, call.input::<$type>(1)?, sides, call.output::<$type>(0)?)
                    };
                }
                with_types!(call.meta(1).dtype, body);
            }};
        }
        by_index!(call.meta(0).dtype, by_type);
        Ok(())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::add(call, Sides::new(self.axis, call.meta(0).shape(), self.length)?)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(gradient) = &cotangents[0] else { return Ok(vec![None, None]) };
        Ok(vec![None, Some(take_along_axis(gradient, &inputs[0], Some(self.axis))?)])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let op = TakeAlongAxisBackward { axis: behind_batch(self.axis), ..*self };
        batch.apply(op, &batch.dense()?)
    }
}

impl Op for PutAlongAxis {
    fn name(&self) -> &'static str {
        "put_along_axis"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "indices", "values", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 3)?;
        expect_contiguous(self, inputs, 0)?;
        expect_indices(self, inputs, 1)?;
        expect_contiguous(self, inputs, 2)?;
        expect_dtype(self, inputs, 2, inputs[0].dtype)?;
        let expected = indices_shape(self, self.axis, inputs)?;
        expect_shape(self, inputs, 1, &expected)?;
        expect_shape(self, inputs, 2, &expected)?;
        Ok(Metas::from_elem(Meta::new(self.name(), inputs[0].shape(), inputs[0].dtype)?, 1))
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let sides = Sides::within(self.axis, call.meta(0), call.meta(1))?;
        macro_rules! by_type {
            ($index:ty) => {{
                let indices = call.input::<$index>(1)?;
                check(self, 1, indices, sides.length, true)?;
                raw::copy_on_cpu(call, 0, 0)?;
                macro_rules! body {
                    ($type:ty) => {
                        put(indices, call.input::<$type>(2)?, sides, call.output::<$type>(0)?)
                    };
                }
                with_width!(call.meta(0).dtype.size(), body);
            }};
        }
        by_index!(call.meta(1).dtype, by_type);
        Ok(())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::put(call, Sides::within(self.axis, call.meta(0), call.meta(1))?)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(gradient) = &cotangents[0] else { return Ok(vec![None; 3]) };
        let [x, indices, values] = inputs else { return Ok(vec![None; 3]) };
        let axis = Some(self.axis);
        let dx = put_along_axis(gradient, indices, &zeros_like(values)?, axis)?;
        // A value that a later one replaced has no gradient: each writes its number, and then
        // looks whose is there.
        let normal = normalize_axis(self.name(), self.axis, x.rank())?;
        let mut shape = vec![1; x.rank()];
        shape[normal] = indices.shape()[normal];
        let numbers: Vec<u32> = (0..shape[normal] as u32).collect();
        let numbers = Array::from_slice_on(&numbers, &shape, x.device())?;
        let board = astype(&zeros_like(x)?, DType::U32)?;
        let board = put_along_axis(&board, indices, &numbers, axis)?;
        let stayed = equal(&take_along_axis(&board, indices, axis)?, &numbers)?;
        let passed = take_along_axis(gradient, indices, axis)?;
        let dv = multiply(&passed, &astype(&stayed, passed.dtype())?)?;
        Ok(vec![Some(dx), None, Some(dv)])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.apply(PutAlongAxis { axis: behind_batch(self.axis) }, &batch.dense()?)
    }
}

/// Elements a thread takes at a time.
const CHUNK: usize = 16 * 1024;

/// `output[o][j][i] = x[o][indices[o][j][i]][i]`.
fn pick<T: bytemuck::Pod + Send + Sync, I: super::offsets::Index>(
    x: &[T],
    indices: &[I],
    sides: Sides,
    output: &mut [T],
) {
    let Sides { inner, length, count, .. } = sides;
    let block = count * inner;
    threads::chunks_mut(output, CHUNK, |chunk, output| {
        let start = chunk * CHUNK;
        for (number, output) in output.iter_mut().enumerate() {
            let number = start + number;
            let along = place(indices[number], length);
            *output = x[(number / block * length + along) * inner + number % inner];
        }
    });
}

/// Blocks of the output that belong together: some outermost places.
fn blocks(sides: Sides) -> usize {
    let each = sides.length * sides.inner;
    CHUNK.div_ceil(each.max(1)).min(sides.outer) * each
}

/// Adds `dy` into zeros at the indices, in the wide type.
fn add_back<T: Storage + Send + Sync, I: super::offsets::Index>(
    indices: &[I],
    dy: &[T],
    sides: Sides,
    output: &mut [T],
) where
    T::Wide: super::scatter::Arithmetic,
{
    use super::scatter::Arithmetic;
    let Sides { inner, length, count, .. } = sides;
    let (each, block) = (length * inner, blocks(sides));
    threads::chunks_mut(output, block, |chunk, output| {
        let mut sums = vec![<T::Wide as bytemuck::Zeroable>::zeroed(); each];
        for (outer, output) in output.chunks_mut(each).enumerate() {
            let first = (chunk * (block / each) + outer) * count * inner;
            sums.fill(<T::Wide as bytemuck::Zeroable>::zeroed());
            for number in 0..count * inner {
                let at = place(indices[first + number], length) * inner + number % inner;
                sums[at] = sums[at].sum(dy[first + number].widen());
            }
            T::narrow_slice(&sums, output);
        }
    });
}

/// Stores values at the indices.
fn put<T: bytemuck::Pod + Send + Sync, I: super::offsets::Index>(
    indices: &[I],
    values: &[T],
    sides: Sides,
    output: &mut [T],
) {
    let Sides { inner, length, count, .. } = sides;
    let (each, block) = (length * inner, blocks(sides));
    threads::chunks_mut(output, block, |chunk, output| {
        for (outer, output) in output.chunks_mut(each).enumerate() {
            let first = (chunk * (block / each) + outer) * count * inner;
            for number in 0..count * inner {
                let at = place(indices[first + number], length) * inner + number % inner;
                output[at] = values[first + number];
            }
        }
    });
}
