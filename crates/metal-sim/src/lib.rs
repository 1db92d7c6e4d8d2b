//! Runs kernels as a Metal GPU would, on a machine without one.
//!
//! A kernel's WGSL goes through naga with the options and the buffer numbering of wgpu's Metal
//! backend ([`to_msl`]). The resulting MSL is compiled twice by clang:
//!
//! - to **check** it, as C++ for OpenCL, where address spaces are real, after lints for what clang
//!   accepts and Apple's compiler does not;
//! - to **run** it, as C++20 with headers that stand in for Metal's.
mod clang;
mod library;
mod lint;
mod report;
mod rewrite;
mod scan;
mod translate;
mod worker;

pub use clang::Toolchain;
pub use library::{Build, BuildError, Cache, Compiled, Kernel, Library, Source};
pub use report::{Counts, Failure, FailureKind, LaunchReport, Report};
pub use translate::{
    Binding, LANGUAGE, MAX_BUFFERS, MAX_GROUPS, MAX_THREADGROUP_BYTES, MAX_THREADS, Translated,
    to_msl,
};
pub use worker::{Launch, Order, Worker};
