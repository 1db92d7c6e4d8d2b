//! Sparse experts: which of them a token is sent to, which is an operation, and how their results are put together. The
//! experts' products are [`gather_mm`](crate::gather_mm).

mod combine;
mod route;
#[cfg(test)]
mod tests;

use std::hash::{Hash, Hasher};

pub use combine::*;
use route::{MOST, Route, weights_dtype};

use crate::array::{Array, DType, Shape};
use crate::error::{Error, Result};
use crate::op::{Case, Entry, Tolerance};
use crate::ops::movement::slice_axis;
use crate::ops::{
    add, argsort, astype, divide, expand_dims, flatten, multiply, negative, put_along_axis,
    reshape, sigmoid, softmax, stop_gradient, sum, sum_keepdims, take, take_along_axis, topk,
};

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    let case = |label: &str, shape: &[usize], options: fn() -> Router<'static>| {
        Case::new(label, &[shape], move |x| {
            let Routes { indices, weights } = router(&x[0], &options())?;
            Ok(vec![indices, weights])
        })
        // In narrow dtypes scores are equal that are not in wider ones.
        .dtypes(&[DType::F32])
        .tolerance(Tolerance::Reduction)
    };
    let biased = Case::new("bias for the choice", &[&[3, 6], &[6]], |x| {
        let options = Router { bias: Some(&x[1]), scores: Scores::Sigmoid, ..Router::new(2) };
        let Routes { indices, weights } = router(&x[0], &options)?;
        Ok(vec![indices, weights])
    });
    let scaled = Case::new("scale of each expert", &[&[3, 6], &[6]], |x| {
        let options =
            Router { expert_scale: Some(&x[1]), renormalise: true, scale: 1.5, ..Router::new(2) };
        let Routes { indices, weights } = router(&x[0], &options)?;
        Ok(vec![indices, weights])
    });
    // So far apart that narrow dtypes tell them apart; products with powers of two are exact.
    let apart = |label: &str, scores: Scores| {
        Case::new(label, &[&[5, 8]], move |x| {
            let powers = [0.5f32, -4.0, 2.0, -1.0, 4.0, -0.5, 1.0, -2.0];
            let powers = Array::from_slice_on(&powers, &[8], x[0].device())?;
            let logits = multiply(&x[0], powers.astype(x[0].dtype())?)?;
            let options = Router { scores, renormalise: true, ..Router::new(3) };
            let Routes { indices, weights } = router(&logits, &options)?;
            Ok(vec![indices, weights])
        })
        .range(1.0..1.5)
        .tolerance(Tolerance::Reduction)
    };
    let mut entries = vec![Entry {
        name: "router",
        cases: vec![
            apart("softmax of scores far apart", Scores::Softmax),
            apart("sigmoids of scores far apart", Scores::Sigmoid),
            case("more experts than a workgroup holds", &[2, 1100], || Router::new(5)),
            case("softmax", &[2, 3, 7], || Router { renormalise: true, ..Router::new(3) }),
            case("sigmoid", &[5, 8], || Router { scores: Scores::Sigmoid, ..Router::new(2) }),
            case("groups", &[4, 12], || Router {
                groups: Some(ExpertGroups { count: 4, keep: 2, best: 2 }),
                renormalise: true,
                scale: 2.5,
                scores: Scores::Sigmoid,
                ..Router::new(3)
            }),
            case("all", &[3, 4], || Router::new(4)),
            case("many", &[2, 300], || Router::new(5)),
            case("1025 tokens", &[1025, 5], || Router { renormalise: true, ..Router::new(2) }),
            case("no tokens", &[0, 5], || Router::new(2)),
            biased.dtypes(&[DType::F32]).tolerance(Tolerance::Reduction),
            scaled.dtypes(&[DType::F32]).tolerance(Tolerance::Reduction),
        ],
    }];
    entries.extend(combine::entries());
    entries
}

/// How a router's logits become scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scores {
    /// Of all experts together, in the logits' dtype.
    #[default]
    Softmax,
    /// Of each expert by itself, in single precision at least.
    Sigmoid,
}

/// Which of experts with equal scores come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ties {
    /// Those with lower indices; the chosen are in the order of falling scores.
    #[default]
    LowerFirst,
    /// Those with higher indices; the chosen are in the order of rising scores. So does a model
    /// that takes the end of `argpartition`.
    HigherFirst,
}

