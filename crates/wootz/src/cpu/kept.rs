//! Memory that a thread keeps from one call of a kernel to the next: to ask the system for it, and to be given its
//! pages one by one, takes longer than many a call.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::Cell;
use std::thread::LocalKey;

use super::buffer::Block;

/// A thread's place for such memory, made with `const { Cell::new(None) }`.
pub(crate) type Slot = Cell<Option<Block>>;

/// Bytes above which memory is given back after use.
const LARGEST: usize = 64 << 20;

/// Lends so many bytes or some more, of any values, which begin with a cache line; nothing if there is not enough
/// memory.
pub(crate) fn lend<R>(
    slot: &'static LocalKey<Slot>,
    bytes: usize,
    f: impl FnOnce(&mut [u8]) -> R,
) -> Option<R> {
    // A slot whose memory is lent out already is found empty and lends new memory.
    let kept = slot.take().filter(|block| block.bytes().len() >= bytes);
    // With room to grow: calls whose sizes grow by and by would need new memory each.
    let mut block = kept.or_else(|| Block::new(bytes.checked_add(bytes / 4)?))?;
    let result = f(block.bytes_mut());
    if block.bytes().len() <= LARGEST {
        slot.set(Some(block));
    }
    Some(result)
}

/// As [`lend`], within a task that has no way to tell of an error: without memory the process ends.
pub(crate) fn lend_to_task<R>(
    slot: &'static LocalKey<Slot>,
    bytes: usize,
    f: impl FnOnce(&mut [u8]) -> R,
) -> R {
    let none = || handle_alloc_error(Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>()));
    lend(slot, bytes, f).unwrap_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static SLOT: Slot = const { Cell::new(None) };
    }

    #[test]
    fn memory_is_kept_grows_and_is_never_lent_twice() {
        let first = lend(&SLOT, 100, |bytes| {
            assert!(bytes.len() >= 100);
            bytes.fill(7);
            let outer = bytes.as_ptr();
            // The same thread asks again meanwhile.
            let inner = lend(&SLOT, 100, |bytes| bytes.as_ptr());
            assert_ne!(inner, Some(outer));
            outer
        });
        assert!(first.is_some());
        assert_eq!(lend(&SLOT, 60, |bytes| bytes.as_ptr()), first);
        assert_eq!(lend(&SLOT, 1000, |bytes| bytes.len() >= 1000), Some(true));
        assert_eq!(lend(&SLOT, 0, |bytes| bytes.len() >= 1000), Some(true));
        assert!(lend_to_task(&SLOT, LARGEST + 1, |bytes| bytes.len() > LARGEST));
        assert!(SLOT.take().is_none());
        assert_eq!(lend(&SLOT, usize::MAX, |_| ()), None);
    }
}
