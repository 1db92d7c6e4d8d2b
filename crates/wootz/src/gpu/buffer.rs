//! Device memory: allocation through a cache of size classes, limits, and copies in and out.
//!
//! Buffers go back to the cache when the last `Arc<GpuBuffer>` is dropped, even while the GPU still
//! works on them: later work is ordered behind it by the queue. The one thing the queue does not
//! order is an upload against work that is recorded but not yet submitted, so a [`Recorder`] holds
//! its buffers until it has submitted, and an upload into a buffer it holds is refused.
//!
//! [`Recorder`]: super::Recorder

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard, mpsc};
use std::time::Duration;

use wgpu::BufferUsages;

use super::device::{Gpu, lock};
use super::kernel::Access;
use super::system;
use crate::error::{Error, Result};

/// Memory of one [`Gpu`], in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryCounters {
    /// Held by live buffers.
    pub active: u64,
    /// The part of `active` that is memory of mapped files.
    pub mapped: u64,
    /// The most that was ever active since the start or [`Gpu::reset_peak`].
    pub peak: u64,
    /// Held by the cache for reuse.
    pub cached: u64,
    /// What `active` may not pass.
    pub limit: u64,
}

/// A piece of device memory. Goes back to its device's cache when dropped.
pub struct GpuBuffer {
    gpu: Arc<Gpu>,
    /// Always there until `drop` moves it into the cache.
    block: Option<Block>,
    size: u64,
    requested: u64,
    read_only: bool,
    /// If it is memory of a mapped file.
    shared: Option<system::Shared>,
    /// Whether that is kept resident.
    wired: bool,
    /// Whether the device keeps the memory: see [`Gpu::constant`].
    kept: bool,
    recorded_reads: AtomicU32,
    recorded_writes: AtomicU32,
}

impl GpuBuffer {
    /// Bytes that kernels see: those asked for, rounded up to 16.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Identifies the memory. A later buffer that reuses the memory has the same id.
    pub fn id(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.id)
    }

    /// The device it belongs to.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Whether neither kernels nor uploads may write it.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(super) fn forbid_writes(&mut self) {
        self.read_only = true;
    }

    /// The memory, or an error that cannot happen before `drop`.
    pub(super) fn raw(&self) -> Result<&wgpu::Buffer> {
        let block = self.block.as_ref().map(|block| &block.raw);
        block.ok_or_else(|| Error::Gpu { message: "use of a dropped buffer".into() })
    }

    /// Note that recorded, not yet submitted work uses the buffer; paired with `unpin`.
    pub(super) fn pin(&self, access: Access) {
        self.pins(access).fetch_add(1, Relaxed);
    }

    pub(super) fn unpin(&self, access: Access) {
        self.pins(access).fetch_sub(1, Relaxed);
    }

    fn pins(&self, access: Access) -> &AtomicU32 {
        match access {
            Access::Read => &self.recorded_reads,
            Access::ReadWrite => &self.recorded_writes,
        }
    }
}

impl Drop for GpuBuffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take().filter(|_| !self.kept) {
            let mut memory = self.gpu.state();
            memory.active -= block.raw.size();
            match &self.shared {
                None => memory.give_back(block),
                Some(shared) => {
                    memory.mapped -= block.raw.size();
                    if self.wired {
                        memory.wired -= block.raw.size();
                        memory.residency.remove(shared);
                    }
                    // As where the cache shrinks: bind groups may still refer to it.
                    block.raw.destroy();
                }
            }
        }
    }
}

impl std::fmt::Debug for GpuBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GpuBuffer({}, {} bytes)", self.id(), self.size)
    }
}

impl Gpu {
    /// A buffer of at least so many bytes, contents unspecified.
    pub fn alloc(self: &Arc<Self>, bytes: u64) -> Result<GpuBuffer> {
        self.check()?;
        let limit = self.max_binding_bytes();
        if bytes > limit {
            let (argument, got) = ("bytes of one buffer".into(), bytes.to_string());
            return Err(Error::SizeOverflow { op: "alloc", argument, got, limit });
        }
        let size = self.padded(bytes);
        let block = self.block(self.taken(bytes))?;
        let buffer = self.buffer(block, size, bytes);
        if self.simulated.is_some() {
            super::simulated::poison(self, &buffer)?;
        }
        Ok(buffer)
    }

