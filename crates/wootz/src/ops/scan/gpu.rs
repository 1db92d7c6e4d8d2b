//! Scans and linear recurrences on a GPU.

use super::linear::Linear;
use super::{Scan, Start, around};
use crate::array::{Class, DType};
use crate::error::Result;
use crate::gpu::{Bind, COMPLEX, GpuCall, Kernel, MATH, grid, packed};

/// Records a scan.
pub(super) fn scan(call: &mut GpuCall<'_>, scan: &Scan) -> Result<()> {
    let meta = call.meta(0);
    let (outer, length, inner) = around(meta.shape(), scan.axis);
    if meta.size() == 0 {
        return Ok(());
    }
    let dtype = meta.dtype;
    // Counts of truth values are never negative.
    let output = match call.output_meta(0).dtype {
        DType::I32 if dtype == DType::Bool => DType::U32,
        output => output,
    };
    let source = || {
        let value = packed::wgsl_type(dtype.class());
        let header = format!(
            "struct Params {{ lines: u32, length: u32, inner: u32, offset: u32 }}\n\
             var<immediate> p: Params;\n\
             const REVERSE = {};\nconst INCLUSIVE = {};\nalias Acc = {value};\n\
             fn combine(a: Acc, b: Acc) -> Acc {{ {} }}\n\
             fn first() -> Acc {{ return {}; }}\n",
            scan.reverse,
            scan.inclusive,
            (scan.row.combine)(dtype.class()),
            first(dtype, scan.row.start),
        );
        let (reader, writer) = (packed::reader("x", 0, dtype), packed::writer("y", 1, output));
        let complex = if dtype.is_complex() { COMPLEX } else { "" };
        let scan = include_str!("scan.wgsl");
        [packed::PACKING, MATH, complex, &header, &reader, &writer, scan].concat()
    };
    call.launch(&Kernel {
        variant: format!("{dtype} {output} {} {}", scan.reverse, scan.inclusive),
        source: &source,
        bindings: &[Bind::Input(0), Bind::Output(0)],
        params: &[outer * inner, length, inner, meta.layout.offset].map(|word| word as u32),
        groups: grid(outer * inner),
    })
}

/// Records a recurrence, one thread for each line.
pub(super) fn linear(call: &mut GpuCall<'_>, op: &Linear) -> Result<()> {
    let meta = call.meta(0);
    let (outer, length, inner) = around(meta.shape(), op.axis);
    if meta.size() == 0 {
        return Ok(());
    }
    let (dtype, names) = (meta.dtype, op.kind.inputs());
    let source = || {
        let header = format!(
            "struct Params {{ lines: u32, length: u32, inner: u32, offset0: u32, offset1: u32, offset2: u32 }}\n\
             var<immediate> p: Params;\nconst REVERSE = {};\n",
            op.reverse
        );
        let mut text = [packed::PACKING, MATH, &header].concat();
        text.push_str(match dtype.is_complex() {
            true => {
                "alias Wide = vec2f;\n\
                 fn times(a: vec2f, b: vec2f) -> vec2f { return wz_z_mul(a, b); }\n\
                 fn is_nan(a: vec2f) -> bool { return wz_z_isnan(a); }\n\
                 fn same(a: vec2f, b: vec2f) -> bool { return wz_z_equal(a, b); }\n"
            }
            false => {
                "alias Wide = f32;\n\
                 fn times(a: f32, b: f32) -> f32 { return a * b; }\n\
                 fn is_nan(a: f32) -> bool { return wz_isnan(a); }\n\
                 fn same(a: f32, b: f32) -> bool { return wz_equal(a, b); }\n"
            }
        });
        if dtype.is_complex() {
            text.push_str(COMPLEX);
        }
        for (index, name) in names.iter().enumerate() {
            text.push_str(&packed::reader(name, index, dtype));
        }
        text.push_str(&packed::writer("s", names.len(), dtype));
        text + &include_str!("linear.wgsl").replace("BODY", op.kind.wgsl())
    };
    let offset = |input: usize| match input < names.len() {
        true => call.meta(input).layout.offset,
        false => 0,
    };
    let params =
        [outer * inner, length, inner, offset(0), offset(1), offset(2)].map(|word| word as u32);
    let mut bindings: Vec<Bind<'_>> = (0..names.len()).map(Bind::Input).collect();
    bindings.push(Bind::Output(0));
    call.launch(&Kernel {
        variant: format!("{:?} {dtype} {}", op.kind, op.reverse),
        source: &source,
        bindings: &bindings,
        params: &params,
        groups: grid((outer * inner).div_ceil(64)),
    })
}

/// The first element of an exclusive scan, as an expression.
fn first(dtype: DType, start: Start) -> String {
    let text = match (start, dtype) {
        (Start::Zero, _) => "Acc(0)",
        (Start::One, DType::C64) => "vec2f(1.0, 0.0)",
        (Start::One, _) => "Acc(1)",
        (Start::Lowest, DType::Bool) => "0u",
        (Start::Highest, DType::Bool) => "1u",
        (Start::Lowest, DType::I8) => "-128i",
        (Start::Highest, DType::I8) => "127i",
        (Start::Lowest, DType::I16) => "-32768i",
        (Start::Highest, DType::I16) => "32767i",
        (Start::Lowest, _) => match dtype.class() {
            Class::U32 | Class::U64 => "Acc(0)",
            Class::I32 => "i32(-2147483647 - 1)",
            Class::I64 => "(i64(1) << 63u)",
            Class::F32 | Class::F64 => "-wz_inf()",
            Class::C64 => "vec2f(-wz_inf())",
        },
        (Start::Highest, _) => match dtype.class() {
            Class::U32 => "0xffffffffu",
            Class::U64 => "~u64(0)",
            Class::I32 => "2147483647i",
            Class::I64 => "~(i64(1) << 63u)",
            Class::F32 | Class::F64 => "wz_inf()",
            Class::C64 => "vec2f(wz_inf())",
        },
    };
    text.into()
}
