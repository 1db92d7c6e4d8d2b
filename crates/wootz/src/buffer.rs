//! The memory behind arrays, on either device.

#[cfg(feature = "gpu")]
use std::sync::Mutex;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::cpu::buffer::CpuMemory;
use crate::cpu::mapped::MappedMemory;
use crate::device::Device;
use crate::error::Result;
#[cfg(feature = "gpu")]
use crate::gpu::{GpuBuffer, GpuSubmission};

/// Memory of one allocation. Shared by every array that sees part of it.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// Bytes the CPU can address. The lock is for the explicit level, where a caller may hold
    /// several handles to memory that a kernel writes.
    Cpu(RwLock<CpuMemory>),
    /// Bytes of a mapped file, which the CPU only reads.
    Mapped(MappedMemory),
    /// Memory of a GPU; its queue orders accesses.
    #[cfg(feature = "gpu")]
    Gpu(GpuMemory),
}

impl Buffer {
    /// Memory for `bytes` on `device`, with unspecified contents.
    pub(crate) fn alloc(device: &Device, bytes: usize) -> Result<Arc<Buffer>> {
        crate::testing::count_allocation();
        #[cfg(feature = "gpu")]
        if let Some(gpu) = device.as_gpu() {
            return Ok(Arc::new(Buffer::Gpu(GpuMemory::new(gpu.alloc(bytes as u64)?))));
        }
        let _ = device;
        Ok(Arc::new(Buffer::Cpu(RwLock::new(CpuMemory::alloc(bytes)?))))
    }

    /// What memory for `bytes` on `device` really takes.
    pub(crate) fn taken(device: &Device, bytes: usize) -> usize {
        #[cfg(feature = "gpu")]
        if let Some(gpu) = device.as_gpu() {
            return gpu.taken(bytes as u64) as usize;
        }
        let _ = device;
        crate::cpu::buffer::size_class(bytes)
    }

    /// Memory on `device` that holds a copy of `data`.
    pub(crate) fn from_bytes(device: &Device, data: &[u8]) -> Result<Arc<Buffer>> {
        let buffer = Buffer::alloc(device, data.len())?;
        match &*buffer {
            Buffer::Cpu(_) => {
                if let Some(mut memory) = buffer.write() {
                    memory.bytes_mut()[..data.len()].copy_from_slice(data);
                }
            }
            // What was allocated is not of a file.
            Buffer::Mapped(_) => {}
            #[cfg(feature = "gpu")]
            Buffer::Gpu(memory) => {
                if let Some(gpu) = device.as_gpu() {
                    gpu.upload(&memory.buffer, 0, data)?;
                }
            }
        }
        Ok(buffer)
    }

    /// Read access to memory that the CPU can address.
    pub(crate) fn read(&self) -> Option<CpuReading<'_>> {
        match self {
            Buffer::Cpu(memory) => {
                Some(CpuReading::Own(memory.read().unwrap_or_else(PoisonError::into_inner)))
            }
            Buffer::Mapped(memory) => Some(CpuReading::Mapped(memory)),
            #[cfg(feature = "gpu")]
            Buffer::Gpu(_) => None,
        }
    }

    /// Write access to CPU memory; nothing for memory that is [read-only](Self::is_read_only).
    pub(crate) fn write(&self) -> Option<RwLockWriteGuard<'_, CpuMemory>> {
        match self {
            Buffer::Cpu(memory) => Some(memory.write().unwrap_or_else(PoisonError::into_inner)),
            Buffer::Mapped(_) => None,
            #[cfg(feature = "gpu")]
            Buffer::Gpu(_) => None,
        }
    }

    /// Whether no operation may write it, as memory of a mapped file.
    pub(crate) fn is_read_only(&self) -> bool {
        match self {
            Buffer::Cpu(_) => false,
            Buffer::Mapped(_) => true,
            #[cfg(feature = "gpu")]
            Buffer::Gpu(memory) => memory.buffer.is_read_only(),
        }
    }

    /// The GPU's memory.
    #[cfg(feature = "gpu")]
    pub(crate) fn gpu(&self) -> Option<&GpuMemory> {
        match self {
            Buffer::Cpu(_) | Buffer::Mapped(_) => None,
            Buffer::Gpu(memory) => Some(memory),
        }
    }
}

/// Memory that the CPU reads, locked as long as that takes.
pub(crate) enum CpuReading<'a> {
    Own(RwLockReadGuard<'a, CpuMemory>),
    Mapped(&'a MappedMemory),
}

impl CpuReading<'_> {
    /// All bytes, which in a file begin anywhere.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            CpuReading::Own(memory) => memory.bytes(),
            CpuReading::Mapped(memory) => memory.bytes(),
        }
    }

    /// All bytes, aligned for elements of `size` bytes: a copy where the file does not have them so.
    pub(crate) fn aligned(&self, size: usize) -> Result<&[u8]> {
        match self {
            CpuReading::Own(memory) => Ok(memory.bytes()),
            CpuReading::Mapped(memory) => memory.aligned(size),
        }
    }
}

/// GPU memory, and the submission that writes it.
#[cfg(feature = "gpu")]
#[derive(Debug)]
pub(crate) struct GpuMemory {
    pub(crate) buffer: Arc<GpuBuffer>,
    writer: Mutex<Option<Arc<GpuSubmission>>>,
}

#[cfg(feature = "gpu")]
impl GpuMemory {
    pub(crate) fn new(buffer: GpuBuffer) -> GpuMemory {
        GpuMemory { buffer: Arc::new(buffer), writer: Mutex::new(None) }
    }

    /// The submission that wrote this memory last and has not been found good yet.
    pub(crate) fn writer(&self) -> Option<Arc<GpuSubmission>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers who writes this memory: nobody while what is to write it is still being recorded.
    pub(crate) fn set_writer(&self, submission: Option<Arc<GpuSubmission>>) {
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = submission;
    }

    /// Waits for the writer and reports what went wrong in it.
    pub(crate) fn finish(&self) -> Result<()> {
        if let Some(writer) = self.writer() {
            writer.finish()?;
            *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Ok(())
    }
}