    /// The bytes that a buffer of so many takes.
    pub(crate) fn taken(&self, bytes: u64) -> u64 {
        size_class(self.padded(bytes)).min(self.max_binding_bytes())
    }

    /// A limit that is no multiple of the granule can still be used up to its end.
    fn padded(&self, bytes: u64) -> u64 {
        bytes.max(1).next_multiple_of(GRANULE).min(self.max_binding_bytes())
    }

    /// A buffer of so many bytes that are a mapped file's, made by `make` within the limit; nothing
    /// if it makes nothing.
    pub(super) fn adopt(
        self: &Arc<Self>,
        bytes: u64,
        make: impl FnOnce() -> Option<(wgpu::Buffer, system::Shared)>,
    ) -> Result<Option<GpuBuffer>> {
        self.check()?;
        self.reserve(bytes)?.make_room();
        let made = self.guarded(make).inspect_err(|_| self.state().active -= bytes)?;
        let mut memory = self.state();
        let Some((raw, shared)) = made else {
            memory.active -= bytes;
            return Ok(None);
        };
        memory.mapped += bytes;
        let wired = memory.wired + bytes <= memory.wired_limit;
        if wired {
            memory.wired += bytes;
            memory.residency.add(&self.device, &self.queue, &shared);
        }
        drop(memory);
        self.count.allocations.fetch_add(1, Relaxed);
        let block = Block { id: NEXT_ID.fetch_add(1, Relaxed), raw };
        let mut buffer = self.buffer(block, bytes, bytes);
        buffer.forbid_writes();
        buffer.shared = Some(shared);
        buffer.wired = wired;
        Ok(Some(buffer))
    }

    fn buffer(self: &Arc<Self>, block: Block, size: u64, requested: u64) -> GpuBuffer {
        GpuBuffer {
            gpu: self.clone(),
            block: Some(block),
            size,
            requested,
            read_only: false,
            shared: None,
            wired: false,
            kept: false,
            recorded_reads: AtomicU32::new(0),
            recorded_writes: AtomicU32::new(0),
        }
    }

    /// Memory with what never changes, by its place in the program: uploaded when it is first asked for, and kept as
    /// long as the device.
    pub(crate) fn constant(self: &Arc<Self>, bytes: &'static [u8]) -> Result<Arc<GpuBuffer>> {
        let key = (bytes.as_ptr() as usize, bytes.len());
        let mut constants = lock(&self.constants);
        if !constants.contains_key(&key) {
            let mut made = self.alloc(bytes.len() as u64)?;
            self.upload(&made, 0, bytes)?;
            // A buffer holds its device, so that the device cannot hold one: it takes the memory.
            let (size, block) = (made.size, made.block.take());
            constants.extend(block.map(|block| (key, (size, block))));
        }
        let Some((size, Block { id, raw })) = constants.get(&key) else {
            return Err(Error::Gpu { message: "a constant without memory".into() });
        };
        let block = Block { id: *id, raw: raw.clone() };
        let mut buffer = self.buffer(block, *size, bytes.len() as u64);
        buffer.forbid_writes();
        buffer.kept = true;
        Ok(Arc::new(buffer))
    }

    /// How much memory is in use.
    pub fn memory(&self) -> MemoryCounters {
        let Memory { active, mapped, peak, cached, limit, .. } = *self.state();
        MemoryCounters { active, mapped, peak, cached, limit }
    }

    /// Refuse allocations beyond so many active bytes. Without a limit, the driver decides.
    pub fn set_memory_limit(&self, bytes: u64) {
        self.state().limit = bytes;
    }

    /// Keep at most so many bytes for reuse.
    pub fn set_cache_limit(&self, bytes: u64) {
        let mut memory = self.state();
        memory.cache_limit = bytes;
        memory.shrink_cache(bytes);
    }

