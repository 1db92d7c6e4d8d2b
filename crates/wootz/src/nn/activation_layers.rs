//! Activation functions as modules, with MLX's names and defaults.

use super::{Module, activations as of};
use crate::array::Array;
use crate::error::Result;

/// Modules without parameters and without numbers, each with an example that runs.
macro_rules! units {
    ($($name:ident = $function:ident($($argument:expr),*) => $expected:literal;)*) => {$(
        #[doc = concat!("[`", stringify!($function), "`](super::", stringify!($function), ") as a module.")]
        ///
        /// ```
        #[doc = concat!("use wootz::{Array, nn::{Module, ", stringify!($name), "}};")]
        /// let x = Array::new([-2.0f32, 0.0, 4.0])?;
        #[doc = concat!("// nn.", stringify!($name), "()(x)")]
        #[doc = concat!("let y = ", stringify!($name), ".forward(&x)?.to_vec::<f32>()?;")]
        #[doc = concat!("let expected = ", $expected, ";")]
        /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-4), "{y:?}");
        /// # Ok::<(), wootz::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, wootz_macros::Tree)]
        pub struct $name;

        impl Module for $name {
            fn forward(&self, x: &Array) -> Result<Array> {
                of::$function(x, $($argument),*)
            }
        }
    )*};
}

units! {
    HardTanh = hard_tanh(-1.0, 1.0) => "[-1.0, 0.0, 1.0]";
    Hardswish = hardswish() => "[-0.33333, 0.0, 4.0]";
    LogSigmoid = log_sigmoid() => "[-2.12693, -0.69315, -0.01815]";
    LogSoftmax = log_softmax(-1) => "[-6.02059, -4.02059, -0.02059]";
    Mish = mish() => "[-0.2525, 0.0, 3.99741]";
    ReLU = relu() => "[0.0, 0.0, 4.0]";
    ReLU2 = relu2() => "[0.0, 0.0, 16.0]";
    ReLU6 = relu6() => "[0.0, 0.0, 4.0]";
    SELU = selu() => "[-1.52013, 0.0, 4.2028]";
    SiLU = silu() => "[-0.23841, 0.0, 3.92806]";
    Sigmoid = sigmoid() => "[0.1192, 0.5, 0.98201]";
    Softmax = softmax(-1) => "[0.00243, 0.01794, 0.97962]";
    Softmin = softmin(-1) => "[0.87888, 0.11894, 0.00218]";
    Softplus = softplus() => "[0.12693, 0.69315, 4.01815]";
    Softsign = softsign() => "[-0.66667, 0.0, 0.8]";
    Tanh = tanh() => "[-0.96403, 0.0, 0.99933]";
}

/// Modules with one number, whose default is MLX's, each with an example that runs.
macro_rules! with_number {
    ($($name:ident { $(#[$doc:meta])* $field:ident: $type:ty = $default:literal }
        = $function:ident => $expected:literal;)*) => {$(
        #[doc = concat!("[`", stringify!($function), "`](super::", stringify!($function), ") as a module.")]
        ///
        /// ```
        #[doc = concat!("use wootz::{Array, nn::{Module, ", stringify!($name), "}};")]
        /// let x = Array::new([-2.0f32, 4.0])?;
        #[doc = concat!("// nn.", stringify!($name), "()(x)")]
        #[doc = concat!("let y = ", stringify!($name), "::default().forward(&x)?.astype(wootz::DType::F32)?;")]
        /// let y = y.to_vec::<f32>()?;
        #[doc = concat!("let expected = ", $expected, ";")]
        /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-4), "{y:?}");
        /// # Ok::<(), wootz::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, wootz_macros::Tree)]
        pub struct $name {
            $(#[$doc])*
            pub $field: $type,
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $field: $default }
            }
        }

        impl Module for $name {
            fn forward(&self, x: &Array) -> Result<Array> {
                of::$function(x, self.$field)
            }
        }
    )*};
}

with_number! {
    CELU {
        /// How deep it goes below zero.
        alpha: f64 = 1.0
    } = celu => "[-0.86466, 4.0]";
    ELU {
        /// How deep it goes below zero.
        alpha: f64 = 1.0
    } = elu => "[-0.86466, 4.0]";
    GLU {
        /// The axis that is halved.
        axis: i64 = -1
    } = glu => "[-1.96403]";
    HardShrink {
        /// The magnitude up to which elements become zero.
        lambd: f64 = 0.5
    } = hard_shrink => "[-2.0, 4.0]";
    LeakyReLU {
        /// Of negative elements.
        negative_slope: f64 = 0.01
    } = leaky_relu => "[-0.02, 4.0]";
    Softshrink {
        /// How far elements move towards zero.
        lambd: f64 = 0.5
    } = softshrink => "[-1.5, 3.5]";
    Step {
        /// The least element that becomes 1.
        threshold: f64 = 0.0
    } = step => "[0.0, 1.0]";
}

/// [`gelu`](super::gelu) as a module, or one of its approximations.
///
/// ```
/// use wootz::{Array, nn::{GELU, Module}};
/// let x = Array::new([1.0f32])?;
/// // nn.GELU()(x), nn.GELU(approx="fast")(x)
/// assert!((GELU::default().forward(&x)?.item::<f32>()? - 0.84134).abs() < 1e-5);
/// assert!((GELU::Fast.forward(&x)?.item::<f32>()? - 0.84579).abs() < 1e-5);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, wootz_macros::Tree)]
pub enum GELU {
    /// [`gelu`](super::gelu) itself: MLX's `approx="none"`.
    #[default]
    None,
    /// [`gelu_approx`](super::gelu_approx): MLX's `approx="precise"` and `"tanh"`.
    Precise,
    /// [`gelu_fast_approx`](super::gelu_fast_approx): MLX's `approx="fast"`.
    Fast,
}

impl Module for GELU {
    fn forward(&self, x: &Array) -> Result<Array> {
        match self {
            GELU::None => of::gelu(x),
            GELU::Precise => of::gelu_approx(x),
            GELU::Fast => of::gelu_fast_approx(x),
        }
    }
}
