//! `pad`: borders of a constant, or of the array's own elements.

use smallvec::SmallVec;

use super::copying::{CHUNK, Reader, few_axes, slot};
use super::{concatenate, moving_case, slice_axis};
use crate::array::{Arg, Array, DType, Meta, Scalar, Shape};
use crate::cpu::tile::with_width;
use crate::cpu::{CpuCall, threads, tile};
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Batch, Case, EVERY, Elementwise, Entry, Metas, Op, Tolerance, expect_dtype, expect_inputs,
    expect_shape,
};
use crate::ops::elementwise::sum_to_shape;
use crate::ops::{
    astype, broadcast_to, constant, multiply, ones_like, reshape, slice, where_, zeros_like,
};

/// Cases of padding.
pub(crate) fn entries() -> Vec<Entry> {
    let value = Case::new("an array as value", &[&[2, 3], &[]], |x| {
        Ok(vec![pad(&x[0], [(1, 0), (2, 1)], PadMode::Constant, &x[1])?])
    });
    let cases = vec![
        moving_case("zeros", &[3, 5], |x| pad(x, [(1, 2), (0, 3)], PadMode::Constant, 0)),
        moving_case("a number", &[2, 3, 4], |x| pad(x, (1, 2), PadMode::Constant, 3)),
        moving_case("inner axes untouched", &[2, 3, 4], |x| {
            pad(x, [(1, 0), (0, 1), (0, 0)], PadMode::Constant, 0)
        }),
        moving_case("an empty array", &[0, 3], |x| pad(x, 2, PadMode::Constant, 1)),
        moving_case("more than one chunk", &[5, 3001], |x| pad(x, 7, PadMode::Constant, 0)),
        moving_case("edge", &[3, 5], |x| pad(x, [(2, 1), (1, 4)], PadMode::Edge, 0)),
        moving_case("reflect", &[3, 5], |x| pad(x, [(2, 5), (1, 4)], PadMode::Reflect, 0)),
        moving_case("symmetric", &[3, 5], |x| pad(x, [(2, 7), (1, 4)], PadMode::Symmetric, 0)),
        value.dtypes(EVERY).tolerance(Tolerance::Exact),
    ];
    vec![Entry { name: "pad", cases }]
}

/// What [`pad`] fills the border with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadMode {
    /// A constant.
    Constant,
    /// The nearest element of the array.
    Edge,
    /// The array mirrored at its outermost elements, which are not repeated.
    Reflect,
    /// The array mirrored at its border, so that the outermost elements are repeated.
    Symmetric,
}

/// Widths of borders: one number for all, `(before, after)` for all axes, or a pair for each.
#[derive(Clone, Debug, PartialEq)]
pub enum PadWidth {
    /// Before and after every axis.
    All(usize, usize),
    /// Before and after each axis.
    Each(Vec<(usize, usize)>),
}

impl From<usize> for PadWidth {
    fn from(width: usize) -> PadWidth {
        PadWidth::All(width, width)
    }
}

impl From<(usize, usize)> for PadWidth {
    fn from((before, after): (usize, usize)) -> PadWidth {
        PadWidth::All(before, after)
    }
}

impl<const N: usize> From<[(usize, usize); N]> for PadWidth {
    fn from(widths: [(usize, usize); N]) -> PadWidth {
        PadWidth::Each(widths.to_vec())
    }
}

impl From<&[(usize, usize)]> for PadWidth {
    fn from(widths: &[(usize, usize)]) -> PadWidth {
        PadWidth::Each(widths.to_vec())
    }
}