/// Experts in groups, of which only the best are chosen from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpertGroups {
    /// How many groups there are; of equal size.
    pub count: usize,
    /// How many of them are chosen from.
    pub keep: usize,
    /// How many of its experts' highest scores make up the score of a group.
    pub best: usize,
}

/// What [`router`] does.
#[derive(Clone, Copy, Debug)]
pub struct Router<'a> {
    /// Experts for each token.
    pub k: usize,
    /// How logits become scores.
    pub scores: Scores,
    /// Whether the weights of a token's experts are divided by their sum.
    pub renormalise: bool,
    /// Chooses from some groups of experts only.
    pub groups: Option<ExpertGroups>,
    /// A number for each expert that is added to its score for the choice, and only for that.
    pub bias: Option<&'a Array>,
    /// What the weights are multiplied with.
    pub scale: f64,
    /// A number for each expert that its weight is multiplied with, behind the sum.
    pub expert_scale: Option<&'a Array>,
    /// Which of equal experts come first.
    pub ties: Ties,
}

/// Numbers count by their bits, arrays by where they are.
impl Hash for Router<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Router { k, scores, renormalise, groups, bias, scale, expert_scale, ties } = *self;
        (k, scores, renormalise, groups, scale.to_bits(), ties).hash(state);
        [bias, expert_scale].map(|array| array.map(std::ptr::from_ref)).hash(state);
    }
}

impl Router<'_> {
    /// The `k` highest of a softmax, as they are.
    pub fn new(k: usize) -> Router<'static> {
        Router {
            k,
            scores: Scores::Softmax,
            renormalise: false,
            groups: None,
            bias: None,
            scale: 1.0,
            expert_scale: None,
            ties: Ties::LowerFirst,
        }
    }

    /// Checks the options for a number of experts.
    fn check(&self, experts: usize) -> Result<()> {
        let wrong = |argument: &str, expected: String, got: String| {
            Err(Error::argument("router", argument, expected, got))
        };
        if self.k == 0 || self.k > experts {
            let expected = format!("1 to {experts}, the number of experts");
            return wrong("k", expected, self.k.to_string());
        }
        for (argument, given) in [("bias", self.bias), ("expert_scale", self.expert_scale)] {
            if let Some(array) = given
                && array.shape() != [experts]
            {
                let expected = format!("[{experts}]");
                return Err(Error::shape("router", argument, expected, array.shape()));
            }
        }
        let Some(ExpertGroups { count, keep, best }) = self.groups else { return Ok(()) };
        if count == 0 || !experts.is_multiple_of(count) {
            let expected = format!("a divisor of {experts}, the number of experts");
            return wrong("groups.count", expected, count.to_string());
        }
        let size = experts / count;
        if best == 0 || best > size {
            return wrong("groups.best", format!("1 to {size}"), best.to_string());
        }
        if keep > count || keep * size < self.k {
            let least = self.k.div_ceil(size);
            return wrong("groups.keep", format!("{least} to {count}"), keep.to_string());
        }
        Ok(())
    }
}

/// The experts of each token.
#[derive(Clone)]
pub struct Routes {
    /// `[…, k]`, as `uint32`.
    pub indices: Array,
    /// `[…, k]`: how much each of them counts.
    pub weights: Array,
}

/// Chooses the `k` best experts for each token from its logits `[…, experts]`. Gradients flow
/// through the weights to the logits and to `expert_scale`, not through the choice.
///
/// ```
/// use wootz::{Array, Router, router};
/// let logits = Array::new([[0.0f32, 2.0, 1.0, 2.0]])?;
/// let routes = router(&logits, &Router { renormalise: true, ..Router::new(2) })?;
/// assert_eq!(routes.indices.to_vec::<u32>()?, [1, 3]);
/// assert_eq!(routes.weights.to_vec::<f32>()?, [0.5, 0.5]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn router(logits: &Array, options: &Router<'_>) -> Result<Routes> {
    const OP: &str = "router";
    let Some(&experts) = logits.shape().last() else {
        return Err(Error::shape(OP, "logits", "one of at least one axis", logits.shape()));
    };
    if !logits.dtype().is_float() {
        return Err(Error::dtype(OP, "logits", "a floating-point type", logits.dtype()));
    }
    options.check(experts)?;
    if logits.device().is_gpu() && experts > MOST {
        return composed(logits, options);
    }
    let (dtype, tokens) = (logits.dtype(), &logits.shape()[..logits.rank() - 1]);
    let sums = DType::promote(dtype, DType::F32);
    let mut inputs = vec![reshape(logits, &[tokens.iter().product(), experts])?.contiguous()?];
    if let Some(bias) = options.bias {
        // A choice has no gradient.
        let bias = stop_gradient(bias)?;
        let wide = bias.dtype() != dtype;
        inputs.push(if wide { astype(&bias, sums)?.contiguous()? } else { bias.contiguous()? });
    }
    if let Some(scale) = options.expert_scale {
        inputs.push(astype(scale, weights_dtype(options.scores, dtype))?.contiguous()?);
    }
    let outputs = Array::apply_all(Route::new(options), &inputs.iter().collect::<Vec<_>>())?;
    let shape = [tokens, &[options.k]].concat();
    match &outputs[..] {
        [indices, weights] => {
            Ok(Routes { indices: reshape(indices, &shape)?, weights: reshape(weights, &shape)? })
        }
        _ => Err(Error::argument(OP, "outputs", "two arrays", "others")),
    }
}

