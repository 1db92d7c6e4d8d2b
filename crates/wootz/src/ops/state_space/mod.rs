//! State space: operations whose state is carried from step to step, and in and out of a call.
//! They compute in `float32`, or in `float64` for `float64`.

mod conv;
mod delta;
mod scan;
#[cfg(test)]
mod tests;

pub use conv::*;
pub use delta::*;
pub use scan::*;

use crate::array::{DType, Meta};
use crate::cpu::gemm::GemmElement;
use crate::cpu::simd::rows::Float;
use crate::cpu::simd::{Real, Vectorised};
use crate::cpu::tile::Storage;
use crate::error::Result;
use crate::op::{Entry, Op, expect_contiguous, expect_dtype, expect_shape};

/// Cases of all operations.
pub(crate) fn entries() -> Vec<Entry> {
    let mut entries = conv::entries();
    entries.extend(delta::entries());
    entries.extend(scan::entries());
    entries
}

/// Turns that the loops of a thread may take in a launch: lavapipe ends them after 65,535 of all of them together.
#[cfg(feature = "gpu")]
const TURNS: usize = 60_000;

/// The dtype that sums and states are kept in.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Checks a row-major input.
fn expect(
    op: &dyn Op,
    inputs: &[&Meta],
    input: usize,
    dtype: DType,
    shape: &[usize],
) -> Result<()> {
    expect_dtype(op, inputs, input, dtype)?;
    expect_shape(op, inputs, input, shape)?;
    expect_contiguous(op, inputs, input)
}

/// Elements that are computed in one of the float types.
trait Element: Storage<Wide: Wide> + Send + Sync {}
impl<T: Storage<Wide: Wide> + Send + Sync> Element for T {}

/// What elements are computed in.
trait Wide: GemmElement<Sum = Self> + Float + Real + Vectorised + bytemuck::Pod {}
impl<T: GemmElement<Sum = T> + Float + Real + Vectorised + bytemuck::Pod> Wide for T {}

/// Runs a kernel for the dtype of the call's first input.
macro_rules! for_dtype {
    ($call:expr, $kernel:ident($($argument:expr),*)) => {
        match $call.meta(0).dtype {
            crate::array::DType::F32 => $kernel::<f32>($call, $($argument),*),
            crate::array::DType::F64 => $kernel::<f64>($call, $($argument),*),
            crate::array::DType::F16 => $kernel::<half::f16>($call, $($argument),*),
            crate::array::DType::BF16 => $kernel::<half::bf16>($call, $($argument),*),
            other => {
                let expected = "a floating-point type";
                let argument = crate::op::argument_name($call.op, 0);
                Err(crate::error::Error::dtype($call.op.name(), argument, expected, other))
            }
        }
    };
}
use for_dtype;

/// Elements in the type they are computed in.
fn widened<T: Element>(x: &[T]) -> Vec<T::Wide> {
    let mut wide = vec![T::Wide::ZERO; x.len()];
    T::widen_slice(x, &mut wide);
    wide
}
