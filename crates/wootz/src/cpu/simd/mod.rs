//! Vector code: plain loops compiled for the processor at hand, and the scalar functions in them.

pub(crate) mod math;
mod numbers;
pub(crate) mod rows;

pub(crate) use numbers::{Integer, Real};

/// Runs a loop compiled for the best instruction set the processor has. What its method calls must
/// be inlined into it, or it is compiled for the baseline only. Development builds do not vectorise:
/// there, one version is compiled instead of one per instruction set. The arithmetic is the same.
#[inline(always)]
pub(crate) fn run<L: pulp::WithSimd>(body: L) -> L::Output {
    #[cfg(debug_assertions)]
    return body.with_simd(pulp::Scalar::new());
    #[cfg(not(debug_assertions))]
    pulp::Arch::new().dispatch(body)
}

/// [`run`] for a small closure: a large one may not be inlined, and then is not vectorised.
#[inline(always)]
pub(crate) fn dispatch<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(debug_assertions)]
    return body();
    #[cfg(not(debug_assertions))]
    pulp::Arch::new().dispatch(body)
}
