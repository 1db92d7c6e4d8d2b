//! MLX's `mx.fast`: operations that have fused kernels in MLX, as they have here.

use crate::array::{Array, DType, Element};
use crate::device::Device;
use crate::error::Result;
use crate::ops::to_device;
pub use crate::ops::{
    Mask, RopeBase, cross_entropy, gated_delta as gated_delta_update, layer_norm, rms_norm, rope,
    scaled_dot_product_attention,
};

/// Numbers of the host that reach the device when they are needed there.
pub(crate) fn moved_on_demand<T: Element>(numbers: &[T], device: &Device) -> Result<Array> {
    to_device(&Array::from_slice_on(numbers, &[numbers.len()], &Device::cpu())?, device)
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
