//! Products with rows of weights in single precision: activations are rounded to integers and multiplied with
//! weights as they lie, or, if there are many, with weights that are unpacked a panel at a time. For formats without such
//! kernels, and where the rounding of activations would show in a product that should be exact, weights are decoded to floats.

use bytemuck::Pod;

use super::rows::{Buffers, Rows};
use crate::array::{DType, Meta};
use crate::cpu::CpuCall;
use crate::cpu::quant::{Activations, Apart, Floats, Format, Numbers, Pair, Pairs, Weights};
use crate::cpu::tile::Storage;
use crate::error::{Error, Result};
use crate::ops::indexing::offsets::{by_index, check, place};
use crate::quant::{Activations as Level, Scheme};

/// Rows of activations with a matrix from which on unpacking the weights is faster.
fn many(level: Level) -> usize {
    match level {
        Level::Exact => 8,
        Level::Fast => 6,
    }
}

/// Weights of a matrix up to which exact products are sums of floats. Sums of few products show the rounding of
/// each, and with so few weights speed does not matter.
const SMALL: usize = 1 << 16;

/// What is multiplied: `x` of `[lefts, m, columns]` with `rights` matrices of `n` rows.
struct Shape {
    lefts: usize,
    m: usize,
    columns: usize,
    rights: usize,
    n: usize,
    /// Products, if indices choose them.
    chosen: Option<usize>,
}

impl Shape {
    /// The shapes that an operation has checked.
    fn new(scheme: Scheme, inputs: &[&Meta]) -> Option<Shape> {
        let (&[lefts, m, columns], &[rights, n, _]) = (inputs[0].shape(), inputs[1].shape()) else {
            return None;
        };
        let chosen = inputs.get(1 + scheme.arrays()).map(|indices| indices.size());
        Some(Shape { lefts, m, columns, rights, n, chosen })
    }

    /// Rows of the output.
    fn outputs(&self) -> usize {
        self.m * self.chosen.unwrap_or(self.lefts)
    }

    /// Bytes of scratch memory before the pairs that are chosen: integers, and what many of them are laid in, or
    /// numbers, whichever are more.
    fn memory(&self, scheme: Scheme, level: Level) -> usize {
        let laid = match Format::of(scheme, self.columns) {
            Some(format) if self.many(level) && !self.fine(level, false) => {
                Weights::bytes_for_many(format, level, self.outputs(), self.columns)
            }
            _ => 0,
        };
        let integers = self.integers(level).saturating_add(laid);
        integers.max(Floats::bytes(self.outputs(), self.columns)).next_multiple_of(64)
    }

    /// Bytes of activations as integers.
    fn integers(&self, level: Level) -> usize {
        Activations::bytes(level, self.lefts * self.m, self.columns).next_multiple_of(64)
    }

    /// What is multiplied with what.
    fn pairs<'a>(&self, pairs: &'a mut [Pair]) -> Pairs<'a> {
        match self.chosen {
            Some(_) => Pairs::Chosen { rows: self.m, pairs },
            None => Pairs::Each,
        }
    }

    /// Whether activations are many. As a product's bits depend on it, it is a question of shapes alone.
    fn many(&self, level: Level) -> bool {
        self.outputs() >= many(level) * self.rights
    }

    /// Whether products should be those of floats: also of activations and scales that were kept in single
    /// precision, because whoever keeps them so wants its digits.
    fn fine(&self, level: Level, single: bool) -> bool {
        level == Level::Exact && (single || self.n * self.columns <= SMALL)
    }
}

/// Bytes that a product needs beside its output.
pub(in super::super) fn scratch(
    scheme: Scheme,
    transpose: bool,
    level: Level,
    inputs: &[&Meta],
) -> usize {
    match Shape::new(scheme, inputs) {
        Some(shape) if transpose && inputs[0].dtype != DType::F64 => {
            shape.memory(scheme, level) + shape.chosen.unwrap_or(0) * size_of::<Pair>()
        }
        _ => 0,
    }
}

/// The same for one of several matrices, whose arrays are the inputs from `first` on.
pub(in crate::ops) fn scratch_from(
    scheme: Scheme,
    level: Level,
    inputs: &[&Meta],
    first: usize,
) -> usize {
    let arrays = inputs.iter().skip(first).take(scheme.arrays());
    let own: smallvec::SmallVec<[&Meta; 4]> = inputs[..1].iter().chain(arrays).copied().collect();
    scratch(scheme, true, level, &own)
}

/// The matrix whose arrays are the inputs from `first` on, if products of `m` rows with its `n` rows of `k` weights
/// are those of integers, and so few that weights are multiplied as they lie.
pub(in crate::ops) fn integers<'a>(
    call: &CpuCall<'a>,
    scheme: Scheme,
    level: Level,
    first: usize,
    [m, n, k]: [usize; 3],
) -> Result<Option<Weights<'a>>> {
    let shape = Shape { lefts: 1, m, columns: k, rights: 1, n, chosen: None };
    match shape.many(level) || shape.fine(level, single(call, scheme, first)) {
        true => Ok(None),
        false => weights(call, scheme, first, [n, k]),
    }
}

