//! CPU memory for arrays: 64-byte aligned, always initialised, cached by size, counted and limited.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use bytemuck::{Pod, Zeroable};

use super::sync::{Mutex, MutexGuard, global};
use crate::device::Memory;
use crate::error::{Error, Result};

/// One cache line; the unit of allocation.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; 64]);

/// A block of memory that returns to the cache when dropped.
#[derive(Debug)]
pub(crate) struct CpuMemory {
    block: Block,
}

/// A block as the system gave it, in whole cache lines.
#[derive(Debug)]
pub(crate) enum Block {
    Lines(Box<[Line]>),
    /// In pages of 2 MiB where the system has some: a pass over a large array in small pages spends
    /// much of its time on finding them, and a new array in being given them one by one.
    #[cfg(target_os = "linux")]
    Pages(memmap2::MmapMut),
}

/// From here on blocks are mapped in large pages.
#[cfg(target_os = "linux")]
const LARGE: usize = 2 << 20;

impl Block {
    /// Zeroed memory; nothing if there is not enough.
    pub(crate) fn new(bytes: usize) -> Option<Block> {
        #[cfg(target_os = "linux")]
        if bytes >= LARGE {
            let pages = memmap2::MmapOptions::new().len(bytes).map_anon().ok()?;
            // Without large pages the memory is as good, only slower.
            let _advice = pages.advise(memmap2::Advice::HugePage);
            return Some(Block::Pages(pages));
        }
        bytemuck::allocation::try_zeroed_slice_box(bytes.div_ceil(64)).ok().map(Block::Lines)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Block::Lines(lines) => bytemuck::cast_slice(lines),
            #[cfg(target_os = "linux")]
            Block::Pages(pages) => pages,
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Block::Lines(lines) => bytemuck::cast_slice_mut(lines),
            #[cfg(target_os = "linux")]
            Block::Pages(pages) => pages,
        }
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

/// Small blocks are rounded to whole lines, larger ones to an eighth of their power of two, so
/// that neighbouring sizes share cached blocks.
pub(crate) fn size_class(bytes: usize) -> usize {
    let bytes = bytes.max(64);
    if bytes <= 4096 {
        return bytes.next_multiple_of(64);
    }
    bytes.checked_next_multiple_of((bytes.next_power_of_two() / 16).max(64)).unwrap_or(bytes)
}

struct Pool {
    free: BTreeMap<usize, Vec<Block>>,
    memory: Memory,
    cache_limit: u64,
}

global! {
    static POOL: Mutex<Pool> = Mutex::new(Pool {
        free: BTreeMap::new(),
        memory: Memory { active: 0, peak: 0, cached: 0, limit: 0, mapped: 0 },
        cache_limit: u64::MAX,
    });
}

fn pool() -> MutexGuard<'static, Pool> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if pool.memory.limit == 0 {
        pool.memory.limit = physical_memory();
    }
    pool
}

/// The machine's memory where the system tells it; no limit elsewhere.
fn physical_memory() -> u64 {
    let from_proc = || {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
    };
    from_proc().unwrap_or(u64::MAX)
}

impl CpuMemory {
    /// Memory for at least `bytes`, with unspecified (but initialised) contents.
    pub(crate) fn alloc(bytes: usize) -> Result<CpuMemory> {
        let class = size_class(bytes);
        let mut pool = pool();
        let out_of_memory = |pool: &Pool| Error::OutOfMemory {
            device: "cpu".into(),
            requested: bytes as u64,
            active: pool.memory.active,
            limit: pool.memory.limit,
        };
        let wanted = pool.memory.active.saturating_add(class as u64);
        if wanted > pool.memory.limit {
            return Err(out_of_memory(&pool));
        }
        let cached = pool.free.get_mut(&class).and_then(Vec::pop);
        let block = match cached {
            Some(block) => {
                pool.memory.cached -= class as u64;
                block
            }
            None => {
                if wanted.saturating_add(pool.memory.cached) > pool.memory.limit {
                    pool.shrink_cache(0);
                }
                Block::new(class).ok_or_else(|| out_of_memory(&pool))?
            }
        };
        pool.memory.active = wanted;
        pool.memory.peak = pool.memory.peak.max(wanted);
        Ok(CpuMemory { block })
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.block.bytes()
    }

    /// All bytes, writable.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.block.bytes_mut()
    }
}

impl Drop for CpuMemory {
    fn drop(&mut self) {
        let block = std::mem::replace(&mut self.block, Block::Lines(Box::default()));
        let class = block.bytes().len();
        let mut pool = pool();
        pool.memory.active -= class as u64;
        if pool.memory.cached + class as u64 <= pool.cache_limit.min(pool.memory.limit) {
            pool.memory.cached += class as u64;
            pool.free.entry(class).or_default().push(block);
        }
    }
}

impl Pool {
    /// Frees cached blocks, largest first, until at most `bytes` are left.
    fn shrink_cache(&mut self, bytes: u64) {
        while self.memory.cached > bytes {
            let Some(mut entry) = self.free.last_entry() else { break };
            if entry.get_mut().pop().is_some() {
                self.memory.cached -= *entry.key() as u64;
            }
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }
}

pub(crate) fn memory() -> Memory {
    pool().memory
}

pub(crate) fn set_memory_limit(bytes: u64) {
    pool().memory.limit = bytes.max(1);
}

pub(crate) fn set_cache_limit(bytes: u64) {
    let mut pool = pool();
    pool.shrink_cache(bytes);
    pool.cache_limit = bytes;
}

pub(crate) fn clear_cache() {
    pool().shrink_cache(0);
}

pub(crate) fn reset_peak() {
    let mut pool = pool();
    pool.memory.peak = pool.memory.active;
}
