//! MLX's `mx.fast`: operations that have fused kernels in MLX, as they have here.

use crate::array::{Array, DType, Element};
use crate::device::Device;
use crate::error::Result;
pub use crate::ops::{
    Mask, RopeBase, cross_entropy, gated_delta as gated_delta_update, layer_norm, rms_norm, rope,
    scaled_dot_product_attention,
};

/// Numbers of the host as a vector on the device. They are put there at once, so that a compiled
/// function has them as a constant.
pub(crate) fn on_device<T: Element>(numbers: &[T], device: &Device) -> Result<Array> {
    Array::from_slice_on(numbers, &[numbers.len()], device)
}

/// The most negative finite number: a row in which nothing is seen stays finite.
pub(crate) fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => half::f16::MIN.to_f64(),
        DType::BF16 => half::bf16::MIN.to_f64(),
        DType::F64 => f64::MIN,
        _ => f32::MIN as f64,
    }
}
