//! Matrix products on the CPU.

use half::{bf16, f16};

use super::plan::Plan;
use crate::array::DType;
use crate::cpu::CpuCall;
use crate::cpu::gemm::{GemmElement, MatrixRef, gemm, gemm_batched};
use crate::error::{Error, Result};

pub(super) fn run(call: &mut CpuCall<'_>) -> Result<()> {
    match call.output_meta(0).dtype {
        DType::F32 => run_as::<f32>(call),
        DType::F16 => run_as::<f16>(call),
        DType::BF16 => run_as::<bf16>(call),
        DType::F64 => run_as::<f64>(call),
        other => Err(Error::dtype("matmul", "a", "a floating-point type", other)),
    }
}

fn run_as<T: GemmElement + bytemuck::Pod>(call: &mut CpuCall<'_>) -> Result<()> {
    let plan = Plan::new("matmul", call.meta(0), call.meta(1))?;
    let (a, b) = (call.strided::<T>(0)?.data, call.strided::<T>(1)?.data);
    let output = call.output::<T>(0)?;
    let left = |offset: usize| MatrixRef {
        data: a,
        offset,
        row_stride: plan.a.rows,
        column_stride: plan.a.columns,
    };
    let right = |offset: usize| MatrixRef {
        data: b,
        offset,
        row_stride: plan.b.rows,
        column_stride: plan.b.columns,
    };
    let Plan { count, m, n, k, .. } = plan;
    if plan.batch.is_empty() && count == 1 {
        return gemm(m, n, k, left(plan.a.offset), right(plan.b.offset), output);
    }
    gemm_batched(count, m, n, k, |i| left(plan.offsets(i).0), |i| right(plan.offsets(i).1), output)
}
