//! Activation functions, with MLX's names and defaults. Each is a chain of elementwise operations,
//! which the evaluator runs as one kernel.

use crate::array::{Array, DType};
use crate::error::Result;
use crate::op::{Case, Entry};
use crate::ops::*;

/// Cases of those that models are made of.
pub(crate) fn activation_entries() -> Vec<Entry> {
    // Every array is read or written once.
    const MANY: usize = 4096;
    type Call = fn(&[Array]) -> Result<Array>;
    let entry = |name, arrays: usize, call: Call| {
        // Down to where next to nothing is let through.
        let case = |label: &str, shape: &[usize]| {
            Case::new(label, &vec![shape; arrays], move |x| Ok(vec![call(x)?])).range(-6.0..3.0)
        };
        let many = case("many", &[MANY]).moves((arrays + 1) * MANY, 1.1);
        Entry { name, cases: vec![case("", &[3, 5]), many] }
    };
    vec![
        entry("gelu", 1, |x| gelu(&x[0])),
        entry("gelu_approx", 1, |x| gelu_approx(&x[0])),
        entry("gelu_fast_approx", 1, |x| gelu_fast_approx(&x[0])),
        entry("geglu", 2, |x| geglu(&x[0], &x[1])),
        entry("geglu_approx", 2, |x| geglu_approx(&x[0], &x[1])),
        entry("log_sigmoid", 1, |x| log_sigmoid(&x[0])),
        entry("mish", 1, |x| mish(&x[0])),
        entry("relu", 1, |x| relu(&x[0])),
        entry("relu2", 1, |x| relu2(&x[0])),
        entry("silu", 1, |x| silu(&x[0])),
        entry("softcap", 1, |x| softcap(&x[0], 1.5)),
        entry("softplus", 1, |x| softplus(&x[0])),
        entry("swiglu", 2, |x| swiglu(&x[0], &x[1])),
    ]
}

/// Functions of one array, each with an example that runs.
macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident($x:ident $(, $argument:ident: $type:ty)*)
        { $example:literal => $expected:literal } = $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// ```
        /// use wootz::{Array, nn};
        /// let x = Array::new([-2.0f32, 0.0, 4.0])?;
        #[doc = concat!("let y = nn::", $example, "?.to_vec::<f32>()?;")]
        #[doc = concat!("let expected = ", $expected, ";")]
        /// assert!(y.iter().zip(expected).all(|(y, e): (&f32, f32)| (y - e).abs() < 1e-4), "{y:?}");
        /// # Ok::<(), wootz::Error>(())
        /// ```
        pub fn $name($x: &Array $(, $argument: $type)*) -> Result<Array> {
            $body
        }
    )*};
}

