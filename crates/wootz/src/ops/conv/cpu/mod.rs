//! Convolutions on the CPU: windows are multiplied with weights that were packed once, where they lie
//! if they can be; else where a part of the input was copied to, with zeros around it. Where every
//! channel is a group of its own, it is a sum of rows. Large windows of 3 × 3 are transformed first, which takes fewer
//! products. The gradient of weights gathers windows.
//!
//! Zeros around the input are multiplied as well, so that NaN and infinities come out alike
//! everywhere. An element sums its products in the order of the window, whatever the cut.

mod area;
mod depthwise;
mod products;
mod weight;
mod winograd;

use self::depthwise::{depthwise, depthwise_weight};
use self::products::products;
use self::weight::products_weight;
use self::winograd::winograd;
use super::geometry::Geometry;
use crate::array::DType;
use crate::cpu::CpuCall;
use crate::cpu::gemm::GemmElement;
use crate::cpu::simd::Vectorised;
use crate::cpu::simd::rows::Float;
use crate::cpu::tile::Storage;
use crate::error::{Error, Result};

/// Elements that are computed in one of the float types.
trait Element: Storage<Wide: Wide> + Send + Sync {}
impl<T: Storage<Wide: Wide> + Send + Sync> Element for T {}

/// What elements are computed in.
trait Wide: GemmElement<Sum = Self> + Float + Vectorised + bytemuck::Pod {}
impl<T: GemmElement<Sum = T> + Float + Vectorised + bytemuck::Pod> Wide for T {}

/// Runs a kernel for the dtype of the call's first input.
macro_rules! for_dtype {
    ($call:expr, $kernel:ident($($argument:expr),*)) => {
        match $call.meta(0).dtype {
            DType::F32 => $kernel::<f32>($call, $($argument),*),
            DType::F64 => $kernel::<f64>($call, $($argument),*),
            DType::F16 => $kernel::<half::f16>($call, $($argument),*),
            DType::BF16 => $kernel::<half::bf16>($call, $($argument),*),
            other => {
                Err(Error::dtype($call.op.name(), "input", "a floating-point type", other))
            }
        }
    };
}

pub(super) fn forward(call: &mut CpuCall<'_>, geometry: &Geometry) -> Result<()> {
    if call.output_meta(0).size() == 0 {
        return Ok(());
    }
    if geometry.depth() == 0 || call.meta(0).size() == 0 {
        // Nothing to sum, or zeros of the padding alone: zeros of every dtype are zero bytes.
        call.output::<u8>(0)?.fill(0);
        return Ok(());
    }
    if geometry.channels == 1 && geometry.outputs == 1 && geometry.window.groups >= NARROW {
        return for_dtype!(call, depthwise(geometry));
    }
    let finite = match call.meta(0).dtype {
        DType::F32 if winograd::fits(geometry) => winograd::<f32>(call, geometry)?,
        DType::F16 if winograd::fits(geometry) => winograd::<half::f16>(call, geometry)?,
        DType::BF16 if winograd::fits(geometry) => winograd::<half::bf16>(call, geometry)?,
        _ => false,
    };
    if finite { Ok(()) } else { for_dtype!(call, products(geometry)) }
}

pub(super) fn backward_weight(call: &mut CpuCall<'_>, geometry: &Geometry) -> Result<()> {
    if call.output_meta(0).size() == 0 {
        return Ok(());
    }
    if geometry.channels == 1 && geometry.outputs == 1 && geometry.window.groups >= NARROW {
        return for_dtype!(call, depthwise_weight(geometry));
    }
    for_dtype!(call, products_weight(geometry))
}

/// The fewest columns that are multiplied: a whole number of the narrowest tiles.
const NARROW: usize = 8;