/// The array with a border. `value`, a number or scalar array converted to the array's dtype, is
/// what [`PadMode::Constant`] fills it with.
///
/// ```
/// use wootz::{Array, PadMode, pad};
/// let x = Array::new([1, 2, 3])?;
/// assert_eq!(pad(&x, (1, 2), PadMode::Constant, 9)?.to_vec::<i32>()?, [9, 1, 2, 3, 9, 9]);
/// assert_eq!(pad(&x, (2, 0), PadMode::Reflect, 0)?.to_vec::<i32>()?, [3, 2, 1, 2, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn pad(
    x: &Array,
    width: impl Into<PadWidth>,
    mode: PadMode,
    value: impl Into<Arg>,
) -> Result<Array> {
    let widths = match width.into() {
        PadWidth::All(before, after) => vec![(before, after); x.rank()],
        PadWidth::Each(widths) if widths.len() == x.rank() => widths,
        PadWidth::Each(widths) => {
            let expected = format!("{} pairs, one for each axis", x.rank());
            return Err(Error::argument("pad", "width", expected, widths.len()));
        }
    };
    if mode == PadMode::Constant {
        let value = match value.into() {
            Arg::Scalar(value) => {
                let value = constant(value, x.dtype(), x.device())?;
                return pad_constant(x, &widths, &value, constant_bits(&value));
            }
            Arg::Array(value) if value.rank() == 0 => astype(&value, x.dtype())?,
            Arg::Array(value) => {
                return Err(Error::shape("pad", "value", "[], a scalar", value.shape()));
            }
        };
        return pad_constant(x, &widths, &value, None);
    }
    let mut out = x.clone();
    for (axis, &(before, after)) in widths.iter().enumerate() {
        if (before, after) == (0, 0) {
            continue;
        }
        if x.shape()[axis] == 0 {
            let expected = format!("one with elements to repeat in axis {axis}");
            return Err(Error::shape("pad", "x", expected, x.shape()));
        }
        out = match mode {
            PadMode::Edge => pad_edge(&out, axis, before, after)?,
            _ => pad_mirrored(&out, axis, before, after, mode == PadMode::Symmetric)?,
        };
    }
    Ok(out)
}

/// Zeros around the array, which is what gradients of slices need.
pub(crate) fn pad_zeros(x: &Array, widths: &[(usize, usize)]) -> Result<Array> {
    let zero = constant(Scalar::Int(0), x.dtype(), x.device())?;
    pad_constant(x, widths, &zero, constant_bits(&zero))
}

fn pad_constant(
    x: &Array,
    widths: &[(usize, usize)],
    value: &Array,
    fill: Option<u64>,
) -> Result<Array> {
    let mut out = x.clone();
    let padded: Vec<usize> = (0..x.rank()).filter(|&axis| widths[axis] != (0, 0)).collect();
    // A few axes at a time, so that the GPU's kernel can walk the merged axes.
    for axes in padded.chunks(4) {
        let width = |axis: usize| if axes.contains(&axis) { widths[axis] } else { (0, 0) };
        let op = Pad { widths: (0..x.rank()).map(width).collect(), fill };
        let shape = op.padded_shape(out.shape())?;
        if !few_axes(&out.meta().layout, &slot(&shape, &op.starts(), out.shape())) {
            out = out.contiguous()?;
        }
        out = match fill {
            Some(_) => Array::apply(op, &[&out])?,
            None => Array::apply(op, &[&out, value])?,
        };
    }
    Ok(out)
}

/// The bits of a constant that nobody has asked for yet.
fn constant_bits(value: &Array) -> Option<u64> {
    let (op, _) = value.producer()?;
    let Some(Elementwise::Constant(bits)) = op.elementwise() else { return None };
    let (mut stored, bits) = ([0; 8], [bits]);
    let (size, width) = (value.dtype().size(), value.dtype().class().size());
    tile::narrow(value.dtype(), bytemuck::cast_slice(&bits).get(..width)?, &mut stored[..size]);
    Some(u64::from_le_bytes(stored))
}

fn pad_edge(x: &Array, axis: usize, before: usize, after: usize) -> Result<Array> {
    let length = x.shape()[axis];
    let edge = |at: usize, count: usize| {
        let mut shape = Shape::from_slice(x.shape());
        shape[axis] = count;
        broadcast_to(&slice_axis(x, axis, at, at + 1, 1)?, &shape)
    };
    concatenate(&[edge(0, before)?, x.clone(), edge(length - 1, after)?], axis)
}