    /// Keep at most so many bytes of mapped weights resident, of those that are mapped from now on; gives
    /// the limit before.
    pub fn set_wired_limit(&self, bytes: u64) -> Result<u64> {
        if !system::KEEPS_RESIDENT {
            let reason = "only Apple's systems keep weights resident".into();
            let (op, device) = ("set_wired_limit", self.name().to_string());
            return Err(Error::NotOnDevice { op, device, reason });
        }
        Ok(std::mem::replace(&mut self.state().wired_limit, bytes))
    }

    /// Give all cached memory back to the driver.
    pub fn clear_cache(&self) {
        self.state().shrink_cache(0);
        lock(&self.transfers.staging).clear();
    }

    /// Let the peak start again from what is active now.
    pub fn reset_peak(&self) {
        let mut memory = self.state();
        memory.peak = memory.active;
    }

    /// Copy `data` into the buffer, ordered before everything submitted later. Any offset and
    /// length are possible; those that are no multiple of four in the middle of the data wait for
    /// the GPU, because the neighbouring bytes must be fetched.
    pub fn upload(&self, buffer: &GpuBuffer, offset: u64, data: &[u8]) -> Result<()> {
        self.check()?;
        self.check_range("upload", buffer, offset, data.len() as u64)?;
        if buffer.read_only {
            let got = "memory that is only read";
            return Err(Error::argument("upload", "buffer", "memory to write", got));
        }
        if buffer.recorded_reads.load(Relaxed) + buffer.recorded_writes.load(Relaxed) > 0 {
            let message = "upload into a buffer that recorded, not yet submitted work uses";
            return Err(Error::Gpu { message: message.into() });
        }
        if data.is_empty() {
            return Ok(());
        }
        self.settle();
        self.count.uploaded_bytes.fetch_add(data.len() as u64, Relaxed);

        let head = offset % 4;
        let end = offset + data.len() as u64;
        // Behind the end of what was asked for there is only padding, which may be overwritten.
        let tail = if end >= buffer.requested { 0 } else { end % 4 };
        let ragged = !data.len().is_multiple_of(4);
        if head == 0 && !ragged {
            return self.write(buffer, offset, data);
        }
        // Whole words in the middle go straight from the caller's memory; the ends are patched.
        let lead = if head == 0 { 0 } else { (4 - head as usize).min(data.len()) };
        let (first, rest) = data.split_at(lead);
        let (middle, last) = rest.split_at(rest.len() & !3);
        if !first.is_empty() {
            let mut word = self.fetch_word(buffer, offset - head)?;
            word[head as usize..][..first.len()].copy_from_slice(first);
            self.write(buffer, offset - head, &word)?;
        }
        let start = offset + first.len() as u64;
        if !middle.is_empty() {
            self.write(buffer, start, middle)?;
        }
        if !last.is_empty() {
            let at = start + middle.len() as u64;
            let mut word = if tail == 0 { [0; 4] } else { self.fetch_word(buffer, at)? };
            word[..last.len()].copy_from_slice(last);
            self.write(buffer, at, &word)?;
        }
        Ok(())
    }

    /// Fetch bytes, after all work submitted so far. Waits.
    pub fn download(&self, buffer: &GpuBuffer, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut parts = self.download_many(&[(buffer, offset, len)])?;
        Ok(parts.pop().unwrap_or_default())
    }

