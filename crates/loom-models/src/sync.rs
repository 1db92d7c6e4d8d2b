//! Loom's primitives under the names of `cpu/sync.rs` in wootz.

use std::time::Duration;

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
pub(crate) use loom::thread;

/// A static that begins anew in each run.
macro_rules! global {
    (static $name:ident: $type:ty = $value:expr;) => {
        loom::lazy_static! { static ref $name: $type = $value; }
    };
}
pub(crate) use global;

/// Waiting takes no time here: whoever waits lets the others run, and has waited long enough.
pub(crate) struct Idle;

impl Idle {
    pub(crate) fn new() -> Self {
        Idle
    }

    pub(crate) fn spun(&mut self, _: Duration) -> bool {
        loom::thread::yield_now();
        true
    }
}