/// The array forwards and backwards in turn, as often as the border is wide.
fn pad_mirrored(
    x: &Array,
    axis: usize,
    before: usize,
    after: usize,
    symmetric: bool,
) -> Result<Array> {
    let length = x.shape()[axis];
    // One pass forwards and one backwards; a single element is its own mirror image.
    let period = if symmetric { 2 * length } else { (2 * length - 2).max(1) };
    let mut phase = (period - before % period) % period;
    let mut left = before + length + after;
    let mut parts = Vec::new();
    while left > 0 {
        if phase < length {
            let count = (length - phase).min(left);
            parts.push(slice_axis(x, axis, phase, phase + count, 1)?);
            phase += count;
            left -= count;
        } else {
            let count = (period - phase).min(left);
            let last = if symmetric { period - 1 - phase } else { period - phase };
            parts.push(slice_axis(x, axis, last, last + 1 - count, -1)?);
            phase += count;
            left -= count;
        }
        phase %= period;
    }
    concatenate(&parts, axis)
}

/// Puts an array into a larger one filled with a value.
#[derive(Clone, Debug)]
struct Pad {
    widths: SmallVec<[(usize, usize); 4]>,
    /// The bits of the value; without them it is an input.
    fill: Option<u64>,
}

impl Pad {
    fn starts(&self) -> Shape {
        self.widths.iter().map(|width| width.0).collect()
    }

    fn padded_shape(&self, shape: &[usize]) -> Result<Shape> {
        let lengths = shape.iter().zip(&self.widths);
        let padded: Option<Shape> = lengths
            .map(|(length, &(low, high))| length.checked_add(low)?.checked_add(high))
            .collect();
        padded.ok_or_else(|| {
            let got = format!("{:?}", self.widths);
            Error::argument("pad", "width", "lengths that fit memory", got)
        })
    }
}

impl Op for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn arguments(&self) -> &'static [&'static str] {
        if self.fill.is_some() { &["x", "output"] } else { &["x", "value", "output"] }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, if self.fill.is_some() { 1 } else { 2 })?;
        if self.fill.is_none() {
            expect_shape(self, inputs, 1, &[])?;
            expect_dtype(self, inputs, 1, inputs[0].dtype)?;
        }
        let shape = inputs[0].shape();
        if shape.len() != self.widths.len() {
            let expected = format!("one of {} axes", self.widths.len());
            return Err(Error::shape(self.name(), "x", expected, shape));
        }
        let shape = self.padded_shape(shape)?;
        Ok(Metas::from_elem(Meta::new(self.name(), &shape, inputs[0].dtype)?, 1))
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
        use crate::gpu::{Bind, Kernel, grid, packed};
        let (input, output) = (call.meta(0), call.output_meta(0));
        let size = output.dtype.size();
        let dtype = [DType::U8, DType::U16, DType::U32, DType::U64][size.ilog2() as usize];
        let words = output.bytes().div_ceil(size.max(4));
        // The value is repeated to fill a word.
        let repeat = ["0x01010101u * ", "0x00010001u * ", "", ""][size.ilog2() as usize];
        let (value, reader, params, mut bindings) = match self.fill {
            Some(bits) => {
                let whole = "(u64(p.offset) | (u64(p.high) << 32u))";
                let value = if size == 8 { whole } else { "p.offset" };
                let params = [words as u32, bits as u32, (bits >> 32) as u32];
                (value, String::new(), params, vec![])
            }
            None => {
                let params = [words as u32, call.meta(1).layout.offset as u32, 0];
                let reader = packed::reader("value", 0, dtype);
                ("value(p.offset)", reader, params, vec![Bind::Input(1)])
            }
        };
        bindings.push(Bind::Output(0));
        call.launch(&Kernel {
            variant: format!("fill {dtype} {}", self.fill.is_some()),
            source: &|| {
                [
                    packed::PACKING,
                    &reader,
                    &packed::word_writer("out", bindings.len() - 1, dtype),
                    &include_str!("fill.wgsl").replace("WORD", &format!("{repeat}{value}")),
                ]
                .concat()
            },
            bindings: &bindings,
            params: &params,
            groups: grid(words.div_ceil(256)),
        })?;
        let slot = slot(output.shape(), &self.starts(), input.shape());
        super::copying::copy_into(call, 0, &slot)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(gradient) = &cotangents[0] else { return Ok(vec![None; inputs.len()]) };
        let x = &inputs[0];
        let starts = self.starts();
        let stops: Shape =
            starts.iter().zip(x.shape()).map(|(start, count)| start + count).collect();
        let dx = slice(gradient, &starts, &stops, &vec![1; x.rank()])?;
        let [_, value] = inputs else { return Ok(vec![Some(dx)]) };
        let border = Array::apply(self.clone(), &[&zeros_like(x)?, &ones_like(value)?])?;
        let dvalue = sum_to_shape(&multiply(gradient, border)?, &[])?;
        Ok(vec![Some(dx), Some(dvalue)])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let widths: Vec<(usize, usize)> =
            std::iter::once((0, 0)).chain(self.widths.iter().copied()).collect();
        let x = batch.spread(0)?;
        let Some(value) = batch.inputs.get(1) else {
            return Ok(vec![pad_constant(&x, &widths, &x, self.fill)?]);
        };
        if !batch.batched[1] {
            return Ok(vec![pad_constant(&x, &widths, value, None)?]);
        }
        // A value of its own for each: it shows where a padded array of ones has its border.
        let inside = pad_zeros(&ones_like(&slice_axis(&x, 0, 0, 1, 1)?)?, &widths)?;
        let value = reshape(value, &[&[batch.size], &vec![1; self.widths.len()][..]].concat())?;
        Ok(vec![where_(&astype(&inside, DType::Bool)?, pad_zeros(&x, &widths)?, &value)?])
    }
}