    /// Fetch several `(buffer, offset, length)` with one wait (more for very large ones).
    pub fn download_many(&self, parts: &[(&GpuBuffer, u64, u64)]) -> Result<Vec<Vec<u8>>> {
        self.check()?;
        for &(buffer, offset, len) in parts {
            self.check_range("download", buffer, offset, len)?;
            if buffer.recorded_writes.load(Relaxed) > 0 {
                let message = "download of a buffer that recorded, not yet submitted work writes";
                return Err(Error::Gpu { message: message.into() });
            }
        }
        let mut results = parts.iter().map(|_| Vec::new()).collect::<Vec<_>>();
        let (mut batch, mut batch_bytes) = (Vec::new(), 0);
        for (part, &(buffer, offset, len)) in parts.iter().enumerate() {
            let (mut at, end) = (offset, offset + len);
            while at < end {
                let start = at & !3;
                let room = STAGING_BYTES - batch_bytes;
                let stop = end.next_multiple_of(4).min(start + room);
                let copy =
                    Copy { part, source: buffer.raw()?, start, stop, at, until: stop.min(end) };
                at = copy.until;
                batch_bytes += stop - start;
                batch.push(copy);
                if batch_bytes == STAGING_BYTES {
                    self.fetch(&batch, &mut results)?;
                    (batch, batch_bytes) = (Vec::new(), 0);
                }
            }
        }
        if !batch.is_empty() {
            self.fetch(&batch, &mut results)?;
        }
        let bytes = parts.iter().map(|&(_, _, len)| len).sum();
        self.count.downloaded_bytes.fetch_add(bytes, Relaxed);
        Ok(results)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    /// Memory of exactly this class: cached if possible, else new, within the limit.
    fn block(&self, class: u64) -> Result<Block> {
        let mut memory = self.reserve(class)?;
        if let Some(block) = memory.take(class) {
            return Ok(block);
        }
        memory.make_room();
        drop(memory);
        self.create(class).inspect_err(|_| self.state().active -= class)
    }

    /// Counts so many bytes as active, before the driver is asked, so that concurrent requests see
    /// the limit.
    fn reserve(&self, bytes: u64) -> Result<MutexGuard<'_, Memory>> {
        let mut memory = self.state();
        if memory.active.saturating_add(bytes) > memory.limit {
            drop(memory);
            return Err(self.out_of_memory(bytes));
        }
        memory.active += bytes;
        memory.peak = memory.peak.max(memory.active);
        Ok(memory)
    }

    fn create(&self, class: u64) -> Result<Block> {
        let attempt = || {
            self.scoped(|| {
                self.device.create_buffer(&wgpu::BufferDescriptor {
                    label: None,
                    size: class,
                    usage: BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
                    mapped_at_creation: false,
                })
            })
        };
        let (mut raw, mut error) = attempt();
        if matches!(error, Some(wgpu::Error::OutOfMemory { .. })) {
            // Freed memory comes back once the GPU is done with it.
            self.clear_cache();
            let idle = self.guarded(|| self.queue.submit([]))?;
            self.wait_for(&idle)?;
            (raw, error) = attempt();
        }
        self.check()?;
        match error {
            None => {
                self.count.allocations.fetch_add(1, Relaxed);
                Ok(Block { id: NEXT_ID.fetch_add(1, Relaxed), raw })
            }
            Some(wgpu::Error::OutOfMemory { .. }) => Err(self.out_of_memory(class)),
            Some(error) => Err(Error::Gpu { message: error.to_string() }),
        }
    }

    fn check_range(
        &self,
        op: &'static str,
        buffer: &GpuBuffer,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        if !std::ptr::eq(Arc::as_ptr(&buffer.gpu), self) {
            let (expected, got) = (format!("{self:?}"), format!("{:?}", buffer.gpu));
            return Err(Error::DeviceMismatch { op, argument: "buffer".into(), expected, got });
        }
        match offset.checked_add(len) {
            Some(end) if end <= buffer.size => Ok(()),
            _ => Err(Error::SizeOverflow {
                op,
                argument: "end of the range".into(),
                got: (u128::from(offset) + u128::from(len)).to_string(),
                limit: buffer.size,
            }),
        }
    }

    /// Write whole words.
    pub(super) fn write(&self, buffer: &GpuBuffer, offset: u64, data: &[u8]) -> Result<()> {
        let raw = buffer.raw()?;
        for (i, chunk) in data.chunks(STAGING_BYTES as usize).enumerate() {
            let at = offset + i as u64 * STAGING_BYTES;
            self.guarded(|| self.queue.write_buffer(raw, at, chunk))?;
            // wgpu stages each write in new memory, released when a later submission is done, and
            // loses the device if it gets none: bound what is outstanding.
            let staged = self.transfers.staged.fetch_add(chunk.len() as u64, Relaxed);
            if staged + chunk.len() as u64 >= STAGED_LIMIT {
                self.transfers.staged.store(0, Relaxed);
                self.count.transfers.fetch_add(1, Relaxed);
                let flushed = self.guarded(|| self.queue.submit([]))?;
                self.wait_for(&flushed)?;
            }
        }
        Ok(())
    }

