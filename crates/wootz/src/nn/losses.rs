//! Loss functions, with MLX's names and formulas. Arguments that are optional in MLX are all
//! given here; MLX's defaults are in the descriptions.

use crate::array::Array;
use crate::error::{Error, Result};
use crate::ops::*;

/// What becomes of the losses of the single elements or rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// They stay.
    #[default]
    None,
    /// Their mean.
    Mean,
    /// Their sum.
    Sum,
}

impl Reduction {
    fn apply(self, loss: Array) -> Result<Array> {
        match self {
            Reduction::None => Ok(loss),
            Reduction::Mean => mean(&loss, (), false),
            Reduction::Sum => sum(&loss, (), false),
        }
    }
}

/// Cross entropy of unnormalised logits. `targets` are class numbers, with the shape of the logits
/// without `axis`, or probabilities of the same shape as the logits. `weights` belong to the
/// targets; defaults in MLX: none, axis -1, no smoothing, [`Reduction::None`].
///
/// Class numbers out of range are an error, also negative ones. Padding has a class of the range and the weight 0, and
/// counts in the mean; [`cross_entropy_with`] ignores labels such as -100, or rows by a mask, whatever they hold.
///
/// ```
/// use wootz::{Array, nn::losses::{Reduction, cross_entropy}};
/// let logits = Array::new([[2.0f32, -1.0], [-1.0, 2.0]])?;
/// let targets = Array::new([0, 1])?;
/// let loss = cross_entropy(&logits, &targets, None, -1, 0.0, Reduction::Mean)?;
/// assert!((loss.item::<f32>()? - 0.0485873).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn cross_entropy(
    logits: &Array,
    targets: &Array,
    weights: Option<&Array>,
    axis: i64,
    label_smoothing: f64,
    reduction: Reduction,
) -> Result<Array> {
    const OP: &str = "cross_entropy";
    if !(0.0..1.0).contains(&label_smoothing) {
        return Err(Error::argument(OP, "label_smoothing", "a number of [0, 1)", label_smoothing));
    }
    let along = crate::array::normalize_axis(OP, axis, logits.rank())?;
    let probabilities = targets.rank() == logits.rank();
    let mut expected = logits.shape().to_vec();
    if !probabilities {
        expected.remove(along);
    }
    if targets.shape() != expected {
        return Err(Error::shape(OP, "targets", format!("{expected:?}"), targets.shape()));
    }
    let classes = !probabilities && targets.dtype().is_integer();
    if classes && logits.dtype().is_float() {
        let options = CrossEntropyOptions { label_smoothing, ..Default::default() };
        let rows = moveaxis(logits, along as i64, -1)?;
        let loss = astype(&cross_entropy_with(&rows, targets, &options)?, logits.dtype())?;
        return reduction.apply(weighted(OP, loss, weights)?);
    }
    let logits = subtract(logits, stop_gradient(max(logits, axis, true)?)?)?;
    let score = match probabilities {
        true => sum(&multiply(&logits, targets)?, axis, false)?,
        false => chosen(&logits, targets, axis)?,
    };
    let total = logsumexp(&logits, axis, false)?;
    let loss = if label_smoothing > 0.0 {
        let smoothed = multiply(negative(mean(&logits, axis, false)?)?, label_smoothing)?;
        add(subtract(&total, multiply(1.0 - label_smoothing, score)?)?, smoothed)?
    } else {
        subtract(&total, score)?
    };
    reduction.apply(weighted(OP, loss, weights)?)
}

