//! Regions of mapped files as memory of arrays: read where they lie. A file aligns nothing, so
//! kernels that want typed elements get an aligned copy where one is needed, made once.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use memmap2::Mmap;

use super::buffer::CpuMemory;
use crate::error::Result;

/// Bytes of a mapped file.
#[derive(Debug)]
pub(crate) struct MappedMemory {
    map: Arc<Mmap>,
    range: Range<usize>,
    /// The same bytes, aligned, once somebody needed that.
    copy: OnceLock<CpuMemory>,
}

/// Bytes of all regions.
static MAPPED: AtomicU64 = AtomicU64::new(0);

/// Bytes of files that arrays read where they lie.
pub(crate) fn mapped_bytes() -> u64 {
    MAPPED.load(Ordering::Relaxed)
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        MAPPED.fetch_sub(self.range.len() as u64, Ordering::Relaxed);
    }
}

impl MappedMemory {
    /// The bytes `range` of a file; nothing if the file has them not.
    pub(crate) fn new(map: &Arc<Mmap>, range: Range<usize>) -> Option<MappedMemory> {
        map.get(range.clone())?;
        MAPPED.fetch_add(range.len() as u64, Ordering::Relaxed);
        Some(MappedMemory { map: map.clone(), range, copy: OnceLock::new() })
    }

    /// The bytes in the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }

    /// The bytes at an address that is a multiple of `size`.
    pub(crate) fn aligned(&self, size: usize) -> Result<&[u8]> {
        let bytes = self.bytes();
        if bytes.as_ptr().addr().is_multiple_of(size) {
            return Ok(bytes);
        }
        if self.copy.get().is_none() {
            let mut copy = CpuMemory::alloc(bytes.len())?;
            copy.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
            crate::testing::count_copied(bytes.len());
            let _another_was_first = self.copy.set(copy);
        }
        Ok(self.copy.get().map_or(bytes, CpuMemory::bytes))
    }
}
