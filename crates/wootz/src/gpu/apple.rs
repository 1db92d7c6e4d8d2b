//! What Apple's systems have and wgpu does not offer, reached below its Metal backend: autorelease
//! pools, the GPU's family and working set, buffers over mapped files, residency. `system.rs` has the
//! same functions for other systems.
//!
//! Without a Mac this file is type-checked only (`cargo xtask check-apple`).

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use block2::RcBlock;
use memmap2::Mmap;
use objc2::available;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLBuffer, MTLCommandQueue, MTLDevice, MTLGPUFamily, MTLResidencySet,
    MTLResidencySetDescriptor, MTLResourceOptions,
};
use wgpu::BufferUsages;
use wgpu::hal::{api::Metal, metal};

use super::device::Gpu;

/// Runs `work` with an autorelease pool around it. Metal hands out objects that live until the
/// thread's pool is emptied, and a Rust thread has none: command buffers would pile up.
pub(super) fn pooled<T>(work: impl FnOnce() -> T) -> T {
    autoreleasepool(|_| work())
}

/// What Metal tells of an adapter.
#[derive(Default)]
pub(super) struct Traits {
    pub(super) family: Option<String>,
    pub(super) working_set_bytes: Option<u64>,
}

/// Asks Metal about an adapter; nothing if it is not Metal's.
pub(super) fn traits(adapter: &wgpu::Adapter) -> Traits {
    // SAFETY: the handle is only asked, never destroyed.
    let Some(adapter) = (unsafe { adapter.as_hal::<Metal>() }) else { return Traits::default() };
    pooled(|| {
        let device = adapter.raw_device();
        let best = |families: &[(&'static str, MTLGPUFamily)]| {
            families
                .iter()
                .find(|(_, family)| device.supportsFamily(*family))
                .map(|(name, _)| *name)
        };
        let names = [best(&APPLE), best(&MAC), best(&METAL)];
        let names = names.into_iter().flatten().collect::<Vec<_>>();
        Traits {
            family: (!names.is_empty()).then(|| names.join(" ")),
            // Zero where the system does not tell.
            working_set_bytes: Some(device.recommendedMaxWorkingSetSize())
                .filter(|bytes| *bytes > 0),
        }
    })
}

/// The unit in which memory of the process can be shared with this GPU, if it can be: a GPU with
/// memory of its own would fetch every byte through the bus at each use.
pub(super) fn shared_page(gpu: &Gpu) -> Option<usize> {
    // SAFETY: the handle is only asked, never destroyed.
    let device = unsafe { gpu.device.as_hal::<Metal>() }?;
    if !device.raw_device().hasUnifiedMemory() {
        return None;
    }
    // SAFETY: the function has no preconditions.
    usize::try_from(unsafe { getpagesize() }).ok().filter(|page| page.is_power_of_two())
}

/// A buffer that is these addresses: whole pages, all of them within pages of the mapping. Nothing
/// if Metal refuses. The mapping stays until Metal lets go of the buffer, be it after this value.
pub(super) fn share(
    gpu: &Gpu,
    map: &Arc<Mmap>,
    pages: Range<usize>,
) -> Option<(wgpu::Buffer, Shared)> {
    pooled(|| {
        // From the mapping's pointer and not from the number, to keep its provenance.
        let behind = pages.start.wrapping_sub(map.as_ptr() as usize);
        let start = NonNull::new(map.as_ptr().wrapping_add(behind).cast_mut().cast::<c_void>())?;
        let kept = map.clone();
        // Metal copies the block, calls it when the buffer ends, and drops it with what it holds.
        let ended = RcBlock::new(move |_: NonNull<c_void>, _: usize| {
            let _held_until_here = &kept;
        });
        // SAFETY: the handle is only used to make a buffer, never destroyed.
        let device = unsafe { gpu.device.as_hal::<Metal>() }?;
        // SAFETY: the pages are mapped for as long as the block holds the mapping, which may be
        // dropped on any thread. They are readable only, and nothing writes them: kernels that bind the
        // buffer for writing and uploads into it are refused.
        let buffer = unsafe {
            device.raw_device().newBufferWithBytesNoCopy_length_options_deallocator(
                start,
                pages.len(),
                MTLResourceOptions::StorageModeShared,
                Some(&ended),
            )
        }?;
        drop(device);
        let size = pages.len() as u64;
        // SAFETY: the buffer is of this device, and this is its length.
        let raw = unsafe { metal::Device::buffer_from_raw(buffer.clone(), size) };
        let descriptor = wgpu::BufferDescriptor {
            label: Some("mapped"),
            size,
            usage: BufferUsages::STORAGE | BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        };
        // SAFETY: made just now from this device; Metal knows no usages that could differ, and what
        // is mapped is initialised.
        let raw = unsafe { gpu.device.create_buffer_from_hal::<Metal>(raw, &descriptor) };
        Some((raw, Shared(buffer)))
    })
}

/// Memory of the process that is a buffer too.
pub(super) struct Shared(Retained<ProtocolObject<dyn MTLBuffer>>);

// SAFETY: Metal's buffers may be used and released on any thread; wgpu does so with them all.
unsafe impl Send for Shared {}
// SAFETY: as above; a shared reference only serves to name the buffer to Metal.
unsafe impl Sync for Shared {}

/// Whether [`Residency`] does anything.
pub(super) const KEEPS_RESIDENT: bool = true;

/// Keeps the weights of models where the GPU reaches them at once. Without it Metal makes pages of
/// a mapped file accessible anew when a submission comes after a pause, which costs up to seconds.
///
/// One set belongs to the queue from the first shared buffer on; Metal keeps it resident while
/// submissions run and, as far as memory allows, between them. Before macOS 15 there are no such
/// sets, and nothing happens.
#[derive(Default)]
pub(super) struct Residency(Option<Retained<ProtocolObject<dyn MTLResidencySet>>>);

// SAFETY: a set may be used on any thread, by one at a time: all uses borrow it exclusively.
unsafe impl Send for Residency {}

impl Residency {
    pub(super) fn add(&mut self, device: &wgpu::Device, queue: &wgpu::Queue, shared: &Shared) {
        if !available!(macos = 15.0, ios = 18.0, tvos = 18.0, visionos = 2.0) {
            return;
        }
        pooled(|| {
            if self.0.is_none() {
                self.0 = residency_set(device, queue);
            }
            if let Some(set) = &self.0 {
                set.addAllocation(ProtocolObject::from_ref(&*shared.0));
                set.commit();
            }
        });
    }

    /// To be called before the last handle to the buffer goes, else the set keeps it.
    pub(super) fn remove(&mut self, shared: &Shared) {
        if let Some(set) = &self.0 {
            pooled(|| {
                set.removeAllocation(ProtocolObject::from_ref(&*shared.0));
                set.commit();
            });
        }
    }
}

fn residency_set(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
) -> Option<Retained<ProtocolObject<dyn MTLResidencySet>>> {
    // SAFETY: the handles are only used to make a set and to add it, never destroyed.
    let (device, queue) = unsafe { (device.as_hal::<Metal>()?, queue.as_hal::<Metal>()?) };
    let descriptor = MTLResidencySetDescriptor::new();
    // Without a set everything works, only slower after a pause.
    let set = device.raw_device().newResidencySetWithDescriptor_error(&descriptor).ok()?;
    queue.as_raw().addResidencySet(&set);
    Some(set)
}

/// Each list from the newest on: a GPU that has one has those before it.
const APPLE: [(&str, MTLGPUFamily); 5] = [
    ("Apple10", MTLGPUFamily::Apple10),
    ("Apple9", MTLGPUFamily::Apple9),
    ("Apple8", MTLGPUFamily::Apple8),
    ("Apple7", MTLGPUFamily::Apple7),
    ("Apple6", MTLGPUFamily::Apple6),
];
const MAC: [(&str, MTLGPUFamily); 1] = [("Mac2", MTLGPUFamily::Mac2)];
const METAL: [(&str, MTLGPUFamily); 2] =
    [("Metal4", MTLGPUFamily::Metal4), ("Metal3", MTLGPUFamily::Metal3)];

unsafe extern "C" {
    /// Of the system's own library, which every program has.
    fn getpagesize() -> std::ffi::c_int;
}