/// Cross entropy of two classes. `inputs` are logits, or probabilities if not `with_logits`, whose
/// logarithms are kept above -100. Defaults in MLX: no weights, with logits, [`Reduction::Mean`].
///
/// ```
/// use wootz::{Array, nn::losses::{Reduction, binary_cross_entropy}};
/// let logits = Array::new([0.105361f32, 0.223144, 1.20397, 0.916291])?;
/// let targets = Array::new([0, 0, 1, 1])?;
/// let loss = binary_cross_entropy(&logits, &targets, None, true, Reduction::Mean)?;
/// assert!((loss.item::<f32>()? - 0.539245).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn binary_cross_entropy(
    inputs: &Array,
    targets: &Array,
    weights: Option<&Array>,
    with_logits: bool,
    reduction: Reduction,
) -> Result<Array> {
    const OP: &str = "binary_cross_entropy";
    same_shape(OP, inputs, &[("targets", targets)])?;
    let loss = if with_logits {
        subtract(logaddexp(0.0, inputs)?, multiply(inputs, targets)?)?
    } else {
        let log_of_one = maximum(log(inputs)?, -100)?;
        let log_of_zero = maximum(log(subtract(1, inputs)?)?, -100)?;
        let ones = multiply(targets, log_of_one)?;
        negative(add(ones, multiply(subtract(1, targets)?, log_of_zero)?)?)?
    };
    reduction.apply(weighted(OP, loss, weights)?)
}

/// Losses of two arrays of one shape, each with an example that runs.
macro_rules! of_pairs {
    ($($(#[$doc:meta])* $name:ident($a:ident, $b:ident) = $expected:literal, $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use wootz::{Array, nn::losses::{Reduction, ", stringify!($name), "}};")]
        /// let (a, b) = (Array::new([1.0f32, 2.0])?, Array::new([1.0f32, 4.0])?);
        #[doc = concat!("let loss = ", stringify!($name), "(&a, &b, Reduction::Mean)?.item::<f32>()?;")]
        #[doc = concat!("assert!((loss - ", $expected, ").abs() < 1e-5, \"{loss}\");")]
        /// # Ok::<(), wootz::Error>(())
        /// ```
        pub fn $name($a: &Array, $b: &Array, reduction: Reduction) -> Result<Array> {
            reduction.apply($body)
        }
    )*};
}

of_pairs! {
    /// Magnitudes of the differences. MLX's default is [`Reduction::Mean`].
    l1_loss(predictions, targets) = 1.0, {
        same_shape("l1_loss", predictions, &[("targets", targets)])?;
        abs(subtract(predictions, targets)?)?
    };
    /// Squares of the differences. MLX's default is [`Reduction::Mean`].
    mse_loss(predictions, targets) = 2.0, {
        same_shape("mse_loss", predictions, &[("targets", targets)])?;
        square(subtract(predictions, targets)?)?
    };
    /// `max(1 - inputs · targets, 0)`. MLX's default is [`Reduction::None`].
    hinge_loss(inputs, targets) = 0.0, maximum(subtract(1, multiply(inputs, targets)?)?, 0)?;
    /// The logarithm of the hyperbolic cosine of the differences. MLX's default is
    /// [`Reduction::None`].
    log_cosh_loss(inputs, targets) = 0.662501, {
        let errors = subtract(inputs, targets)?;
        subtract(logaddexp(&errors, negative(&errors)?)?, std::f64::consts::LN_2)?
    };
}

/// `-inputs` at the class numbers `targets`, for logarithms of probabilities. Defaults in MLX:
/// axis -1, [`Reduction::None`].
///
/// ```
/// use wootz::{Array, nn::losses::{Reduction, nll_loss}};
/// let log_probabilities = Array::new([[-0.1f32, -2.0], [-3.0, -0.5]])?;
/// let loss = nll_loss(&log_probabilities, &Array::new([0, 0])?, -1, Reduction::Sum)?;
/// assert!((loss.item::<f32>()? - 3.1).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn nll_loss(inputs: &Array, targets: &Array, axis: i64, reduction: Reduction) -> Result<Array> {
    reduction.apply(negative(chosen(inputs, targets, axis)?)?)
}

