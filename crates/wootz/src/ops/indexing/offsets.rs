//! Indices as offsets: checked against the length of their axis, negative ones counted from its
//! end, and multiplied with its stride. Kernels that use offsets need no checks of their own.

use smallvec::SmallVec;

use super::raw::Walk;
use crate::array::{Array, DType, Meta, Shape, broadcast_shapes};
use crate::cpu::{CpuCall, Strided, threads};
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::{Bind, GpuCall, Kernel, packed};
use crate::op::{Batch, Metas, Op, expect_inputs, expect_shape};

/// Calls a macro with the Rust type of an index dtype.
macro_rules! by_index {
    ($dtype:expr, $body:ident) => {
        match $dtype {
            $crate::array::DType::U8 | $crate::array::DType::Bool => $body!(u8),
            $crate::array::DType::U16 => $body!(u16),
            $crate::array::DType::U32 => $body!(u32),
            $crate::array::DType::U64 => $body!(u64),
            $crate::array::DType::I8 => $body!(i8),
            $crate::array::DType::I16 => $body!(i16),
            $crate::array::DType::I32 => $body!(i32),
            _ => $body!(i64),
        }
    };
}
pub(in crate::ops) use by_index;

/// The places of `indices` along an axis of `length` elements, counted from its front; `op` is
/// named in errors.
pub(super) fn places(op: &'static str, indices: &Array, length: usize) -> Result<Array> {
    let mut picks = Picks::default();
    picks.push(op, indices, length, 1)?;
    let [indices] = &picks.inputs()?[..] else { return Ok(indices.clone()) };
    Array::apply(Places { op, rules: picks.rules }, &[indices])
}

/// Where windows start: indices along some axes, in arrays that broadcast together.
#[derive(Clone, Default)]
pub(super) struct Picks {
    arrays: SmallVec<[Array; 2]>,
    rules: Rules,
}

/// What the arrays of [`Picks`] mean; operations have them as their last inputs.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    axes: SmallVec<[Rule; 2]>,
    shape: Shape,
}

/// What indices along one axis mean.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// Indices are below this.
    length: usize,
    /// How far apart neighbours are.
    stride: usize,
    /// Whether negative indices count from the end.
    wrap: bool,
}

impl Picks {
    /// Adds `indices` along an axis of `length` elements that lie `stride` apart.
    pub(super) fn push(
        &mut self,
        op: &'static str,
        indices: &Array,
        length: usize,
        stride: usize,
    ) -> Result<()> {
        check_index_dtype(op, "indices", indices.dtype())?;
        // Any index into an axis without elements is wrong; on a GPU it could not even be clamped.
        if length == 0 && indices.size() > 0 {
            let expected = "no indices into an axis of length 0";
            let got = format!("{} of them", indices.size());
            return Err(Error::argument(op, "indices", expected, got));
        }
        self.add(op, indices, Rule { length, stride, wrap: true })
    }

    /// Adds the start of a window of `count` elements, which must fit and does not count from the
    /// end.
    pub(super) fn push_start(
        &mut self,
        op: &'static str,
        start: &Array,
        (length, count): (usize, usize),
        stride: usize,
    ) -> Result<()> {
        check_index_dtype(op, "start_indices", start.dtype())?;
        self.add(op, start, Rule { length: length + 1 - count, stride, wrap: false })
    }

    fn add(&mut self, op: &'static str, indices: &Array, rule: Rule) -> Result<()> {
        self.rules.shape = broadcast_shapes(op, &self.rules.shape, indices.shape())?;
        self.rules.axes.push(rule);
        self.arrays.push(indices.clone());
        Ok(())
    }

    /// What an operation with these inputs and rules picks.
    pub(super) fn again(inputs: &[Array], rules: &Rules) -> Picks {
        Picks { arrays: inputs.into(), rules: rules.clone() }
    }

