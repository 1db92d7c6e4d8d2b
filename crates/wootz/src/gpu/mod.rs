//! The GPU runtime: devices, memory, kernels and submissions, on wgpu. It knows no operations and
//! no arrays.
//!
//! # What a kernel looks like
//!
//! ```wgsl
//! struct Params { n: u32, scale: f32 }                   // any 32-bit scalars and vectors
//! var<immediate> p: Params;                              // Launch::params, at most 32 words
//! @group(0) @binding(0) var<storage, read> x: array<f32>;         // Launch::bindings[0], Read
//! @group(0) @binding(1) var<storage, read_write> y: array<f32>;   // Launch::bindings[1], ReadWrite
//! @group(0) @binding(2) var<storage, read_write> status: array<atomic<u32>, 4>; // if Launch::status
//!
//! @compute @workgroup_size(64)
//! fn main(@builtin(global_invocation_id) id: vec3u) {
//!     if (id.x < p.n) { y[id.x] = x[id.x] * p.scale; }
//! }
//! ```
//!
//! - The entry point is `main`, everything is in `@group(0)`, and `@binding(i)` is the i-th of
//!   [`Launch::bindings`], declared `read` or `read_write` as its [`Access`] says.
//! - Parameters are one `var<immediate>`, a struct whose size in words is the number of
//!   [`Launch::params`]: vectors need their alignment, and the size is rounded up to the largest
//!   alignment. Floats go in as bits. No arrays (naga takes them, the WGSL standard does not). A
//!   kernel without parameters declares none.
//! - With [`Launch::status`], the status words are bound last. Word 0 is `0xffffffff` until a kernel
//!   does `atomicMin(&status[0], code)`; words 1 to 3 are free for details and start at 0.
//! - A buffer is seen at its size rounded up to 16 bytes; what is behind the data is unspecified. So
//!   are a new buffer's contents, and workgroup memory: runtime checks and zeroing are off unless
//!   [`GpuOptions::checked`]. Kernels must not index outside, divide an integer by zero, or loop
//!   forever.
//! - The same buffer may be bound twice with the same access, never with both.
//! - `enable f16;` is written where it is used; `enable subgroups;` must not be written: naga rejects it.
//!
//! Kernels of one [`Recorder`] run in order; each sees what those before it wrote.
//!
//! With [`GpuOptions::simulator`] a device has no driver: a [`Simulator`] runs the kernels.

#[cfg(target_vendor = "apple")]
mod apple;
mod apple7;
mod buffer;
mod call;
mod cost;
mod device;
pub(crate) mod fused;
mod kernel;
mod mapped;
mod msl;
mod numbered;
pub mod packed;
mod prune;
mod recorder;
pub(crate) mod rows;
mod simulated;
#[cfg(not(target_vendor = "apple"))]
mod system;
#[cfg(test)]
mod tests;
mod translate;

#[cfg(target_vendor = "apple")]
use apple as system;

pub use apple7::{APPLE7, LaunchSize};
pub use buffer::{GpuBuffer, MemoryCounters};
pub use call::{Bind, GpuCall, Kernel, grid};
pub(crate) use call::{GpuSubmission, StatusSite};
pub use cost::{BindingCost, KernelCost, fits_apple7};
pub use device::{AdapterKind, AdapterSummary, Gpu, GpuCounters, GpuOptions, adapters};
pub use fused::{COMPLEX, MATH};
pub use kernel::{Access, KernelKey, KernelShape};
pub use mapped::MappedBuffer;
pub use msl::{Msl, MslBinding, MslLaunch, to_msl};
pub(crate) use numbered::numbered;
pub use recorder::{Launch, MAX_PARAMS, Recorder, Submission};
pub use simulated::{Collected, Collector, SimulatedLaunch, Simulator};
pub use translate::{to_spirv, validate_wgsl};