    fn fetch_word(&self, buffer: &GpuBuffer, offset: u64) -> Result<[u8; 4]> {
        let (mut word, raw) = (vec![Vec::new()], buffer.raw()?);
        let (start, stop) = (offset, offset + 4);
        let copy = Copy { part: 0, source: raw, start, stop, at: start, until: stop };
        self.fetch(&[copy], &mut word)?;
        word.first()
            .and_then(|w| w.as_slice().try_into().ok())
            .ok_or_else(|| Error::Gpu { message: "a word was not downloaded".into() })
    }

    /// Copy to a mappable buffer, wait, and append the bytes to each copy's part.
    fn fetch(&self, copies: &[Copy<'_>], results: &mut [Vec<u8>]) -> Result<()> {
        self.settle();
        let total = copies.iter().map(|c| c.stop - c.start).sum::<u64>();
        let staging = self.staging(total)?;
        let index = self.guarded(|| {
            let mut encoder = self.device.create_command_encoder(&Default::default());
            let mut at = 0;
            for copy in copies {
                let len = copy.stop - copy.start;
                encoder.copy_buffer_to_buffer(copy.source, copy.start, &staging, at, len);
                at += len;
            }
            self.queue.submit([encoder.finish()])
        })?;
        self.transfers.staged.store(0, Relaxed);
        self.count.transfers.fetch_add(1, Relaxed);
        self.read_mapped(&staging, total, &index, |bytes| {
            let mut at = 0;
            for copy in copies {
                let skip = (copy.at - copy.start) as usize;
                let len = (copy.until - copy.at) as usize;
                if let Some(result) = results.get_mut(copy.part)
                    && let Some(piece) = bytes.get(at + skip..at + skip + len)
                {
                    result.extend_from_slice(piece);
                }
                at += (copy.stop - copy.start) as usize;
            }
        })?;
        self.transfers.keep(staging);
        Ok(())
    }

    /// Wait for the submission, map the start of a `MAP_READ` buffer, look at it, unmap it.
    pub(super) fn read_mapped(
        &self,
        buffer: &wgpu::Buffer,
        len: u64,
        index: &wgpu::SubmissionIndex,
        look: impl FnOnce(&[u8]),
    ) -> Result<()> {
        let (sender, receiver) = mpsc::channel();
        self.guarded(|| {
            buffer.slice(..len).map_async(wgpu::MapMode::Read, move |result| {
                let _ = sender.send(result);
            })
        })?;
        // Another thread's poll may run the callback, after this thread's poll has returned.
        let mapped = loop {
            let done = self.poll_for(index, Duration::from_secs(1))?;
            let patience = Duration::from_millis(if done { 50 } else { 0 });
            match receiver.recv_timeout(patience) {
                Ok(result) => break result.is_ok(),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break false,
            }
        };
        let view = mapped.then(|| buffer.slice(..len).get_mapped_range());
        let Some(Ok(view)) = view else {
            self.check()?;
            return Err(Error::Gpu { message: "a readback buffer could not be mapped".into() });
        };
        look(&view);
        drop(view);
        buffer.unmap();
        Ok(())
    }

    pub(super) fn staging(&self, bytes: u64) -> Result<wgpu::Buffer> {
        let size = bytes.next_power_of_two().max(4096);
        if let Some(found) = self.transfers.take(size) {
            return Ok(found);
        }
        self.guarded(|| {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("readback"),
                size,
                usage: BufferUsages::MAP_READ | BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })
    }
}

/// Sizes and memory of constants, by where a program has them and how long they are.
pub(super) type Constants = HashMap<(usize, usize), (u64, Block)>;

/// The state behind allocation: what is in use, and the cache.
pub(super) struct Memory {
    pub(super) active: u64,
    pub(super) limit: u64,
    mapped: u64,
    peak: u64,
    cached: u64,
    cache_limit: u64,
    /// Mapped bytes that are kept resident, and how many may be.
    wired: u64,
    wired_limit: u64,
    residency: system::Residency,
    /// Free blocks by size, in the order they were given back, with the time of that.
    free: BTreeMap<u64, VecDeque<(u64, Block)>>,
    clock: u64,
}

impl Default for Memory {
    fn default() -> Self {
        let (limit, cache_limit) = (u64::MAX, DEFAULT_CACHE_LIMIT);
        Memory {
            active: 0,
            limit,
            mapped: 0,
            peak: 0,
            cached: 0,
            cache_limit,
            wired: 0,
            wired_limit: u64::MAX,
            residency: Default::default(),
            free: BTreeMap::new(),
            clock: 0,
        }
    }
}

impl Memory {
    /// The block used last: its bind groups are the likeliest to be still there.
    fn take(&mut self, class: u64) -> Option<Block> {
        let (_, block) = self.free.get_mut(&class)?.pop_back()?;
        self.cached -= class;
        Some(block)
    }