    /// What an operation picks for a batch whose indices are its inputs from `first` on. Given the
    /// number of elements of each array picked from, a batch of them as well: element `i` of the
    /// batch picks from array `i`.
    pub(super) fn of_batch(
        batch: &Batch<'_>,
        first: usize,
        rules: &Rules,
        elements: Option<usize>,
    ) -> Result<Picks> {
        let mut picks = Picks::default();
        picks.rules.shape = [&[batch.size], rules.shape()].concat().into();
        for (input, rule) in (first..batch.inputs.len()).zip(&rules.axes) {
            picks.arrays.push(batch.spread(input)?);
            picks.rules.axes.push(*rule);
        }
        if let Some(stride) = elements {
            let numbers: Vec<u32> = (0..batch.size as u32).collect();
            let shape = [&[batch.size], &vec![1; rules.shape().len()][..]].concat();
            let device = batch.inputs[0].device();
            picks.arrays.push(Array::from_slice_on(&numbers, &shape, device)?);
            picks.rules.axes.push(Rule { length: batch.size, stride, wrap: true });
        }
        Ok(picks)
    }

    /// The inputs of an operation that picks, all of the common shape.
    pub(super) fn inputs(&self) -> Result<SmallVec<[Array; 2]>> {
        let mut inputs = SmallVec::new();
        for array in &self.arrays {
            let array = crate::ops::broadcast_to(array, &self.rules.shape)?;
            let few = array.rank() <= MAX_RANK;
            inputs.push(if few { array } else { array.contiguous()? });
        }
        Ok(inputs)
    }

    /// The offset of each window, in one row. There must be an index.
    pub(super) fn offsets(&self, op: &'static str) -> Result<Array> {
        let inputs = self.inputs()?;
        let places = Places { op, rules: self.rules.clone() };
        let offsets = Array::apply(places, &inputs.iter().collect::<SmallVec<[&Array; 2]>>())?;
        crate::ops::reshape(&offsets, &[self.rules.count()])
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The common shape of the indices.
    pub(super) fn shape(&self) -> &[usize] {
        &self.rules.shape
    }
}

/// Axes that fit a kernel's parameters, whether they can be merged or not.
const MAX_RANK: usize = 12;

impl Rules {
    /// The common shape of the indices.
    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many windows are picked.
    pub(super) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Checks an operation's inputs from `first` on.
    pub(super) fn expect(&self, op: &dyn Op, inputs: &[&Meta], first: usize) -> Result<()> {
        expect_inputs(op, inputs, first + self.axes.len())?;
        (first..inputs.len()).try_for_each(|input| expect_shape(op, inputs, input, &self.shape))
    }

    /// The names of an operation's arguments, by what its indices are.
    pub(super) fn arguments(
        &self,
        indices: &'static [&'static str],
        starts: &'static [&'static str],
    ) -> &'static [&'static str] {
        if self.axes.iter().all(|rule| rule.wrap) { indices } else { starts }
    }

    /// Bytes that offsets take on a GPU.
    pub(super) fn scratch(&self, gpu: bool) -> usize {
        if gpu && !self.axes.is_empty() { self.count() * size_of::<u32>() } else { 0 }
    }

    /// The offsets that the inputs from `first` on tell, all of them in range.
    pub(super) fn on_cpu(
        &self,
        op: &dyn Op,
        call: &CpuCall<'_>,
        first: usize,
    ) -> Result<Vec<usize>> {
        let mut offsets = vec![0; self.count()];
        for (input, &rule) in (first..).zip(&self.axes) {
            macro_rules! body {
                ($index:ty) => {
                    add_offsets(op, input, call.strided::<$index>(input)?, rule, &mut offsets)?
                };
            }
            by_index!(call.meta(input).dtype, body);
        }
        Ok(offsets)
    }

    /// Records the kernels that write the offsets, as `u32`, to `target`.
    #[cfg(feature = "gpu")]
    pub(super) fn on_gpu(
        &self,
        call: &mut GpuCall<'_>,
        first: usize,
        target: Bind<'_>,
    ) -> Result<()> {
        use super::raw;
        for (number, rule) in self.axes.iter().enumerate() {
            let indices = call.meta(first + number);
            let layout = &indices.layout;
            let mut words = raw::Words::default();
            words.push("n", indices.size());
            words.push("offset", layout.offset);
            words.push("length", rule.length);
            words.push("stride", rule.stride);
            words.push("site", call.status_site(first + number, rule.length) as usize);
            words.walk("at", &Walk::new(layout.shape.clone(), layout.strides.clone()));
            // The offsets of several axes add up.
            let sum = if number == 0 { "" } else { "out_data[id] + " };
            let source = || {
                format!(
                    "{}{}{}{}{}{}{}{}",
                    packed::PACKING,
                    words.text(),
                    packed::reader("indices", 0, indices.dtype),
                    raw::word_output("out", 1, 4),
                    raw::status(2),
                    place_function(indices.dtype, rule.wrap),
                    raw::MAIN,
                    include_str!("offsets.wgsl").replace("SUM", sum),
                )
            };
            call.launch_with_status(&Kernel {
                variant: format!(
                    "offsets {} {} {}{}",
                    indices.dtype,
                    rule.wrap,
                    number > 0,
                    words.key()
                ),
                source: &source,
                bindings: &[Bind::Input(first + number), target],
                params: &words.words,
                groups: raw::threads_grid(indices.size()),
            })?;
        }
        Ok(())
    }

    /// WGSL that declares `offsets(i)` for offsets in scratch memory, bound at `binding` if there
    /// are any; one window without index starts at the first element.
    #[cfg(feature = "gpu")]
    pub(super) fn reader(&self, binding: usize) -> String {
        match self.axes.is_empty() {
            true => "fn offsets(i: u32) -> u32 { return 0u; }\n".into(),
            false => format!(
                "{}fn offsets(i: u32) -> u32 {{ return offsets_data[i]; }}\n",
                super::raw::word_output("offsets", binding, 4)
            ),
        }
    }

    /// The memory that [`reader`](Self::reader) declares, behind the others of a kernel.
    #[cfg(feature = "gpu")]
    pub(super) fn bind<'a>(&self, bindings: &[Bind<'a>]) -> SmallVec<[Bind<'a>; 4]> {
        let scratch = (!self.axes.is_empty()).then_some(Bind::Scratch);
        bindings.iter().copied().chain(scratch).collect()
    }
}

