//! Vector code: plain loops compiled for the processor at hand, and the scalar functions in them.

#[allow(unsafe_code)]
mod ahead;
mod complex;
pub(crate) mod math;
mod numbers;
pub(crate) mod rows;
#[allow(unsafe_code)]
pub(crate) mod stream;

pub(crate) use ahead::Ahead;
pub(crate) use complex::Complex;
pub(crate) use numbers::{Integer, Real, as_bfloat16, as_float16};

/// Runs a loop compiled for the best instruction set the processor has. What its method calls must
/// be inlined into it, or it is compiled for the baseline only. Development builds do not vectorise:
/// there, one version is compiled instead of one per instruction set. The arithmetic is the same.
#[inline(always)]
pub(crate) fn run<L: pulp::WithSimd>(body: L) -> L::Output {
    #[cfg(debug_assertions)]
    return baseline(body);
    #[cfg(not(debug_assertions))]
    arch().dispatch(body)
}

/// What the processor has; asking anew takes as long as a short loop.
#[cfg(not(debug_assertions))]
#[inline(always)]
fn arch() -> pulp::Arch {
    static ARCH: std::sync::OnceLock<pulp::Arch> = std::sync::OnceLock::new();
    *ARCH.get_or_init(pulp::Arch::new)
}

/// The types a tile is computed in, and how their loops are compiled: those of 64 bits once, for the
/// baseline, because every instruction set doubles what is compiled and few programs use them.
pub(crate) trait Vectorised {
    /// Runs a loop over values of this type.
    fn run<L: pulp::WithSimd>(body: L) -> L::Output;
}

macro_rules! vectorised {
    ($($type:ty => $run:expr),*) => {$(
        impl Vectorised for $type {
            #[inline(always)]
            fn run<L: pulp::WithSimd>(body: L) -> L::Output {
                ($run)(body)
            }
        }
    )*};
}

vectorised!(f32 => run, u32 => run, i32 => run, f64 => baseline, u64 => baseline, i64 => baseline,
    num_complex::Complex32 => baseline);

#[inline(always)]
fn baseline<L: pulp::WithSimd>(body: L) -> L::Output {
    body.with_simd(pulp::Scalar::new())
}

/// [`run`] for a small closure: a large one may not be inlined, and then is not vectorised.
#[inline(always)]
pub(crate) fn dispatch<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(debug_assertions)]
    return body();
    #[cfg(not(debug_assertions))]
    arch().dispatch(body)
}