/// The negative logarithm of the normal density of `targets` with means `inputs` and variances
/// `vars`, which are kept above `eps`; `full` adds the constant. Defaults in MLX: not full, 1e-6,
/// [`Reduction::Mean`].
///
/// ```
/// use wootz::{Array, nn::losses::{Reduction, gaussian_nll_loss}};
/// let (mean, target) = (Array::new([1.0f32])?, Array::new([3.0f32])?);
/// let variance = Array::new([2.0f32])?;
/// let loss = gaussian_nll_loss(&mean, &target, &variance, false, 1e-6, Reduction::Mean)?;
/// assert!((loss.item::<f32>()? - 1.346574).abs() < 1e-5);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn gaussian_nll_loss(
    inputs: &Array,
    targets: &Array,
    vars: &Array,
    full: bool,
    eps: f64,
    reduction: Reduction,
) -> Result<Array> {
    same_shape("gaussian_nll_loss", inputs, &[("targets", targets), ("vars", vars)])?;
    let vars = maximum(vars, eps)?;
    let distance = divide(square(subtract(targets, inputs)?)?, &vars)?;
    let mut loss = multiply(0.5, add(log(&vars)?, distance)?)?;
    if full {
        loss = add(loss, 0.5 * (2.0 * std::f64::consts::PI).ln())?;
    }
    reduction.apply(loss)
}

/// The Kullback-Leibler divergence of the distribution with logarithms `targets` from that with
/// logarithms `inputs`. Defaults in MLX: axis -1, [`Reduction::None`].
///
/// ```
/// use wootz::{Array, nn::losses::{Reduction, kl_div_loss}};
/// let p = Array::new([0.5f32, 0.5])?.log()?;
/// let q = Array::new([0.25f32, 0.75])?.log()?;
/// let loss = kl_div_loss(&q, &p, -1, Reduction::None)?;
/// assert!((loss.item::<f32>()? - 0.143841).abs() < 1e-5);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn kl_div_loss(
    inputs: &Array,
    targets: &Array,
    axis: i64,
    reduction: Reduction,
) -> Result<Array> {
    let terms = multiply(exp(targets)?, subtract(targets, inputs)?)?;
    reduction.apply(sum(&terms, axis, false)?)
}

/// Squared differences below `beta`, magnitudes above. Defaults in MLX: 1, [`Reduction::Mean`].
///
/// ```
/// use wootz::{Array, nn::losses::{Reduction, smooth_l1_loss}};
/// let (a, b) = (Array::new([1.0f32, 2.0])?, Array::new([1.5f32, 4.0])?);
/// let loss = smooth_l1_loss(&a, &b, 1.0, Reduction::None)?;
/// assert_eq!(loss.to_vec::<f32>()?, [0.125, 1.5]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn smooth_l1_loss(
    predictions: &Array,
    targets: &Array,
    beta: f64,
    reduction: Reduction,
) -> Result<Array> {
    same_shape("smooth_l1_loss", predictions, &[("targets", targets)])?;
    let distance = abs(subtract(predictions, targets)?)?;
    let near = divide(multiply(0.5, square(&distance)?)?, beta)?;
    let far = subtract(abs(&distance)?, 0.5 * beta)?;
    reduction.apply(where_(less(&distance, beta)?, near, far)?)
}

/// Half the squared differences up to `delta`, and straight lines beyond. Defaults in MLX: 1,
/// [`Reduction::None`].
///
/// ```
/// use wootz::{Array, nn::losses::{Reduction, huber_loss}};
/// let (a, b) = (Array::new([1.0f32, 2.0])?, Array::new([1.5f32, 4.0])?);
/// assert_eq!(huber_loss(&a, &b, 1.0, Reduction::None)?.to_vec::<f32>()?, [0.125, 1.5]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn huber_loss(
    inputs: &Array,
    targets: &Array,
    delta: f64,
    reduction: Reduction,
) -> Result<Array> {
    let distance = abs(subtract(inputs, targets)?)?;
    let quadratic = minimum(&distance, delta)?;
    let linear = subtract(&distance, &quadratic)?;
    let loss = add(multiply(0.5, square(&quadratic)?)?, multiply(delta, linear)?)?;
    reduction.apply(loss)
}

