//! Function transforms: they walk the graph that a function built.

mod batch;
mod custom;
mod graph;
mod jvp;
mod placeholder;
mod vjp;
mod vmap;

use std::sync::atomic::{AtomicUsize, Ordering};

pub use batch::Batch;
pub use custom::{CustomFunction, checkpoint, custom};
pub(crate) use graph::settle_constants;
pub use jvp::jvp;
pub(crate) use jvp::transposed;
pub(crate) use placeholder::placeholder;
pub(crate) use vjp::composed_vjp;
pub use vjp::{grad, value_and_grad, value_and_grad_aux, vjp};
pub use vmap::{MapAxes, vmap};

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
