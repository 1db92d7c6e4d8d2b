//! Matrix products on the GPU: tiles in workgroup memory, and a kernel of its own for products
//! with a vector.

use std::fmt::Write;

use super::plan::{MOST_BATCH_AXES, Plan};
use crate::array::DType;
use crate::error::{Error, Result};
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

const TILED: &str = include_str!("tiled.wgsl");
const GEMV: &str = include_str!("gemv.wgsl");
const ZEROS: &str = include_str!("zeros.wgsl");

pub(super) fn run(call: &mut GpuCall<'_>) -> Result<()> {
    let plan = Plan::new("matmul", call.meta(0), call.meta(1))?;
    let dtype = call.output_meta(0).dtype;
    if plan.k == 0 {
        return zeros(call);
    }
    if plan.batch.len() > MOST_BATCH_AXES {
        let reason = format!("more than {MOST_BATCH_AXES} axes of a batch that do not merge");
        return Err(call.not_on_device(reason));
    }
    if plan.m == 1 || plan.n == 1 { gemv(call, &plan, dtype) } else { tiled(call, &plan, dtype) }
}

/// Nothing to sum: the inputs have no memory to bind.
fn zeros(call: &mut GpuCall<'_>) -> Result<()> {
    let words = call.output_meta(0).bytes().div_ceil(4);
    call.launch(&Kernel {
        variant: "zeros".into(),
        source: &|| ZEROS.to_string(),
        bindings: &[Bind::Output(0)],
        params: &[words as u32],
        groups: grid(words.div_ceil(256)),
    })
}

fn tiled(call: &mut GpuCall<'_>, plan: &Plan, dtype: DType) -> Result<()> {
    // A thread computes a square of elements; small products need more threads than reuse.
    let per = if plan.m > 32 && plan.n > 32 { 4 } else { 2 };
    let tile = 16 * per;
    let (down, across) = (plan.m.div_ceil(tile), plan.n.div_ceil(tile));
    let groups = word(plan.count.saturating_mul(down).saturating_mul(across))?;
    let mut params = vec![
        word(plan.m)?,
        word(plan.n)?,
        word(plan.k)?,
        stride(plan.a.rows),
        stride(plan.a.columns),
        word(plan.a.offset)?,
        stride(plan.b.rows),
        stride(plan.b.columns),
        word(plan.b.offset)?,
        across as u32,
        (down * across) as u32,
        groups,
    ];
    batch_params(plan, &mut params);
    let rank = plan.batch.len();
    let even = plan.n.is_multiple_of(2);
    call.launch(&Kernel {
        variant: format!("tiled/{dtype}/{tile}/{rank}/{even}"),
        source: &|| {
            let vector = format!("alias Sums = vec{per}<f32>;\nconst PER = {per}u;\n");
            source(dtype, even, rank, &vector, TILED)
        },
        bindings: &[Bind::Input(0), Bind::Input(1), Bind::Output(0)],
        params: &params,
        groups: grid(groups as usize),
    })
}

