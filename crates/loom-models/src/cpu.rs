//! The sources of wootz that are modelled, as they are, on loom's primitives.

#[path = "../../wootz/src/cpu/buffer.rs"]
pub(crate) mod buffer;
#[path = "sync.rs"]
pub(crate) mod sync;
#[path = "../../wootz/src/cpu/threads.rs"]
pub(crate) mod threads;
