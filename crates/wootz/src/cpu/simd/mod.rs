//! Vector code: plain loops compiled for the processor at hand, and the scalar functions in them.

pub(crate) mod math;
mod numbers;
pub(crate) mod rows;

pub(crate) use numbers::{Integer, Real};

/// Runs a loop compiled for the best instruction set the processor has. Everything `body` calls
/// must be inlined into it, or it is compiled for the baseline only.
#[inline(always)]
pub(crate) fn dispatch<R>(body: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(body)
}