/// How much nearer, by `margin`, the anchors should be to the positives than to the negatives, in
/// the `p`-norm along `axis`. Defaults in MLX: axis -1, p 2, margin 1, eps 1e-6,
/// [`Reduction::None`].
///
/// ```
/// use wootz::{Array, nn::losses::{Reduction, triplet_loss}};
/// let (a, p, n) = (Array::new([[0.0f32, 0.0]])?, Array::new([[3.0f32, 4.0]])?, Array::new([[0.0f32, 5.0]])?);
/// let loss = triplet_loss(&a, &p, &n, -1, 2.0, 1.0, 1e-6, Reduction::Mean)?;
/// assert!((loss.item::<f32>()? - 1.0).abs() < 1e-5);
/// # Ok::<(), wootz::Error>(())
/// ```
#[allow(clippy::too_many_arguments)]
pub fn triplet_loss(
    anchors: &Array,
    positives: &Array,
    negatives: &Array,
    axis: i64,
    p: f64,
    margin: f64,
    eps: f64,
    reduction: Reduction,
) -> Result<Array> {
    let distance = |other: &Array| {
        let powers = power(abs(subtract(anchors, other)?)?, p)?;
        power(add(sum(&powers, axis, false)?, eps)?, 1.0 / p)
    };
    let difference = subtract(distance(positives)?, distance(negatives)?)?;
    reduction.apply(maximum(add(difference, margin)?, 0)?)
}

/// The cosine of the angle between two arrays along `axis`; the product of their lengths is kept
/// above `eps`. Defaults in MLX: axis 1, eps 1e-8, [`Reduction::None`].
///
/// ```
/// use wootz::{Array, nn::losses::{Reduction, cosine_similarity_loss}};
/// let (a, b) = (Array::new([[3.0f32, 4.0]])?, Array::new([[4.0f32, 3.0]])?);
/// let loss = cosine_similarity_loss(&a, &b, 1, 1e-8, Reduction::None)?;
/// assert!((loss.item::<f32>()? - 0.96).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn cosine_similarity_loss(
    x1: &Array,
    x2: &Array,
    axis: i64,
    eps: f64,
    reduction: Reduction,
) -> Result<Array> {
    let length = |x: &Array| sqrt(sum(&square(x)?, axis, false)?);
    let lengths = maximum(multiply(length(x1)?, length(x2)?)?, eps)?;
    reduction.apply(divide(sum(&multiply(x1, x2)?, axis, false)?, lengths)?)
}

/// `max(0, -targets · (inputs1 - inputs2) + margin)`, where a target of 1 says that the first
/// should rank higher. Defaults in MLX: margin 0, [`Reduction::None`].
///
/// ```
/// use wootz::{Array, nn::losses::{Reduction, margin_ranking_loss}};
/// let (a, b) = (Array::new([1.0f32, 2.0])?, Array::new([3.0f32, 0.0])?);
/// let loss = margin_ranking_loss(&a, &b, &Array::new([1.0f32, 1.0])?, 0.5, Reduction::None)?;
/// assert_eq!(loss.to_vec::<f32>()?, [2.5, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn margin_ranking_loss(
    inputs1: &Array,
    inputs2: &Array,
    targets: &Array,
    margin: f64,
    reduction: Reduction,
) -> Result<Array> {
    same_shape("margin_ranking_loss", inputs1, &[("inputs2", inputs2), ("targets", targets)])?;
    let turned = multiply(negative(targets)?, subtract(inputs1, inputs2)?)?;
    reduction.apply(maximum(0, add(turned, margin)?)?)
}

/// The elements of `x` at one index for each lane along `axis`.
fn chosen(x: &Array, indices: &Array, axis: i64) -> Result<Array> {
    let found = take_along_axis(x, &expand_dims(indices, axis)?, Some(axis))?;
    squeeze(&found, axis)
}

fn weighted(op: &'static str, loss: Array, weights: Option<&Array>) -> Result<Array> {
    let Some(weights) = weights else { return Ok(loss) };
    same_shape(op, &loss, &[("weights", weights)])?;
    multiply(loss, weights)
}

fn same_shape(op: &'static str, x: &Array, others: &[(&str, &Array)]) -> Result<()> {
    for (name, other) in others {
        if other.shape() != x.shape() {
            return Err(Error::shape(op, *name, format!("{:?}", x.shape()), other.shape()));
        }
    }
    Ok(())
}