activations! {
    /// `max(0, x) + alpha · (e^(min(0, x) / alpha) - 1)`; MLX's default `alpha` is 1.
    celu(x, alpha: f64) { "celu(&x, 1.0)" => "[-0.86466, 0.0, 4.0]" } = {
        let below = subtract(exp(divide(minimum(x, 0.0)?, alpha)?)?, 1)?;
        add(maximum(x, 0.0)?, multiply(alpha, below)?)
    };
    /// `x` where it is positive, else `alpha · (e^x - 1)`; MLX's default `alpha` is 1.
    elu(x, alpha: f64) { "elu(&x, 1.0)" => "[-0.86466, 0.0, 4.0]" } = {
        where_(greater(x, 0)?, x, multiply(alpha, subtract(exp(x)?, 1)?)?)
    };
    /// `x · Φ(x)` with the normal distribution's Φ.
    gelu(x) { "gelu(&x)" => "[-0.0455, 0.0, 3.99987]" } = {
        rounded_once([x], |[x]| multiply(x, normal_cdf(x)?))
    };
    /// [`gelu`] by way of a hyperbolic tangent; off by less than 0.0005.
    gelu_approx(x) { "gelu_approx(&x)" => "[-0.0454, 0.0, 3.99993]" } = {
        rounded_once([x], |[x]| gelu_tanh(x))
    };
    /// [`gelu`] by way of a logistic function; off by less than 0.015.
    gelu_fast_approx(x) { "gelu_fast_approx(&x)" => "[-0.06434, 0.0, 3.99559]" } = {
        rounded_once([x], |[x]| multiply(x, sigmoid(&multiply(1.702, x)?)?))
    };
    /// `x` where its magnitude is above `lambd`, else 0; MLX's default is 0.5.
    hard_shrink(x, lambd: f64) { "hard_shrink(&x, 0.5)" => "[-2.0, 0.0, 4.0]" } = {
        where_(greater(abs(x)?, lambd)?, x, 0)
    };
    /// `x` kept between two bounds; MLX's defaults are -1 and 1.
    hard_tanh(x, min_val: f64, max_val: f64) { "hard_tanh(&x, -1.0, 1.0)" => "[-1.0, 0.0, 1.0]" } = {
        minimum(maximum(x, min_val)?, max_val)
    };
    /// `x · min(max(x + 3, 0), 6) / 6`.
    hardswish(x) { "hardswish(&x)" => "[-0.33333, 0.0, 4.0]" } = {
        divide(multiply(x, minimum(maximum(add(x, 3)?, 0)?, 6)?)?, 6)
    };
    /// The larger of `negative_slope · x` and `x`; MLX's default is 0.01.
    leaky_relu(x, negative_slope: f64) { "leaky_relu(&x, 0.01)" => "[-0.02, 0.0, 4.0]" } = {
        maximum(multiply(negative_slope, x)?, x)
    };
    /// The logarithm of the logistic function, without underflow.
    log_sigmoid(x) { "log_sigmoid(&x)" => "[-2.12693, -0.69315, -0.01815]" } = {
        negative(softplus(&negative(x)?)?)
    };
    /// `x · tanh(softplus(x))`.
    mish(x) { "mish(&x)" => "[-0.2525, 0.0, 3.99741]" } = {
        rounded_once([x], |[x]| multiply(x, tanh(&softplus(x)?)?))
    };
    /// The larger of `x` and 0.
    relu(x) { "relu(&x)" => "[0.0, 0.0, 4.0]" } = maximum(x, 0);
    /// The square of [`relu`].
    relu2(x) { "relu2(&x)" => "[0.0, 0.0, 16.0]" } = square(maximum(x, 0)?);
    /// `x` kept between 0 and 6.
    relu6(x) { "relu6(&x)" => "[0.0, 0.0, 4.0]" } = minimum(maximum(x, 0)?, 6.0);
    /// [`elu`] with the slopes that keep activations normalised.
    selu(x) { "selu(&x)" => "[-1.52013, 0.0, 4.2028]" } = multiply(elu(x, 1.67326)?, 1.0507);
    /// `x · sigmoid(x)`, also called swish.
    silu(x) { "silu(&x)" => "[-0.23841, 0.0, 3.92806]" } = {
        rounded_once([x], |[x]| multiply(x, sigmoid(x)?))
    };
    /// `log(1 + e^x)`, without overflow.
    softplus(x) { "softplus(&x)" => "[0.12693, 0.69315, 4.01815]" } = logaddexp(x, 0);
    /// `cap · tanh(x / cap)`: values stay below `cap`, small ones as they are.
    softcap(x, cap: f64) { "softcap(&x, 2.0)" => "[-1.52319, 0.0, 1.92806]" } = {
        rounded_once([x], |[x]| multiply(tanh(&divide(x, cap)?)?, cap))
    };
    /// [`silu`] of a gate `x`, times `up`: the gated layers of llama and others.
    swiglu(x, up: &Array) { "swiglu(&x, &x)" => "[0.47681, 0.0, 15.71224]" } = {
        rounded_once([x, up], |[x, up]| multiply(multiply(x, sigmoid(x)?)?, up))
    };
    /// [`gelu`] of a gate `x`, times `up`.
    geglu(x, up: &Array) { "geglu(&x, &x)" => "[0.091, 0.0, 15.99949]" } = {
        rounded_once([x, up], |[x, up]| multiply(multiply(x, normal_cdf(x)?)?, up))
    };
    /// [`gelu_approx`] of a gate `x`, times `up`: the gated layers of gemma.
    geglu_approx(x, up: &Array) { "geglu_approx(&x, &x)" => "[0.0908, 0.0, 15.99972]" } = {
        rounded_once([x, up], |[x, up]| multiply(gelu_tanh(x)?, up))
    };
    /// `x` moved towards 0 by `lambd`, and 0 where its magnitude is less; MLX's default is 0.5.
    softshrink(x, lambd: f64) { "softshrink(&x, 0.5)" => "[-1.5, 0.0, 3.5]" } = {
        let moved = subtract(x, multiply(sign(x)?, lambd)?)?;
        where_(greater(abs(x)?, lambd)?, moved, 0)
    };
    /// `x / (1 + |x|)`.
    softsign(x) { "softsign(&x)" => "[-0.66667, 0.0, 0.8]" } = divide(x, add(1, abs(x)?)?);
    /// Probabilities: `e^x` divided by its sum along `axis`.
    softmax(x, axis: i64) { "softmax(&x, -1)" => "[0.00243, 0.01794, 0.97962]" } = {
        crate::ops::softmax(x, axis)
    };
    /// [`softmax`] of `-x`.
    softmin(x, axis: i64) { "softmin(&x, -1)" => "[0.87888, 0.11894, 0.00218]" } = {
        crate::ops::softmax(&negative(x)?, axis)
    };
    /// The logarithm of [`softmax`], without underflow.
    log_softmax(x, axis: i64) { "log_softmax(&x, -1)" => "[-6.02059, -4.02059, -0.02059]" } = {
        // Taken off first, because a large maximum would swallow the logarithm of the sum.
        let x = subtract(x, stop_gradient(max(x, axis, true)?)?)?;
        subtract(&x, logsumexp(&x, axis, true)?)
    };
    /// The first half along `axis` times the logistic function of the second half.
    glu(x, axis: i64) { "glu(&x.index(1..)?, -1)" => "[0.0]" } = {
        let halves = split(x, 2, axis)?;
        multiply(&halves[0], sigmoid(&halves[1])?)
    };
    /// `max(0, x) + alpha · min(0, x)` with an array of slopes.
    prelu(x, alpha: &Array) { "prelu(&x, &Array::new([0.25f32])?)" => "[-0.5, 0.0, 4.0]" } = {
        add(maximum(0, x)?, multiply(alpha, minimum(0, x)?)?)
    };
}

