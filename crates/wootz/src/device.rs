//! Where arrays live and operations run.

use std::cell::RefCell;
use std::fmt;
#[cfg(feature = "gpu")]
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::{self, AdapterKind, AdapterSummary, Gpu, GpuOptions};

/// A place for arrays: the CPU, or a GPU opened through wgpu. Cheap to clone.
///
/// ```
/// use wootz::{Array, Device};
/// let x = Array::from_slice_on(&[1.0f32, 2.0], &[2], &Device::cpu())?;
/// assert_eq!(x.device(), &Device::cpu());
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone)]
pub struct Device(Inner);

#[derive(Clone)]
enum Inner {
    Cpu,
    #[cfg(feature = "gpu")]
    Gpu(Arc<Gpu>),
}

/// Bytes in use on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Held by arrays.
    pub active: u64,
    /// The largest `active` since the start or the last reset.
    pub peak: u64,
    /// Freed by arrays and kept for reuse.
    pub cached: u64,
    /// Allocations beyond this are errors.
    pub limit: u64,
    /// Of mapped files, read by arrays where they lie. Not part of `active`: the system can take it back.
    pub mapped: u64,
}

static DEFAULT: Mutex<Option<Device>> = Mutex::new(None);

thread_local! {
    static SCOPED: RefCell<Vec<Device>> = const { RefCell::new(Vec::new()) };
}

impl Device {
    /// The CPU.
    pub const fn cpu() -> Device {
        Device(Inner::Cpu)
    }

    /// The best GPU: a hardware adapter if there is one, else a software driver. Opened once.
    #[cfg(feature = "gpu")]
    pub fn gpu() -> Result<Device> {
        let adapters = gpu::adapters();
        let best = adapters.iter().min_by_key(|adapter| rank(adapter)).ok_or_else(|| {
            let reason =
                "no Metal or Vulkan driver was found; on Debian, mesa-vulkan-drivers has one";
            Error::NoDevice { wanted: "gpu".into(), reason: reason.into() }
        })?;
        Device::gpu_at(best.index)
    }

    /// The best GPU, which this build leaves out.
    #[cfg(not(feature = "gpu"))]
    pub fn gpu() -> Result<Device> {
        let reason = "this build of wootz has no `gpu` feature";
        Err(Error::NoDevice { wanted: "gpu".into(), reason: reason.into() })
    }

