//! What the thread team and the cache of memory are built of: the standard library's. Models of
//! both, in `crates/loom-models`, compile them with loom's in this place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
pub(crate) use std::thread;
use std::time::{Duration, Instant};

/// A static; for a model it begins anew in each of its runs.
macro_rules! global {
    (static $name:ident: $type:ty = $value:expr;) => {
        static $name: $type = $value;
    };
}
pub(crate) use global;

/// As the standard library's, with accesses that a model can see.
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// Counts spins, and reads the clock only now and then because that costs as much as many spins.
pub(crate) struct Idle {
    spins: u32,
    since: Option<Instant>,
}

impl Idle {
    pub(crate) fn new() -> Self {
        Idle { spins: 0, since: None }
    }

    /// Spins once; true when `limit` has passed.
    pub(crate) fn spun(&mut self, limit: Duration) -> bool {
        std::hint::spin_loop();
        self.spins = self.spins.wrapping_add(1);
        if !self.spins.is_multiple_of(64) {
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() >= limit
    }
}
