//! MLX's functions of devices, streams and memory. Those without a device mean the default one.

use crate::device::{Device, with_device};
use crate::error::Result;

/// The device new arrays go to; see [`Device::default_device`].
///
/// ```
/// use wootz::{Device, default_device, set_default_device};
/// // mx.set_default_device(mx.cpu)
/// set_default_device(&Device::cpu());
/// assert_eq!(default_device(), Device::cpu());
/// ```
pub fn default_device() -> Device {
    Device::default_device()
}

/// Sets the process-wide default device.
pub fn set_default_device(device: &Device) {
    Device::set_default(device);
}

/// Where operations are queued. A device has one queue, whose order is that of what operations read and
/// write, so the stream of a device is the device itself.
pub type Stream = Device;

/// The stream of a device.
///
/// ```
/// use wootz::{DType, Device, default_stream, stream, zeros};
/// // with mx.stream(mx.default_stream(mx.cpu)):
/// let x = stream(&default_stream(&Device::cpu()), || zeros(&[3], DType::F32))?;
/// assert_eq!(x.device(), &Device::cpu());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn default_stream(device: &Device) -> Stream {
    device.clone()
}

/// A stream of a device: its only one. What MLX queues on several runs one after the other here, to the
/// same results.
///
/// ```
/// use wootz::{Device, default_stream, new_stream};
/// assert_eq!(new_stream(&Device::cpu()), default_stream(&Device::cpu()));
/// ```
pub fn new_stream(device: &Device) -> Stream {
    device.clone()
}

/// Runs `body` with the device of a stream as this thread's default: [`with_device`] by MLX's name.
///
/// ```
/// use wootz::{DType, Device, ones, stream};
/// // with mx.stream(mx.cpu):
/// let x = stream(&Device::cpu(), || ones(&[2], DType::F32))?;
/// assert_eq!(x.device(), &Device::cpu());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn stream<T>(stream: &Stream, body: impl FnOnce() -> T) -> T {
    with_device(stream, body)
}

/// What is known of a device, by MLX's names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The name of the processor or of the adapter; where the system tells none, the architecture.
    pub device_name: String,
    /// The instruction set, a GPU's families where Metal tells them, or else what drives the GPU.
    pub architecture: String,
    /// Bytes of the largest buffer of a GPU.
    pub max_buffer_length: Option<u64>,
    /// Bytes that the system recommends to use at most of a GPU's memory, where it tells.
    pub max_recommended_working_set_size: Option<u64>,
}

/// What is known of a device.
///
/// ```
/// use wootz::{Device, device_info};
/// // mx.device_info(mx.cpu)["architecture"]
/// assert_eq!(device_info(&Device::cpu()).architecture, std::env::consts::ARCH);
/// ```
pub fn device_info(device: &Device) -> DeviceInfo {
    #[cfg(feature = "gpu")]
    if let Some(gpu) = device.as_gpu() {
        let summary = gpu.summary();
        return DeviceInfo {
            device_name: summary.name.clone(),
            architecture: summary.family.clone().unwrap_or_else(|| summary.backend.clone()),
            max_buffer_length: Some(summary.max_buffer_bytes),
            max_recommended_working_set_size: summary.working_set_bytes,
        };
    }
    // Without GPUs there is only one device.
    let _ = device;
    let architecture = std::env::consts::ARCH.to_string();
    DeviceInfo {
        device_name: processor().unwrap_or_else(|| architecture.clone()),
        architecture,
        max_buffer_length: None,
        max_recommended_working_set_size: None,
    }
}

/// The processor's name, where the system has it in a file.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Bytes that arrays of the default device hold.
///
/// ```
/// use wootz::{DType, get_active_memory, get_peak_memory, zeros};
/// let x = zeros(&[1000], DType::F32)?;
/// x.eval()?;
/// assert!(get_active_memory() >= 4000);
/// assert!(get_peak_memory() >= get_active_memory());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn get_active_memory() -> u64 {
    default_device().memory().active
}

/// The largest [active memory](get_active_memory) since the start or the last [`reset_peak_memory`].
pub fn get_peak_memory() -> u64 {
    default_device().memory().peak
}

/// Starts a new measurement of peak memory on the default device.
///
/// ```
/// use wootz::{DType, get_active_memory, get_peak_memory, reset_peak_memory, zeros};
/// zeros(&[1000], DType::F32)?.eval()?;
/// reset_peak_memory();
/// assert_eq!(get_peak_memory(), get_active_memory());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn reset_peak_memory() {
    default_device().reset_peak_memory();
}

/// Bytes that the default device keeps for reuse.
///
/// ```
/// use wootz::{clear_cache, get_cache_memory};
/// // mx.clear_cache()
/// clear_cache();
/// assert_eq!(get_cache_memory(), 0);
/// ```
pub fn get_cache_memory() -> u64 {
    default_device().memory().cached
}

/// Frees what the default device keeps for reuse.
pub fn clear_cache() {
    default_device().clear_cache();
}

/// The number of bytes that arrays of the default device may hold.
pub fn get_memory_limit() -> u64 {
    default_device().memory().limit
}

/// Sets the number of bytes that arrays of the default device may hold, and gives the one before.
/// Allocations beyond it are errors.
///
/// ```
/// use wootz::{DType, get_memory_limit, set_memory_limit, zeros};
/// // mx.set_memory_limit(2**20)
/// let before = set_memory_limit(1 << 20);
/// assert_eq!(get_memory_limit(), 1 << 20);
/// assert!(zeros(&[1 << 20], DType::F32)?.contiguous()?.eval().is_err());
/// set_memory_limit(before);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn set_memory_limit(bytes: u64) -> u64 {
    let device = default_device();
    let before = device.memory().limit;
    device.set_memory_limit(bytes);
    before
}

/// Sets the number of bytes that the default device keeps for reuse.
///
/// ```
/// use wootz::{get_cache_memory, set_cache_limit};
/// // mx.set_cache_limit(2**28)
/// set_cache_limit(1 << 28);
/// assert!(get_cache_memory() <= 1 << 28);
/// ```
pub fn set_cache_limit(bytes: u64) {
    default_device().set_cache_limit(bytes);
}

/// Sets the number of bytes of weights, of those that are mapped from now on, that are kept where the
/// default device reaches them at once, and gives the one before. An error on all but Apple's GPUs.
///
/// ```
/// use wootz::{Device, set_wired_limit, with_device};
/// // mx.set_wired_limit(2**30)
/// assert!(with_device(&Device::cpu(), || set_wired_limit(1 << 30)).is_err());
/// ```
pub fn set_wired_limit(bytes: u64) -> Result<u64> {
    default_device().set_wired_limit(bytes)
}