/// Multiplies `x` with rows of weights.
pub(super) fn multiply<T>(call: &mut CpuCall<'_>, scheme: Scheme, level: Level) -> Result<()>
where
    T: Storage<Wide = f32> + Pod + Send + Sync,
{
    let op = call.op.name();
    let metas: smallvec::SmallVec<[&Meta; 6]> =
        call.inputs.iter().map(|input| input.meta).collect();
    let Some(shape) = Shape::new(scheme, &metas) else {
        return Err(Error::shape(op, "x", "three axes", call.meta(0).shape()));
    };
    let Shape { lefts, columns, rights, n, chosen, .. } = shape;
    let x = call.input::<T>(0)?;
    let start = shape.memory(scheme, level);
    // Indices are checked before anything is written.
    if chosen.is_some() {
        choose(call, 1 + scheme.arrays(), [lefts, rights], start)?;
    }
    let weights = weights(call, scheme, 1, [rights * n, columns])?;
    let others = if weights.is_none() { Some(Rows::new(call, scheme, 1)?) } else { None };
    let fine = shape.fine(level, single(call, scheme, 1));
    let (output, scratch) = call.output_and_scratch::<T, u8>(0)?;
    if columns == 0 {
        output.fill(T::narrow(0.0));
        return Ok(());
    }
    let (memory, pairs) = scratch.split_at_mut(start.min(scratch.len()));
    let pairs = some_pairs(op, pairs, chosen.unwrap_or(0))?;
    // Activations that are not finite are not integers, either.
    if let Some(weights) = &weights
        && !fine
    {
        let (integers, laid) = memory.split_at_mut(shape.integers(level).min(memory.len()));
        let how = (level, weights.order(level));
        if let Some(x) = Activations::round(op, how, x, columns, integers)? {
            let pairs = shape.pairs(pairs);
            return match shape.many(level) {
                true => weights.multiply_many(op, n, &x, pairs, laid, output),
                false => weights.multiply(op, n, &x, pairs, output),
            };
        }
    }
    let decode = |row: usize, first: usize, to: &mut [f32]| -> Result<()> {
        if let Some(weights) = &weights {
            weights.decode(op, row, first, to)?;
        } else if let Some(rows) = &others {
            rows.decode(row * columns + first, &mut Buffers::default(), to);
        }
        Ok(())
    };
    let floats = Floats { matrices: rights, n, columns, decode: &decode };
    floats.multiply(op, x, shape.pairs(pairs), memory, output)
}

/// Whether activations, and the scales of the matrix whose arrays are the inputs from `first` on, are in single precision.
/// Scales of a byte say nothing of the type that a model is kept in: there activations alone do.
fn single(call: &CpuCall<'_>, scheme: Scheme, first: usize) -> bool {
    let scales = scheme.group_size().map(|_| call.meta(first + 1).dtype);
    call.meta(0).dtype == DType::F32 && matches!(scales, Some(DType::F32 | DType::U8))
}

/// The matrices whose arrays are the inputs from `first` on, as kernels see them, if they know the format.
fn weights<'a>(
    call: &CpuCall<'a>,
    scheme: Scheme,
    first: usize,
    shape: [usize; 2],
) -> Result<Option<Weights<'a>>> {
    let op = call.op.name();
    let Some(format) = Format::of(scheme, shape[1]) else { return Ok(None) };
    let array = |index: usize| match index < scheme.arrays() {
        true => call.bytes(first + index),
        false => Ok(&[][..]),
    };
    let apart = match scheme.group_size() {
        Some(group) => {
            let numbers = numbers(op, call.meta(first + 1).dtype)?;
            Apart { scales: array(1)?, biases: array(2)?, numbers, group }
        }
        None => Apart::NONE,
    };
    Weights::new(op, format, shape, array(0)?, apart).map(Some)
}

/// Writes down which matrices the two vectors of indices, from input `first` on, choose: in the scratch memory,
/// from byte `start` on.
fn choose(call: &mut CpuCall<'_>, first: usize, counts: [usize; 2], start: usize) -> Result<()> {
    let op = call.op;
    macro_rules! body {
        ($index:ty) => {{
            let (lhs, rhs) = (call.input::<$index>(first)?, call.input::<$index>(first + 1)?);
            check(op, first, lhs, counts[0], false)?;
            check(op, first + 1, rhs, counts[1], false)?;
            let memory = call.scratch.get_mut(start..).unwrap_or_default();
            let pairs = some_pairs(op.name(), memory, lhs.len())?;
            for (pair, (&lhs, &rhs)) in pairs.iter_mut().zip(lhs.iter().zip(rhs)) {
                *pair = Pair::new(place(lhs, counts[0]) as u32, place(rhs, counts[1]) as u32);
            }
        }};
    }
    by_index!(call.meta(first).dtype, body);
    Ok(())
}

/// So many pairs at the start of memory.
fn some_pairs<'a>(op: &'static str, memory: &'a mut [u8], count: usize) -> Result<&'a mut [Pair]> {
    let got = memory.len();
    let bytes = memory.get_mut(..count * size_of::<Pair>()).unwrap_or_default();
    match bytemuck::try_cast_slice_mut::<u8, Pair>(bytes) {
        Ok(pairs) if pairs.len() == count => Ok(pairs),
        _ if count == 0 => Ok(&mut []),
        _ => Err(Error::argument(op, "workspace", format!("room for {count} pairs"), got)),
    }
}

/// The type of scales and biases.
fn numbers(op: &'static str, dtype: DType) -> Result<Numbers> {
    match dtype {
        DType::F32 => Ok(Numbers::F32),
        DType::F16 => Ok(Numbers::F16),
        DType::BF16 => Ok(Numbers::Bf16),
        DType::U8 => Ok(Numbers::Byte),
        other => Err(Error::dtype(op, "scales", "one of at most 32 bits", other)),
    }
}
