//! Indices as offsets: checked against the length of their axis, negative ones counted from its
//! end, and multiplied with its stride. Kernels that use offsets need no checks of their own.

use crate::array::{Array, DType, Meta};
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::{Bind, GpuCall, Kernel, packed};
use crate::op::{Metas, Op, expect_contiguous, expect_inputs};

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
pub(super) use by_index;

/// The offsets of `indices` along an axis of `length` elements that lie `stride` apart in an array
/// of `size` elements; `op` is named in errors.
pub(super) fn offsets(
    op: &'static str,
    indices: &Array,
    length: usize,
    stride: usize,
    size: usize,
) -> Result<Array> {
    check_index_dtype(op, "indices", indices.dtype())?;
    let wide = size as u64 > u32::MAX as u64;
    let op = Offsets { op, length, stride, wrap: true, wide };
    op.check_length(indices)?;
    Array::apply(op, &[&indices.contiguous()?])
}

/// As [`offsets`], for the start of a window of `count` elements, which must fit and does not count
/// from the end.
pub(super) fn window_offsets(
    op: &'static str,
    start: &Array,
    (length, count): (usize, usize),
    stride: usize,
    size: usize,
) -> Result<Array> {
    check_index_dtype(op, "start_indices", start.dtype())?;
    let wide = size as u64 > u32::MAX as u64;
    let op = Offsets { op, length: length + 1 - count, stride, wrap: false, wide };
    Array::apply(op, &[&start.contiguous()?])
}

/// Indices are integers; a mask of truth values has no fixed number of results.
pub(super) fn check_index_dtype(op: &'static str, argument: &str, dtype: DType) -> Result<()> {
    let expected = match dtype {
        DType::Bool => "an integer type (boolean masks are not supported as indices)",
        _ => "an integer type",
    };
    match dtype.is_integer() {
        true => Ok(()),
        false => Err(Error::dtype(op, argument, expected, dtype)),
    }
}

#[derive(Debug)]
struct Offsets {
    op: &'static str,
    length: usize,
    stride: usize,
    /// Whether negative indices count from the end.
    wrap: bool,
    /// Whether offsets need more than 32 bits.
    wide: bool,
}

impl Offsets {
    /// Any index into an axis without elements is wrong; on a GPU it could not even be clamped.
    fn check_length(&self, indices: &Array) -> Result<()> {
        if self.length == 0 && indices.size() > 0 {
            let expected = "no indices into an axis of length 0";
            let got = format!("{} of them", indices.size());
            return Err(Error::argument(self.op, "indices", expected, got));
        }
        Ok(())
    }
}

impl Op for Offsets {
    fn name(&self) -> &'static str {
        self.op
    }

    fn arguments(&self) -> &'static [&'static str] {
        if self.wrap { &["indices", "offsets"] } else { &["start_indices", "offsets"] }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        expect_contiguous(self, inputs, 0)?;
        let dtype = if self.wide { DType::U64 } else { DType::U32 };
        Ok(Metas::from_elem(Meta::new(self.op, inputs[0].shape(), dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        const CHUNK: usize = 16 * 1024;
        macro_rules! body {
            ($index:ty) => {{
                let indices = call.input::<$index>(0)?;
                check(self, 0, indices, self.length, self.wrap)?;
                let place = |index: $index| place(index, self.length) * self.stride;
                if self.wide {
                    threads::chunks_mut(call.output::<u64>(0)?, CHUNK, |chunk, out| {
                        for (out, &index) in out.iter_mut().zip(&indices[chunk * CHUNK..]) {
                            *out = place(index) as u64;
                        }
                    });
                } else {
                    threads::chunks_mut(call.output::<u32>(0)?, CHUNK, |chunk, out| {
                        for (out, &index) in out.iter_mut().zip(&indices[chunk * CHUNK..]) {
                            *out = place(index) as u32;
                        }
                    });
                }
            }};
        }
        by_index!(call.meta(0).dtype, body);
        Ok(())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        use super::raw;
        let indices = call.meta(0);
        let mut words = raw::Words::default();
        words.push("n", indices.size());
        words.push("offset", indices.layout.offset);
        words.push("length", self.length);
        words.push("stride", self.stride);
        words.push("site", call.status_site(0, self.length) as usize);
        let source = || {
            format!(
                "{}{}{}{}{}{}{}{}",
                packed::PACKING,
                words.text(),
                packed::reader("indices", 0, indices.dtype),
                raw::word_output("out", 1, 4),
                raw::status(2),
                place_function(indices.dtype, self.wrap),
                raw::MAIN,
                include_str!("offsets.wgsl"),
            )
        };
        call.launch_with_status(&Kernel {
            variant: format!("offsets {} {}", indices.dtype, self.wrap),
            source: &source,
            bindings: &[Bind::Input(0), Bind::Output(0)],
            params: &words.words,
            groups: raw::threads_grid(indices.size()),
        })
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        Ok(vec![None])
    }
}

/// An integer that can be an index.
pub(super) trait Index: bytemuck::Pod + Sync {
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
pub(super) fn check<I: Index>(
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
pub(super) fn place<I: Index>(index: I, length: usize) -> usize {
    let index = index.value();
    (if index < 0 { index + length as i64 } else { index }) as usize
}

/// WGSL: `place(index, length)` gives the place and 1, or 0 for one out of range;
/// `bits(index)` is what an error reports.
#[cfg(feature = "gpu")]
pub(super) fn place_function(dtype: DType, wrap: bool) -> String {
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