impl Pad {
    fn run<T: bytemuck::Pod + Send + Sync>(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let fill = match self.fill {
            Some(bits) => bytemuck::pod_read_unaligned(&bits.to_le_bytes()[..size_of::<T>()]),
            None => {
                let fill = call.strided::<T>(1)?;
                fill.data[fill.meta.layout.offset]
            }
        };
        let input = call.strided::<T>(0)?;
        let shape = input.meta.shape();
        let out_shape = call.output_meta(0).shape();
        // Axes behind the last padded one are contiguous in both: rows end there.
        let last = self.widths.iter().rposition(|&width| width != (0, 0)).unwrap_or(0);
        let inner: usize = shape.get(last + 1..).unwrap_or(&[]).iter().product();
        let row = |shape: &[usize]| shape.get(last).copied().unwrap_or(1) * inner;
        let (in_row, out_row) = (row(shape), row(out_shape));
        let before = self.widths.get(last).map_or(0, |width| width.0) * inner;
        let empty = input.meta.size() == 0;
        let reader = Reader::new(input);
        let rows = (CHUNK / out_row.max(1)).max(1);
        threads::chunks_mut(call.output::<T>(0)?, rows * out_row, |chunk, out| {
            for (index, out) in out.chunks_mut(out_row).enumerate() {
                // Which input row lies in this output row, if any.
                let mut rest = chunk * rows + index;
                let (mut number, mut pitch) = (Some(0), 1);
                for axis in (0..last).rev() {
                    let at = (rest % out_shape[axis]).checked_sub(self.widths[axis].0);
                    rest /= out_shape[axis];
                    number = match at {
                        Some(at) if at < shape[axis] => number.map(|number| number + at * pitch),
                        _ => None,
                    };
                    pitch *= shape[axis];
                }
                match number.filter(|_| !empty) {
                    Some(number) => {
                        out[..before].fill(fill);
                        reader.read(number * in_row, &mut out[before..before + in_row]);
                        out[before + in_row..].fill(fill);
                    }
                    None => out.fill(fill),
                }
            }
        });
        Ok(())
    }
}
