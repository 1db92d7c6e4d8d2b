//! What `apple.rs` does, for systems where there is nothing to do: nothing lies below wgpu that it
//! does not offer itself.

use std::ops::Range;
use std::sync::Arc;

use memmap2::Mmap;

use super::device::Gpu;

/// Runs `work`.
pub(super) fn pooled<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// What is known of an adapter beside what wgpu tells.
#[derive(Default)]
pub(super) struct Traits {
    pub(super) family: Option<String>,
    pub(super) working_set_bytes: Option<u64>,
}

/// Nothing.
pub(super) fn traits(_: &wgpu::Adapter) -> Traits {
    Traits::default()
}

/// wgpu cannot import memory of the process into Vulkan.
pub(super) fn shared_page(_: &Gpu) -> Option<usize> {
    None
}

/// Never asked, as there is no [`shared_page`].
pub(super) fn share(_: &Gpu, _: &Arc<Mmap>, _: Range<usize>) -> Option<(wgpu::Buffer, Shared)> {
    None
}

/// Memory of the process that is a buffer too: none.
pub(super) enum Shared {}

/// Whether [`Residency`] does anything.
pub(super) const KEEPS_RESIDENT: bool = false;

/// Nothing to keep resident.
#[derive(Default)]
pub(super) struct Residency;

impl Residency {
    pub(super) fn add(&mut self, _: &wgpu::Device, _: &wgpu::Queue, _: &Shared) {}

    pub(super) fn remove(&mut self, _: &Shared) {}
}
