//! Runs kernels as a Metal GPU would, on a machine without one.
//!
//! A kernel's WGSL goes through naga with the options and the buffer numbering of wgpu's Metal
//! backend ([`to_msl`]). The resulting MSL is compiled twice by clang:
//!
//! - to **check** it, as C++ for OpenCL, where address spaces are real, after lints for what clang
//!   accepts and Apple's compiler does not;
//! - to **run** it, as C++20 with headers that stand in for Metal's (`src/headers`). Each thread of
//!   a threadgroup is a fiber, and 32 of them are a simdgroup.
//!
//! ```no_run
//! use metal_sim::{Build, Cache, Kernel, Launch, Library, Order, Toolchain, Worker};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = "var<immediate> scale: f32;
//!     @group(0) @binding(0) var<storage, read> x: array<f32>;
//!     @group(0) @binding(1) var<storage, read_write> y: array<f32>;
//!     @compute @workgroup_size(4)
//!     fn main(@builtin(global_invocation_id) id: vec3u) { y[id.x] = x[id.x] * scale; }";
//! let toolchain = match Toolchain::find() {
//!     Ok(toolchain) => toolchain,
//!     Err(reason) => return Ok(println!("SKIPPED: {reason}")),
//! };
//! let cache = Cache::open("target/metal-sim".as_ref(), toolchain)?;
//! let library = Library::build(&cache, &[Kernel::wgsl("scale", text)], Build::default())?;
//! let kernel = library.kernel("scale").ok_or("it was built")?.clone();
//! let params = vec![2f32.to_bits()];
//! let launch = Launch { kernel, params, groups: [1, 1, 1], bindings: vec![(0, false), (1, true)] };
//! let mut memory = vec![1f32.to_le_bytes().repeat(4), vec![0; 16]];
//! Worker::new(&cache)?.run(&[launch], &mut memory, Order::Forward)?;
//! assert_eq!(memory[1], 2f32.to_le_bytes().repeat(4));
//! # Ok(())
//! # }
//! ```
//!
//! # What it finds
//!
//! Before anything runs: text that naga or the check refuses; more than 32 KiB of threadgroup
//! memory, 1,024 threads or 31 buffers; recursion; pointers without an address space.
//!
//! In every run: memory touched outside of a binding or a threadgroup variable (each ends at
//! memory that faults; with the index as it was, the [`Failure`] names the binding and the byte), a
//! barrier that part of a threadgroup reaches, a simdgroup matrix operation that part of a
//! simdgroup reaches, an integer division by zero, a loop without end. Threadgroup memory starts as
//! NaN unless the build is checked. A kernel that forgets a barrier, or relies on an order of
//! threads, gives other bits in another [`Order`].
//!
//! In [`Build::counting`] runs: races, between two threads of a threadgroup with no barrier for that
//! memory between them, and between threadgroups of one launch; and how much memory was loaded and
//! stored, in how many cache lines ([`Counts`]). The look is taken at what clang makes of the kernel
//! with `-O1`, as a GPU's compiler also removes and merges accesses. Vectors of 32 bytes and more
//! (`vec4<i64>`) are not seen.
//!
//! # What it does not show
//!
//! - Speed, registers, occupancy. Accuracy of a GPU's `exp` or `sin`: they are the host's.
//! - Flushed denormals, unless [`Worker::flush_denormals`]; fast math as Apple's compiler does it:
//!   [`Build::fast_math`] is clang's `-ffast-math`.
//! - Effects of weak memory: threads change only at barriers and simd operations.
//! - What Apple's compiler refuses and neither clang nor the lints do. Which lane holds which
//!   element of a simdgroup matrix is taken from published kernels, and products are summed in
//!   float, from the first to the last; neither was compared with a GPU.
//! - Out-of-bounds accesses to a thread's own arrays.
//!
//! # How it works
//!
//! naga's text is cut into tokens (`scan`), looked at (`lint`) and changed where C++ differs
//! (`rewrite`): attributes go, numbers become floats, `static_cast` of vectors becomes a function.
//! Kernels that the [`Cache`] does not have are compiled 32 to a file, each in its own namespace.
//! They run in a child process, compiled by the same clang from `src/runner`, which loads the
//! libraries, gets memory and launches through a pipe and ends at the first failure; the [`Worker`]
//! then starts another. A simd operation waits until all lanes of the simdgroup that have not
//! returned are there; if nothing else can run, it goes on with those that are. Counting builds use
//! the calls that clang's thread sanitizer puts before loads and stores, with functions of the
//! runner's own.

// The library's own files: what is simulated is what is shipped. A dependency on wootz would be one in
// a circle, which switches wootz's features on where tests want them off.
#[path = "../../wootz/src/gpu/apple7.rs"]
mod apple7;
mod clang;
mod cleaning;
mod library;
mod lint;
#[path = "../../wootz/src/gpu/msl.rs"]
mod msl;
mod report;
mod rewrite;
mod scan;
mod worker;

pub use apple7::{APPLE7, LaunchSize};
pub use clang::Toolchain;
pub use library::{Build, BuildError, Cache, Compiled, Kernel, Library, Source};
pub use msl::{Msl, MslBinding, MslLaunch, to_msl};
pub use report::{Counts, Failure, FailureKind, LaunchReport, Report};
pub use worker::{Launch, Order, Worker};