fn gemv(call: &mut GpuCall<'_>, plan: &Plan, dtype: DType) -> Result<()> {
    // One side is the matrix, with an output for each of its lines; the other is the vector.
    let by_column = plan.m == 1;
    let (outputs, line, along, vector) = match by_column {
        true => (plan.n, plan.b.columns, plan.b.rows, plan.a.columns),
        false => (plan.m, plan.a.rows, plan.a.columns, plan.b.rows),
    };
    // Neighbouring threads read neighbouring memory: along a line, or across lines.
    let lanes = if line.unsigned_abs() < along.unsigned_abs() { 4 } else { 64 };
    let blocks = outputs.div_ceil(256 / lanes);
    let groups = word(plan.count.saturating_mul(blocks))?;
    let (matrix_offset, vector_offset) = match by_column {
        true => (plan.b.offset, plan.a.offset),
        false => (plan.a.offset, plan.b.offset),
    };
    let mut params = vec![
        word(outputs)?,
        word(plan.k)?,
        stride(line),
        stride(along),
        stride(vector),
        blocks as u32,
        groups,
        word(matrix_offset)?,
        word(vector_offset)?,
    ];
    batch_params(plan, &mut params);
    let rank = plan.batch.len();
    let even = outputs.is_multiple_of(2);
    let side = if by_column { "row" } else { "column" };
    call.launch(&Kernel {
        variant: format!("gemv/{side}/{dtype}/{lanes}/{rank}/{even}"),
        source: &|| {
            let (matrix, vector) = if by_column { ("b", "a") } else { ("a", "b") };
            let (matrix_at, vector_at) = if by_column { ("y", "x") } else { ("x", "y") };
            let across = lanes < 64;
            let mut text = format!("const LANES = {lanes}u;\nconst ACROSS = {across};\n");
            let _ = write!(
                text,
                "fn matrix(i: u32) -> f32 {{ return {matrix}(i); }}\n\
                 fn vector(i: u32) -> f32 {{ return {vector}(i); }}\n\
                 fn matrix_start(batch: u32) -> u32 \
                 {{ return p.matrix_offset + batch_offsets(batch).{matrix_at}; }}\n\
                 fn vector_start(batch: u32) -> u32 \
                 {{ return p.vector_offset + batch_offsets(batch).{vector_at}; }}\n"
            );
            source(dtype, even, rank, &text, GEMV)
        },
        bindings: &[Bind::Input(0), Bind::Input(1), Bind::Output(0)],
        params: &params,
        groups: grid(groups as usize),
    })
}

/// Lengths and strides of the batch, behind the parameters of a kernel.
fn batch_params(plan: &Plan, params: &mut Vec<u32>) {
    for axis in &plan.batch {
        params.extend([axis.length as u32, stride(axis.a), stride(axis.b)]);
    }
}

/// The kernel's text with accessors for the dtype and the axes of the batch.
fn source(dtype: DType, even: bool, rank: usize, constants: &str, body: &str) -> String {
    let mut text = String::new();
    if packed::per_word(dtype) > 1 {
        text.push_str(packed::PACKING);
    }
    text.push_str(&packed::reader("a", 0, dtype));
    text.push_str(&packed::reader("b", 1, dtype));
    text.push_str(&pair_writer("c", 2, dtype, even));
    let mut fields = String::new();
    let mut steps = String::new();
    for axis in 0..rank {
        let _ = write!(fields, "length{axis}: u32, a{axis}: u32, b{axis}: u32, ");
    }
    for axis in (0..rank).rev() {
        let _ = writeln!(
            steps,
            "at += (rest % p.length{axis}) * vec2<u32>(p.a{axis}, p.b{axis}); \
             rest /= p.length{axis};"
        );
    }
    let _ = write!(
        text,
        "fn batch_offsets(batch: u32) -> vec2<u32> {{\nvar rest = batch;\n\
         var at = vec2<u32>(0u);\n{steps}return at;\n}}\n{constants}"
    );
    text.push_str(&body.replace("// BATCH", &fields));
    text
}

/// Declares an output and `name_pair(i, first, second, both)`, which stores an element, at an even
/// place if rows are even, and maybe the one after it.
fn pair_writer(name: &str, binding: usize, dtype: DType, even: bool) -> String {
    if packed::per_word(dtype) > 1 && even {
        let (first, second) = (packed::narrow(dtype, "first"), packed::narrow(dtype, "second"));
        return format!(
            "{}fn {name}_pair(i: u32, first: f32, second: f32, both: bool) {{\n\
             {name}_data[i >> 1u] = {first} | ({second} << 16u);\n}}\n",
            packed::word_writer(name, binding, dtype)
        );
    }
    format!(
        "{}fn {name}_pair(i: u32, first: f32, second: f32, both: bool) {{\n\
         {name}_set(i, first);\nif (both) {{ {name}_set(i + 1u, second); }}\n}}\n",
        packed::writer(name, binding, dtype)
    )
}

/// A size as a word of the parameters.
fn word(value: usize) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::SizeOverflow {
        op: "matmul",
        argument: "inputs".into(),
        got: value.to_string(),
        limit: u32::MAX as u64,
    })
}

/// A stride as a word: kernels add modulo 2³², so negative strides work.
fn stride(value: isize) -> u32 {
    value as u32
}