    fn give_back(&mut self, block: Block) {
        let class = block.raw.size();
        self.clock += 1;
        self.cached += class;
        self.free.entry(class).or_default().push_back((self.clock, block));
        // One block at a time would look at all classes for each; go a little further instead.
        if self.cached > self.cache_limit {
            self.shrink_cache(self.cache_limit - self.cache_limit / 8);
        }
    }

    /// Let the cache hold no more than the limit leaves.
    fn make_room(&mut self) {
        self.shrink_cache(self.limit - self.active);
    }

    /// Free the blocks that waited longest until at most `target` bytes are cached.
    fn shrink_cache(&mut self, target: u64) {
        while self.cached > target {
            let oldest = self.free.iter().filter_map(|(c, list)| Some((list.front()?.0, *c))).min();
            let Some((_, class)) = oldest else { break };
            if let Some((_, block)) = self.free.get_mut(&class).and_then(VecDeque::pop_front) {
                self.cached -= class;
                // Cached bind groups may still refer to it; destroying frees the memory anyway,
                // as soon as the GPU is done with it.
                block.raw.destroy();
            }
        }
        self.free.retain(|_, list| !list.is_empty());
    }
}

/// Staging for uploads and downloads.
#[derive(Default)]
pub(super) struct Transfers {
    /// Bytes written since the last submission that is known to have released them.
    staged: AtomicU64,
    staging: std::sync::Mutex<Vec<wgpu::Buffer>>,
}

impl Transfers {
    fn take(&self, size: u64) -> Option<wgpu::Buffer> {
        let mut staging = lock(&self.staging);
        let found = staging.iter().position(|buffer| buffer.size() == size)?;
        Some(staging.swap_remove(found))
    }

    /// Large ones are rare and not worth their memory.
    fn keep(&self, buffer: wgpu::Buffer) {
        let mut staging = lock(&self.staging);
        if buffer.size() <= 1 << 20 && staging.len() < 16 {
            staging.push(buffer);
        }
    }
}

/// Memory as the driver gave it.
pub(super) struct Block {
    id: u64,
    raw: wgpu::Buffer,
}

/// A piece of a download: words `start..stop` of the source hold bytes `at..until` of the part.
struct Copy<'a> {
    part: usize,
    source: &'a wgpu::Buffer,
    start: u64,
    stop: u64,
    at: u64,
    until: u64,
}

/// Sizes are multiples of this, so that kernels may load four words at once.
const GRANULE: u64 = 16;
/// The most one staging buffer holds.
const STAGING_BYTES: u64 = 32 << 20;
/// Uploads in flight before one waits for them.
const STAGED_LIMIT: u64 = 128 << 20;
const DEFAULT_CACHE_LIMIT: u64 = 2 << 30;
/// Ids are unique in the process, so that bind groups never meet another device's buffers.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The size really allocated: eight classes to an octave, so at most an eighth is wasted.
fn size_class(size: u64) -> u64 {
    if size <= 256 {
        return 256;
    }
    let step = (1 << size.ilog2()) / 8;
    size.checked_next_multiple_of(step).unwrap_or(size)
}
