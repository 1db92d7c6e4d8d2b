//! Sorting on the GPU: blocks sorted by counting ranks, then runs merged two by two. Indices move,
//! elements stay; they are compared on order-preserving integers made of their bits.

use super::Side;
use crate::array::{DType, Meta};
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

/// Elements of a row that one workgroup sorts.
const BLOCK: usize = 256;

/// Bytes that sorting an input needs beside its output.
pub(super) fn scratch(x: &Meta) -> usize {
    2 * size_of::<u32>() * x.size()
}

/// Sorts the rows of the input, or tells the indices that do; the `kept` largest of each row only.
pub(super) fn sort(call: &mut GpuCall<'_>, indices: bool, kept: usize) -> Result<()> {
    let meta = call.meta(0);
    let (dtype, offset, total) = (meta.dtype, meta.layout.offset, meta.size());
    let length = meta.shape().last().copied().unwrap_or(1);
    let rows = total / length;
    let blocks = length.div_ceil(BLOCK);
    call.launch(&Kernel {
        variant: format!("blocks {dtype}"),
        source: &|| {
            let key = key_type(dtype);
            let text = include_str!("blocks.wgsl").replace("KEY", key);
            [&elements("x", 0, dtype)[..], &key_function(dtype), &text].concat()
        },
        bindings: &[Bind::Input(0), Bind::Scratch],
        params: &[(rows * blocks) as u32, blocks as u32, length as u32, offset as u32],
        groups: grid(rows * blocks),
    })?;
    // The indices are in one half of the scratch memory and go to the other, back and forth.
    let (mut from, mut to) = (0, total);
    let mut width = BLOCK;
    while width < length {
        call.launch(&Kernel {
            variant: format!("merge {dtype}"),
            source: &|| {
                let text = include_str!("merge.wgsl").replace("KEY", key_type(dtype));
                [&elements("x", 0, dtype)[..], &key_function(dtype), &text].concat()
            },
            bindings: &[Bind::Input(0), Bind::Scratch],
            params: &[
                total as u32,
                length as u32,
                offset as u32,
                width as u32,
                kept as u32,
                from as u32,
                to as u32,
            ],
            groups: grid(total.div_ceil(BLOCK)),
        })?;
        (from, to) = (to, from);
        width = width.saturating_mul(2);
    }
    let output = if indices { DType::U32 } else { raw(dtype) };
    let outputs = rows * kept;
    let words = outputs.div_ceil(packed::per_word(output));
    call.launch(&Kernel {
        variant: format!("gather {} {indices}", raw(dtype)),
        source: &|| {
            let value = match indices {
                true => "order[p.start + place(i)]",
                false => "x(p.offset + i / p.kept * p.length + order[p.start + place(i)])",
            };
            let wide = packed::wgsl_type(output.class());
            [
                &elements("x", 0, dtype)[..],
                &packed::word_writer("out", 2, output),
                include_str!("gather.wgsl"),
                &format!("fn sorted(i: u32) -> {wide} {{ return {value}; }}\n"),
                &packed::word_main(output, "p.total", "sorted"),
            ]
            .concat()
        },
        bindings: &[Bind::Input(0), Bind::Scratch, Bind::Output(0)],
        params: &[outputs as u32, length as u32, kept as u32, offset as u32, from as u32],
        groups: grid(words.div_ceil(packed::WORD_MAIN_GROUP)),
    })
}

/// The places of the second input's elements in the first.
pub(super) fn searchsorted(call: &mut GpuCall<'_>, side: Side) -> Result<()> {
    let (sorted, values) = (call.meta(0), call.meta(1));
    let dtype = sorted.dtype;
    call.launch(&Kernel {
        variant: format!("{side:?} {dtype}"),
        source: &|| {
            let before = if side == Side::Left { "other < mine" } else { "other <= mine" };
            [
                &elements("x", 0, dtype)[..],
                &packed::reader("value", 1, raw(dtype)),
                &key_function(dtype),
                &packed::word_writer("out", 2, DType::U32),
                &include_str!("search.wgsl").replace("BEFORE", before),
                &packed::word_main(DType::U32, "p.total", "place"),
            ]
            .concat()
        },
        bindings: &[Bind::Input(0), Bind::Input(1), Bind::Output(0)],
        params: &[
            values.size() as u32,
            sorted.size() as u32,
            sorted.layout.offset as u32,
            values.layout.offset as u32,
        ],
        groups: grid(values.size().div_ceil(packed::WORD_MAIN_GROUP)),
    })
}

/// The unsigned type that holds the bits of an element.
fn raw(dtype: DType) -> DType {
    [DType::U8, DType::U16, DType::U32, DType::U64][dtype.size().ilog2() as usize]
}

/// Declares an input and `name(i)`, which loads the bits of element `i`.
fn elements(name: &str, binding: usize, dtype: DType) -> String {
    [packed::PACKING, &packed::reader(name, binding, raw(dtype))].concat()
}

fn key_type(dtype: DType) -> &'static str {
    packed::wgsl_type(raw(dtype).class())
}

/// `key(bits)`: an integer that rises with the value; all NaNs are equal and largest.
fn key_function(dtype: DType) -> String {
    let kind = key_type(dtype);
    let body = match dtype {
        DType::I64 => "return bits ^ (u64(1) << 63u);".to_string(),
        DType::I8 | DType::I16 | DType::I32 => {
            format!("return bits ^ {}u;", 1u32 << (8 * dtype.size() - 1))
        }
        DType::F16 => float_key(0x8000, 0x7c00, 0xffff),
        DType::BF16 => float_key(0x8000, 0x7f80, 0xffff),
        DType::C64 => {
            return format!(
                "fn part_key(bits: u32) -> u32 {{ {} }}\n\
                 fn key(bits: u64) -> u64 {{\n\
                 let re = u32(bits & u64(0xffffffffu)); let im = u32(bits >> 32u);\n\
                 if (max(re & 0x7fffffffu, im & 0x7fffffffu) > 0x7f800000u) {{ return ~u64(0); }}\n\
                 return (u64(part_key(re)) << 32u) | u64(part_key(im));\n}}\n",
                float_key(0x8000_0000, 0x7f80_0000, 0xffff_ffff)
            );
        }
        DType::F32 => float_key(0x8000_0000, 0x7f80_0000, 0xffff_ffff),
        _ => "return bits;".to_string(),
    };
    format!("fn key(bits: {kind}) -> {kind} {{ {body} }}\n")
}

fn float_key(sign: u32, infinity: u32, all: u32) -> String {
    format!(
        "let magnitude = bits & {}u;\n\
         if (magnitude > {infinity}u) {{ return {all}u; }}\n\
         if (magnitude == 0u) {{ return {sign}u; }}\n\
         return select(bits | {sign}u, ~bits & {all}u, (bits & {sign}u) != 0u);",
        sign - 1
    )
}
