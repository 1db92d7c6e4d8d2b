//! wootz: MLX for Rust. Lazy arrays with complete gradients, on the CPU and on GPUs.
//!
//! ```
//! use wootz::{Array, grad};
//!
//! // Fit y = 2x by a few steps of gradient descent.
//! let x = Array::new([1.0f32, 2.0, 3.0])?;
//! let y = &x * 2.0;
//! let mut w = Array::scalar(0.0, wootz::DType::F32)?;
//! let loss = grad(|w: &[Array]| (&w[0] * &x - &y).square()?.sum(()));
//! for _ in 0..20 {
//!     w = &w - &loss(&[w.clone()])?[0] * 0.03;
//! }
//! assert!((w.item::<f32>()? - 2.0).abs() < 1e-3);
//! # Ok::<(), wootz::Error>(())
//! ```
//!
//! # Map
//! - [`Array`]: a handle to a node of the graph; [`DType`], [`Device`].
//! - [`ops`]: every operation, re-exported here under MLX's names; [`linalg`], [`random`], [`fast`]:
//!   those that MLX has in modules.
//! - [`grad`], [`value_and_grad`], [`vjp`], [`jvp`], [`vmap`], [`checkpoint`], [`custom`],
//!   [`compile`]: function transforms.
//! - [`Tree`]: structures of arrays; [`nn`]: layers and losses; [`optim`]: optimizers.
//! - [`eval`](eval()), [`async_eval`]: computing arrays; values are computed on demand anyway.
//! - [`Encoder`]: the explicit level, operations into preallocated memory.
//! - [`op`]: what an operation is, to write your own.

#![deny(unsafe_code)]
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod array;
mod autograd;
mod buffer;
mod cpu;
mod defaults;
mod device;
mod encoder;
mod error;
mod eval;
pub mod fast;
pub mod fft;
#[cfg(feature = "gpu")]
#[allow(unsafe_code)]
pub mod gpu;
pub mod io;
pub mod nn;
pub mod op;
pub mod ops;
pub mod optim;
pub mod quant;
pub mod random;
pub mod sample;
#[doc(hidden)]
pub mod testing;
pub mod tree;

// The derive names this crate from outside and from inside alike.
extern crate self as wootz;

pub use array::{
    Arg, Array, AsArray, Class, DType, DTypeCategory, DTypeOrCategory, Element, FloatInfo,
    IntegerInfo, Layout, Meta, Nested, Scalar, Shape, Strides, asarray, can_cast, finfo, iinfo,
    isdtype, issubdtype, result_type,
};
pub use autograd::{
    CustomFunction, MapAxes, checkpoint, custom, depends, grad, jvp, value_and_grad,
    value_and_grad_aux, vjp, vmap,
};
pub use cpu::{CpuCall, Strided, set_threads, threads};
pub use defaults::{
    DeviceInfo, Stream, clear_cache, default_device, default_stream, device_info,
    get_active_memory, get_cache_memory, get_memory_limit, get_peak_memory, new_stream,
    reset_peak_memory, set_cache_limit, set_default_device, set_memory_limit, set_wired_limit,
    stream,
};
pub use device::{Device, Memory, with_device};
pub use encoder::{Encoder, Submission, Workspace};
pub use error::{Error, Result};
pub use eval::{
    CompileStats, Compiled, PlanSummary, async_eval, compile, disable_compile, enable_compile,
    eval, synchronize,
};
pub use num_complex::Complex32;
pub use ops::*;
pub use tree::{
    CompiledOf, Parameter, Tree, checkpoint_of, compile_of, grad_of, jvp_of, tree_flatten,
    tree_map, tree_map_with_path, tree_merge, tree_reduce, tree_unflatten, value_and_grad_aux_of,
    value_and_grad_of, vmap_of,
};
pub use wootz_macros::Tree;

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The guide's chapters, whose snippets are tests. They are not part of the package, and only tests see
/// them.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/arrays.md")]
    struct Arrays;
    #[doc = include_str!("../../../docs/guide/devices.md")]
    struct Devices;
    #[doc = include_str!("../../../docs/guide/files.md")]
    struct Files;
    #[doc = include_str!("../../../docs/guide/indexing.md")]
    struct Indexing;
    #[doc = include_str!("../../../docs/guide/random.md")]
    struct Random;
    #[doc = include_str!("../../../docs/guide/transforms.md")]
    struct Transforms;
}
