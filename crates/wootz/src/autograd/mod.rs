//! Function transforms: gradients by walking the graph that a function built.

mod vjp;

use std::sync::atomic::{AtomicUsize, Ordering};

pub use vjp::{grad, value_and_grad, vjp};

/// Transforms that are running. While there are any, evaluated nodes keep the history that a
/// transform may still walk.
static TRACING: AtomicUsize = AtomicUsize::new(0);

/// Whether any transform is running.
pub(crate) fn is_tracing() -> bool {
    TRACING.load(Ordering::Relaxed) > 0
}

/// A running transform.
pub(crate) struct Trace(());

impl Trace {
    pub(crate) fn start() -> Trace {
        TRACING.fetch_add(1, Ordering::Relaxed);
        Trace(())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        TRACING.fetch_sub(1, Ordering::Relaxed);
    }
}
