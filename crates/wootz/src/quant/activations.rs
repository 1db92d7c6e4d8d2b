//! How activations are rounded for products with quantized weights on the CPU: a choice of the program's.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// How the CPU rounds activations before it multiplies them with quantized weights. A product takes
/// what is chosen when it is called ([`set_activations`], [`with_activations`]), and keeps it: a compiled function
/// replays what it was recorded with.
///
/// Integers are multiplied with weights of MLX's `affine`, `mxfp4` and `nvfp4`, and of GGUF's Q4_0, Q4_1, Q5_0, Q5_1, Q8_0,
/// Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4, in products with their rows (`transpose`) and activations of up to 32 bits.
/// Weights of `mxfp8`, Q8_1, Q8_K, the other IQ formats, TQ1_0, TQ2_0, NVFP4 and Q1_0 are decoded, and multiplied as
/// floats at either level, as are all on a GPU. So is a whole call if one row of its activations does not suit: one with
/// an infinity, NaN or a magnitude beyond 1e30, or with nothing but magnitudes of up to 1e-20.
///
/// ```
/// use wootz::quant::{Activations, activations};
/// assert_eq!(activations(), Activations::Exact);
/// assert_eq!("fast".parse::<Activations>()?, Activations::Fast);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activations {
    /// To 16 bits, with a scale for every 32, of which those that stand out are taken: results differ from those of floats by
    /// less than a ten thousandth of the largest, also where one activation is a hundred times the rest and in rows of
    /// few weights. Matrices of up to 65,536 weights are multiplied as floats, and so are
    /// activations in `float32` with weights whose scales are `float32`, or a byte (mxfp4, mxfp8, nvfp4): whoever keeps
    /// activations so wants their digits.
    #[default]
    Exact,
    /// To 8 bits, with a scale for every 32, as llama.cpp does: results differ by about a hundredth of
    /// the largest.
    Fast,
}

/// Whether the process chose [`Activations::Fast`]. A setting, on which no order depends.
static FAST: AtomicBool = AtomicBool::new(false);

thread_local! {
    static SCOPED: Cell<Option<Activations>> = const { Cell::new(None) };
}

/// What products that are called now take.
pub fn activations() -> Activations {
    let set = if FAST.load(Ordering::Relaxed) { Activations::Fast } else { Activations::Exact };
    SCOPED.get().unwrap_or(set)
}

/// Chooses for the whole process, beside [`with_activations`].
pub fn set_activations(level: Activations) {
    FAST.store(level == Activations::Fast, Ordering::Relaxed);
}

/// Calls a function, whose products with quantized weights take this level. It holds for the calling
/// thread; one inside another comes first.
///
/// ```
/// use wootz::quant::{Activations, Format, with_activations};
/// use wootz::{Array, DType, quantize, quantized_matmul};
/// let w = quantize(&Array::ones(&[3, 64], DType::F32)?, Format::Q8_0)?;
/// let x = Array::ones(&[2, 64], DType::F32)?;
/// let y = with_activations(Activations::Fast, || quantized_matmul(&x, &w, true))?;
/// assert!((y.sum(())?.item::<f32>()? - 384.0).abs() < 4.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn with_activations<R>(level: Activations, f: impl FnOnce() -> R) -> R {
    /// Puts back what was before, also after a panic.
    struct Restore(Option<Activations>);
    impl Drop for Restore {
        fn drop(&mut self) {
            SCOPED.set(self.0);
        }
    }
    let _restore = Restore(SCOPED.replace(Some(level)));
    f()
}

impl fmt::Display for Activations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Activations::Exact => "exact",
            Activations::Fast => "fast",
        })
    }
}

impl FromStr for Activations {
    type Err = Error;

    fn from_str(name: &str) -> Result<Activations> {
        match name {
            "exact" => Ok(Activations::Exact),
            "fast" => Ok(Activations::Fast),
            _ => Err(Error::argument("quantized_matmul", "activations", "exact or fast", name)),
        }
    }
}
