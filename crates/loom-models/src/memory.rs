//! Models of the cache of memory.

use loom::thread;

use crate::Model;
use crate::cpu::buffer::{
    CpuMemory, clear_cache, memory, reset_peak, set_cache_limit, set_memory_limit,
};
use crate::error::{Error, Result};

pub(crate) const MODELS: &[Model] = &[
    ("no block has two owners, and all are counted", None, owners),
    ("clearing the cache takes no block that is in use", None, clearing),
    ("together threads stay below the limit", None, limit),
];

/// The size of the blocks that all threads want.
const BYTES: usize = 4096;

/// Writes a block of one's own, and sees after others have run that nobody else did.
fn use_block(mark: u8) -> Result<()> {
    let mut block = CpuMemory::alloc(BYTES)?;
    block.bytes_mut().fill(mark);
    thread::yield_now();
    assert!(block.bytes().iter().all(|&byte| byte == mark));
    Ok(())
}

fn owners() {
    let other = thread::spawn(|| (0..2).for_each(|_| use_block(1).unwrap()));
    use_block(2).unwrap();
    other.join().unwrap();
    let memory = memory();
    assert_eq!(memory.active, 0);
    // One block if the threads took turns, two if they did not.
    assert!([1, 2].contains(&(memory.cached / BYTES as u64)));
    assert_eq!(memory.peak, memory.cached);
}

fn clearing() {
    drop(CpuMemory::alloc(BYTES).unwrap());
    let other = thread::spawn(|| use_block(1).unwrap());
    clear_cache();
    set_cache_limit(0);
    reset_peak();
    other.join().unwrap();
    let memory = memory();
    assert_eq!((memory.active, memory.cached), (0, 0));
}

fn limit() {
    set_memory_limit(BYTES as u64);
    let other = thread::spawn(|| use_block(1));
    for result in [use_block(2), other.join().unwrap()] {
        if let Err(Error::OutOfMemory { active, limit, .. }) = result {
            assert_eq!((active, limit), (BYTES as u64, BYTES as u64));
        }
    }
    let memory = memory();
    assert_eq!((memory.active, memory.peak), (0, BYTES as u64));
}