    /// The GPU with this index in [`gpu::adapters`]. Opened once.
    #[cfg(feature = "gpu")]
    pub fn gpu_at(index: usize) -> Result<Device> {
        static OPENED: Mutex<Vec<(usize, Device)>> = Mutex::new(Vec::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, device)) = opened.iter().find(|(opened_index, _)| *opened_index == index) {
            return Ok(device.clone());
        }
        let device = Device::gpu_with(index, &GpuOptions::default())?;
        opened.push((index, device.clone()));
        Ok(device)
    }

    /// A GPU device of its own, with limits or checks asked for.
    #[cfg(feature = "gpu")]
    pub fn gpu_with(index: usize, options: &GpuOptions) -> Result<Device> {
        Ok(Device(Inner::Gpu(Gpu::open(index, options)?)))
    }

    /// The device that a word names: `cpu`, `gpu`, or `gpu:N` for an adapter's index.
    pub fn from_name(name: &str) -> Result<Device> {
        match name {
            "cpu" => Ok(Device::cpu()),
            "gpu" => Device::gpu(),
            _ => {
                #[cfg(feature = "gpu")]
                if let Some(index) = name.strip_prefix("gpu:").and_then(|index| index.parse().ok())
                {
                    return Device::gpu_at(index);
                }
                let reason = "known are cpu, gpu and gpu:N";
                Err(Error::NoDevice { wanted: name.into(), reason: reason.into() })
            }
        }
    }

    /// The device new arrays go to: that of [`with_device`], else the one set, else a hardware GPU
    /// if there is one that can be opened, else the CPU.
    pub fn default_device() -> Device {
        if let Some(device) = SCOPED.with_borrow(|scoped| scoped.last().cloned()) {
            return device;
        }
        let mut default = DEFAULT.lock().unwrap_or_else(PoisonError::into_inner);
        default.get_or_insert_with(|| Device::choose().0).clone()
    }

    /// Sets the process-wide default.
    pub fn set_default(device: &Device) {
        *DEFAULT.lock().unwrap_or_else(PoisonError::into_inner) = Some(device.clone());
    }

    /// What the default would be if none were set, and why.
    pub fn choose() -> (Device, String) {
        #[cfg(feature = "gpu")]
        {
            let adapters = gpu::adapters();
            let best = adapters.iter().min_by_key(|adapter| rank(adapter));
            match best {
                Some(adapter) if adapter.kind != AdapterKind::Software => {
                    return match Device::gpu_at(adapter.index) {
                        Ok(device) => (device, format!("{} is a hardware GPU", adapter.name)),
                        Err(error) => (Device::cpu(), format!("{}: {error}", adapter.name)),
                    };
                }
                Some(_) => {
                    let reason = "the only GPU adapters are software drivers, which are for tests";
                    return (Device::cpu(), reason.into());
                }
                None => {}
            }
        }
        (Device::cpu(), "no GPU adapter was found".into())
    }

    /// Whether this is a GPU.
    pub fn is_gpu(&self) -> bool {
        !matches!(self.0, Inner::Cpu)
    }

    /// The opened GPU behind this device.
    #[cfg(feature = "gpu")]
    pub fn as_gpu(&self) -> Option<&Arc<Gpu>> {
        match &self.0 {
            Inner::Cpu => None,
            Inner::Gpu(gpu) => Some(gpu),
        }
    }

    /// Bytes in use, cached, and the limit.
    pub fn memory(&self) -> Memory {
        match &self.0 {
            Inner::Cpu => {
                let mapped = crate::cpu::mapped::mapped_bytes();
                Memory { mapped, ..crate::cpu::buffer::memory() }
            }
            #[cfg(feature = "gpu")]
            Inner::Gpu(gpu) => {
                let gpu::MemoryCounters { active, peak, cached, limit, .. } = gpu.memory();
                Memory { active, peak, cached, limit, mapped: 0 }
            }
        }
    }

    /// Sets the number of bytes arrays may hold; allocations beyond it are errors.
    pub fn set_memory_limit(&self, bytes: u64) {
        match &self.0 {
            Inner::Cpu => crate::cpu::buffer::set_memory_limit(bytes),
            #[cfg(feature = "gpu")]
            Inner::Gpu(gpu) => gpu.set_memory_limit(bytes),
        }
    }

    /// Sets the number of freed bytes kept for reuse.
    pub fn set_cache_limit(&self, bytes: u64) {
        match &self.0 {
            Inner::Cpu => crate::cpu::buffer::set_cache_limit(bytes),
            #[cfg(feature = "gpu")]
            Inner::Gpu(gpu) => gpu.set_cache_limit(bytes),
        }
    }

    /// Sets the number of bytes of weights, of those that are mapped from now on, that are kept where the
    /// device reaches them at once, and gives the one before. An error on all but Apple's GPUs.
    pub fn set_wired_limit(&self, bytes: u64) -> Result<u64> {
        #[cfg(feature = "gpu")]
        if let Inner::Gpu(gpu) = &self.0 {
            return gpu.set_wired_limit(bytes);
        }
        let reason = format!("it cannot keep {bytes} bytes of weights, nor any, in a GPU's reach");
        Err(Error::NotOnDevice { op: "set_wired_limit", device: self.to_string(), reason })
    }

    /// Frees all cached bytes.
    pub fn clear_cache(&self) {
        match &self.0 {
            Inner::Cpu => crate::cpu::buffer::clear_cache(),
            #[cfg(feature = "gpu")]
            Inner::Gpu(gpu) => gpu.clear_cache(),
        }
    }

    /// Starts a new measurement of peak memory.
    pub fn reset_peak_memory(&self) {
        match &self.0 {
            Inner::Cpu => crate::cpu::buffer::reset_peak(),
            #[cfg(feature = "gpu")]
            Inner::Gpu(gpu) => gpu.reset_peak(),
        }
    }
}

/// Runs `body` with `device` as this thread's default device.
///
/// ```
/// use wootz::{Array, Device, with_device};
/// let zeros = with_device(&Device::cpu(), || Array::zeros(&[3], wootz::DType::F32))?;
/// assert_eq!(zeros.device(), &Device::cpu());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn with_device<T>(device: &Device, body: impl FnOnce() -> T) -> T {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            SCOPED.with_borrow_mut(|scoped| scoped.pop());
        }
    }
    SCOPED.with_borrow_mut(|scoped| scoped.push(device.clone()));
    let _restore = Restore;
    body()
}

/// Hardware first, discrete before integrated.
#[cfg(feature = "gpu")]
fn rank(adapter: &AdapterSummary) -> usize {
    match adapter.kind {
        AdapterKind::Discrete => 0,
        AdapterKind::Integrated => 1,
        AdapterKind::Virtual => 2,
        AdapterKind::Other => 3,
        AdapterKind::Software => 4,
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        match (&self.0, &other.0) {
            (Inner::Cpu, Inner::Cpu) => true,
            #[cfg(feature = "gpu")]
            (Inner::Gpu(a), Inner::Gpu(b)) => Arc::ptr_eq(a, b),
            #[cfg(feature = "gpu")]
            _ => false,
        }
    }
}

impl Eq for Device {}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Cpu => f.write_str("cpu"),
            #[cfg(feature = "gpu")]
            Inner::Gpu(gpu) => write!(f, "gpu ({})", gpu.name()),
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
