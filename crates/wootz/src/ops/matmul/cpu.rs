//! Matrix products on the CPU.

use half::{bf16, f16};

use super::Addmm;
use super::plan::{Matrix, Plan};
use crate::array::DType;
use crate::cpu::CpuCall;
use crate::cpu::gemm::{Elements, GemmElement, MatrixRef, Plus, Product};
use crate::error::{Error, Result};

pub(super) fn run(call: &mut CpuCall<'_>, add: Option<Addmm>) -> Result<()> {
    match call.output_meta(0).dtype {
        DType::F32 => run_as::<f32>(call, add),
        DType::F16 => run_as::<f16>(call, add),
        DType::BF16 => run_as::<bf16>(call, add),
        DType::F64 => run_as::<f64>(call, add),
        other => Err(Error::dtype("matmul", "a", "a floating-point type", other)),
    }
}

fn run_as<T: GemmElement>(call: &mut CpuCall<'_>, add: Option<Addmm>) -> Result<()> {
    // What is added comes before the factors.
    let first = add.is_some() as usize;
    let addend = add.map(|_| call.meta(0));
    let plan = Plan::new(call.op.name(), call.meta(first), call.meta(first + 1), addend)?;
    let (a, b) = (call.elements::<T>(first)?, call.elements::<T>(first + 1)?);
    let c = if add.is_some() { call.elements::<T>(0)? } else { Elements::in_bytes(&[]) };
    let view = |data, Matrix { rows, columns, .. }: Matrix, offset| MatrixRef {
        data,
        offset,
        row_stride: rows,
        column_stride: columns,
    };
    let a = |i| view(a, plan.a, plan.offsets(i)[0]);
    let b = |i| view(b, plan.b, plan.offsets(i)[1]);
    let c = |i| view(c, plan.c, plan.offsets(i)[2]);
    let Plan { count: batch, m, n, k, rows, .. } = plan;
    let plus = add.map(|Addmm { alpha, beta }| Plus { alpha, beta, c: &c });
    Product { batch, m, n, k, rows, a: &a, b: &b, plus }.write(call.output::<T>(0)?)
}