/// A formula whose steps are computed in single precision for the narrow floats, and its gradients too: rounded
/// between steps, small results would have few right digits.
fn rounded_once<const N: usize>(
    x: [&Array; N],
    formula: impl Fn([&Array; N]) -> Result<Array>,
) -> Result<Array> {
    let dtype = x.iter().map(|x| x.dtype()).reduce(DType::promote).unwrap_or(DType::F32).to_float();
    if !matches!(dtype, DType::F16 | DType::BF16) {
        return formula(x);
    }
    let mut wide = x.map(Array::clone);
    for x in &mut wide {
        *x = astype(&*x, DType::F32)?;
    }
    astype(&formula(wide.each_ref())?, dtype)
}

/// `x / 2 · (1 + tanh(…))`.
fn gelu_tanh(x: &Array) -> Result<Array> {
    let cubic = multiply(0.044715, multiply(square(x)?, x)?)?;
    let inner = multiply((2.0 / std::f64::consts::PI).sqrt(), add(x, cubic)?)?;
    if x.dtype().is_complex() {
        return multiply(multiply(0.5, x)?, add(1, tanh(&inner)?)?);
    }
    // Half of one and a hyperbolic tangent, without their cancellation below 0.
    multiply(x, sigmoid(&multiply(2, inner)?)?)
}

/// 1 (`int32`) where `x` is at least `threshold`, else 0; MLX's default threshold is 0.
///
/// ```
/// use wootz::{Array, nn};
/// let x = Array::new([-2.0f32, 0.0, 4.0])?;
/// assert_eq!(nn::step(&x, 0.0)?.to_vec::<i32>()?, [0, 1, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn step(x: &Array, threshold: f64) -> Result<Array> {
    where_(greater_equal(x, threshold)?, 1, 0)
}

/// The logistic function, `1 / (1 + e^-x)`.
///
/// ```
/// use wootz::{Array, nn};
/// assert_eq!(nn::sigmoid(&Array::new([0.0f32])?)?.item::<f32>()?, 0.5);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn sigmoid(x: &Array) -> Result<Array> {
    crate::ops::sigmoid(x)
}

/// The hyperbolic tangent.
///
/// ```
/// use wootz::{Array, nn};
/// assert_eq!(nn::tanh(&Array::new([0.0f32])?)?.item::<f32>()?, 0.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn tanh(x: &Array) -> Result<Array> {
    crate::ops::tanh(x)
}
