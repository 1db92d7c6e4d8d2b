//! Function transforms: they walk the graph that a function built.

mod batch;
mod custom;
mod graph;
mod jvp;
mod placeholder;
mod trace;
mod vjp;
mod vmap;

pub use batch::Batch;
pub use custom::{CustomFunction, checkpoint, custom, depends};
pub(crate) use graph::settle_constants;
pub use jvp::jvp;
pub(crate) use jvp::transposed;
pub(crate) use placeholder::placeholder;
pub(crate) use trace::{Marks, Trace};
pub(crate) use vjp::{composed_vjp, value_and_grad_where_float};
pub use vjp::{grad, value_and_grad, value_and_grad_aux, vjp};
pub use vmap::{MapAxes, vmap};