/// The scores of all experts.
fn scores_of(logits: &Array, scores: Scores) -> Result<Array> {
    match scores {
        Scores::Softmax => softmax(logits, -1),
        Scores::Sigmoid => sigmoid(astype(logits, DType::promote(logits.dtype(), DType::F32))?),
    }
}

/// The router made of other operations.
fn composed(logits: &Array, options: &Router<'_>) -> Result<Routes> {
    let scores = scores_of(logits, options.scores)?;
    let mut preferred = stop_gradient(&scores)?;
    if let Some(bias) = options.bias {
        preferred = add(preferred, stop_gradient(bias)?)?;
    }
    if let Some(groups) = options.groups {
        preferred = in_best_groups(&preferred, groups, options.ties)?;
    }
    let indices = best(&preferred, options.k, options.ties)?;
    let weights = weights_of(logits, &indices, options)?;
    Ok(Routes { indices, weights })
}

/// The weights of the chosen experts.
fn weights_of(logits: &Array, indices: &Array, options: &Router<'_>) -> Result<Array> {
    let scores = scores_of(logits, options.scores)?;
    let mut weights = take_along_axis(&scores, indices, Some(-1))?;
    if options.renormalise {
        let mut all = sum_keepdims(&weights, &[-1])?;
        if options.scores == Scores::Sigmoid {
            // All of them may be zero; of a softmax one is not.
            all = add(all, 1e-20)?;
        }
        weights = divide(weights, all)?;
    }
    if options.scale != 1.0 {
        weights = multiply(weights, options.scale)?;
    }
    if let Some(scale) = options.expert_scale {
        let scales = take(&astype(scale, weights.dtype())?, indices, Some(0))?;
        weights = multiply(weights, scales)?;
    }
    Ok(weights)
}

/// The indices of the `k` highest along the last axis.
fn best(scores: &Array, k: usize, ties: Ties) -> Result<Array> {
    let (last, length) = (scores.rank() - 1, scores.shape()[scores.rank() - 1]);
    // Sorting keeps the order of equal elements.
    match ties {
        Ties::LowerFirst => slice_axis(&argsort(&negative(scores)?, -1)?, last, 0, k, 1),
        Ties::HigherFirst => slice_axis(&argsort(scores, -1)?, last, length - k, length, 1),
    }
}

/// Scores with those of all groups but the best made the lowest there are.
fn in_best_groups(scores: &Array, groups: ExpertGroups, ties: Ties) -> Result<Array> {
    let ExpertGroups { count, keep, best: taken } = groups;
    if keep == count {
        return Ok(scores.clone());
    }
    let (&experts, tokens) = scores.shape().split_last().unwrap_or((&1, &[]));
    let shape: Shape = [tokens, &[count, experts / count]].concat().into();
    let grouped = reshape(scores, &shape)?;
    let of_group = sum(&topk(&grouped, taken, -1)?, -1, false)?;
    // The worst are the best of what is turned around, and lose ties.
    let against = match ties {
        Ties::LowerFirst => Ties::HigherFirst,
        Ties::HigherFirst => Ties::LowerFirst,
    };
    let worst = best(&negative(of_group)?, count - keep, against)?;
    let kept = put_along_axis(&grouped, &expand_dims(&worst, -1)?, f64::NEG_INFINITY, Some(-2))?;
    flatten(&kept, -2, -1)
}