/// Adds the offsets of indices along one axis, if all of them are in range.
fn add_offsets<I: Index + Send>(
    op: &dyn Op,
    argument: usize,
    indices: Strided<'_, I>,
    rule: Rule,
    offsets: &mut [usize],
) -> Result<()> {
    const CHUNK: usize = 16 * 1024;
    let layout = &indices.meta.layout;
    let walk = Walk::new(layout.shape.clone(), layout.strides.clone());
    let index = |n: usize| indices.data[(layout.offset as isize + walk.place(n)) as usize];
    for n in 0..offsets.len() {
        check(op, argument, &[index(n)], rule.length, rule.wrap)?;
    }
    threads::chunks_mut(offsets, CHUNK, |chunk, offsets| {
        for (n, offset) in (chunk * CHUNK..).zip(offsets) {
            *offset += place(index(n), rule.length) * rule.stride;
        }
    });
    Ok(())
}

/// Indices are integers: what a mask of truth values picks has no fixed number of results.
pub(in crate::ops) fn check_index_dtype(
    op: &'static str,
    argument: &str,
    dtype: DType,
) -> Result<()> {
    let expected = match dtype {
        DType::Bool => "an integer type (a boolean mask is for `set`, alone)",
        _ => "an integer type",
    };
    match dtype.is_integer() {
        true => Ok(()),
        false => Err(Error::dtype(op, argument, expected, dtype)),
    }
}

/// The dtype of two vectors of indices of which one may count `implied` matrices in their order: it holds the values of
/// both, and whatever numbers of products come of them.
pub(in crate::ops) fn common_index_dtype(given: [Option<DType>; 2], implied: usize) -> DType {
    let all = |of: fn(DType) -> bool| given.iter().flatten().all(|&dtype| of(dtype));
    let unsigned = |x: DType| matches!(x, DType::U8 | DType::U16 | DType::U32);
    let narrow = |x: DType| x.size() < 4 || x == DType::I32;
    match given {
        _ if all(unsigned) => DType::U32,
        _ if all(narrow) && i32::try_from(implied).is_ok() => DType::I32,
        [Some(l), Some(r)] if l != r => DType::I64,
        [l, r] => match l.or(r) {
            Some(dtype) if !narrow(dtype) => dtype,
            _ => DType::I64,
        },
    }
}

/// Indices counted from the front, times how far apart neighbours are; those of several axes are added up.
#[derive(Debug)]
struct Places {
    op: &'static str,
    rules: Rules,
}

impl Op for Places {
    fn name(&self) -> &'static str {
        self.op
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.rules.axes.len() {
            1 => &["indices", "places"],
            _ => &["indices", "indices", "indices", "indices", "indices", "indices", "indices"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        self.rules.expect(self, inputs, 0)?;
        let most = |rule: &Rule| rule.length.saturating_sub(1).saturating_mul(rule.stride) as u64;
        let wide = self.rules.axes.iter().map(most).fold(0, u64::saturating_add) > u32::MAX as u64;
        let dtype = if wide { DType::U64 } else { DType::U32 };
        Ok(Metas::from_elem(Meta::new(self.op, inputs[0].shape(), dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let places = self.rules.on_cpu(self, call, 0)?;
        if call.output_meta(0).dtype == DType::U64 {
            let out = call.output::<u64>(0)?.iter_mut();
            out.zip(places).for_each(|(out, place)| *out = place as u64);
        } else {
            let out = call.output::<u32>(0)?.iter_mut();
            out.zip(places).for_each(|(out, place)| *out = place as u32);
        }
        Ok(())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        self.rules.on_gpu(call, 0, Bind::Output(0))
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        Ok(vec![None])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let picks = Picks::of_batch(batch, 0, &self.rules, None)?;
        batch.apply(Places { op: self.op, rules: picks.rules.clone() }, &picks.inputs()?)
    }
}

/// An integer that can be an index.
pub(in crate::ops) trait Index: bytemuck::Pod + Sync {
    /// The value, if it fits; larger ones are out of range of any axis.
    fn value(self) -> i64;
}

macro_rules! indices {
    ($($type:ty),*) => {$(
        impl Index for $type {
            #[inline(always)]
            fn value(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }
    )*};
}

indices!(u8, u16, u32, u64, i8, i16, i32, i64);

/// An error about the first index that is out of range, if there is one.
pub(in crate::ops) fn check<I: Index>(
    op: &dyn Op,
    argument: usize,
    indices: &[I],
    length: usize,
    wrap: bool,
) -> Result<()> {
    let (low, high) = (if wrap { -(length as i64) } else { 0 }, length as i64);
    let outside = |index: &&I| index.value() < low || index.value() >= high;
    match indices.iter().find(outside) {
        None => Ok(()),
        Some(index) => Err(Error::Index {
            op: op.name(),
            argument: crate::op::argument_name(op, argument),
            got: index.value(),
            length,
        }),
    }
}

/// The place of a checked index.
#[inline(always)]
pub(in crate::ops) fn place<I: Index>(index: I, length: usize) -> usize {
    let index = index.value();
    (if index < 0 { index + length as i64 } else { index }) as usize
}

/// WGSL: `place(index, length)` gives the place and 1, or 0 for one out of range;
/// `bits(index)` is what an error reports.
#[cfg(feature = "gpu")]
pub(in crate::ops) fn place_function(dtype: DType, wrap: bool) -> String {
    use crate::array::Class;
    let class = packed::wgsl_type(dtype.class());
    let (place, bits) = match dtype.class() {
        Class::U32 => ("return vec2u(index, select(0u, 1u, index < length));", "index"),
        Class::U64 => (
            "return vec2u(u32(index), select(0u, 1u, index < u64(length)));",
            "select(0x7fffffffu, u32(index), index < u64(0x7fffffffu))",
        ),
        Class::I32 => (
            "let back = u32(-index);
             if (index < 0) { return vec2u(length - back, select(0u, 1u, WRAP && back <= length)); }
             return vec2u(u32(index), select(0u, 1u, u32(index) < length));",
            "bitcast<u32>(index)",
        ),
        _ => (
            "let longest = i64(length);
             if (index < i64(0)) {
                 return vec2u(u32(index + longest), select(0u, 1u, WRAP && index >= -longest));
             }
             return vec2u(u32(index), select(0u, 1u, index < longest));",
            "bitcast<u32>(i32(clamp(index, i64(-2147483647), i64(2147483647))))",
        ),
    };
    let place = place.replace("WRAP", if wrap { "true" } else { "false" });
    format!(
        "fn place(index: {class}, length: u32) -> vec2u {{ {place} }}\n\
         fn bits(index: {class}) -> u32 {{ return {bits}; }}\n"
    )
}
