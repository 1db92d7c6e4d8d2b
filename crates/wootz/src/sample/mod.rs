//! Choosing the next token on the device: penalties, filters of log-probabilities, and the draw, in
//! mlx-lm's order and with its rules. Everything is an array, so only the token travels to the host.

mod cutoff;
#[cfg(test)]
mod tests;

use self::cutoff::Cutoff;
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::fast::on_device;
use crate::ops::*;
use crate::random::{self, Samples};

/// How a token is drawn from log-probabilities `[..., vocabulary]`. The filters act before the
/// temperature: [`top_p`], [`min_p`], [`xtc`], [`top_k`].
///
/// ```
/// use wootz::{Array, random, sample::Sampler};
/// let logprobs = Array::new([[-0.5f32, -1.5, -3.0]])?;
/// let greedy = Sampler::default().sample(&logprobs, None)?;
/// assert_eq!(greedy.to_vec::<u32>()?, [0]);
/// let sampler = Sampler { temperature: 0.8, top_k: 2, ..Sampler::default() };
/// assert!(sampler.sample(&logprobs, Some(&random::key(7)?))?.item::<u32>()? < 2);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    /// 0 takes the most probable token, 1 draws with the probabilities as they are.
    pub temperature: f64,
    /// Keeps the most probable tokens that together have this probability; 0 and 1 keep all.
    pub top_p: f64,
    /// Keeps tokens with at least this part of the highest probability; 0 keeps all.
    pub min_p: f64,
    /// Keeps at least this many tokens when `min_p` filters.
    pub min_tokens_to_keep: usize,
    /// Keeps this many tokens; 0 keeps all.
    pub top_k: usize,
    /// Leaves out the most probable tokens now and then.
    pub xtc: Option<Xtc>,
}

/// Settings of [`xtc`].
#[derive(Clone, Debug, PartialEq)]
pub struct Xtc {
    /// How often it happens.
    pub probability: f64,
    /// Tokens more probable than this can be left out, but for the least probable of them.
    pub threshold: f64,
    /// Tokens that are never left out.
    pub special_tokens: Vec<u32>,
}

/// Below this temperature, products of log-probabilities might leave the range of `float16`.
const COLD: f64 = 1e-3;

impl Xtc {
    fn check(&self, op: &'static str) -> Result<()> {
        between(op, "threshold", self.threshold, 0.5)?;
        between(op, "probability", self.probability, 1.0)
    }
}

impl Default for Sampler {
    /// The most probable token.
    fn default() -> Sampler {
        let (temperature, top_p, min_p, top_k) = (0.0, 0.0, 0.0, 0);
        Sampler { temperature, top_p, min_p, min_tokens_to_keep: 1, top_k, xtc: None }
    }
}

impl Sampler {
    /// A token (`uint32`) for each row of log-probabilities. Without a key the process's own random
    /// numbers are used. Settings out of range are errors, also where the temperature is 0.
    pub fn sample(&self, logprobs: &Array, key: Option<&Array>) -> Result<Array> {
        self.check(vocabulary("sample", logprobs)?)?;
        if self.temperature == 0.0 {
            return argmax(logprobs, -1, false);
        }
        let keys = key.map(|key| random::split(key, 2)).transpose()?;
        let key = |index: i64| keys.as_ref().map(|keys| keys.index(index)).transpose();
        let mut kept = logprobs.clone();
        if self.top_p > 0.0 && self.top_p < 1.0 {
            kept = top_p(&kept, self.top_p)?;
        }
        if self.min_p != 0.0 {
            kept = min_p(&kept, self.min_p, self.min_tokens_to_keep)?;
        }
        if let Some(settings) = &self.xtc {
            kept = xtc(&kept, settings, key(0)?.as_ref())?;
        }
        if self.top_k > 0 {
            kept = top_k(&kept, self.top_k)?;
        }
        random::categorical(&self.scaled(&kept)?, -1, Samples::One, key(1)?.as_ref())
    }

    /// Log-probabilities divided by the temperature.
    fn scaled(&self, logprobs: &Array) -> Result<Array> {
        let factor = 1.0 / self.temperature;
        if self.temperature >= COLD {
            return multiply(logprobs, factor);
        }
        // A draw depends on differences only. Those from the largest may become -∞, but the largest is 0.
        let limit = f64::from(f32::MAX);
        let wide = astype(logprobs, DType::promote(logprobs.dtype(), DType::F32))?;
        let wide = minimum(&wide, limit)?;
        let largest = maximum(max(&wide, -1, true)?, -limit)?;
        multiply(subtract(wide, largest)?, factor.min(limit))
    }

    /// Checks the settings for so many tokens.
    fn check(&self, vocabulary: usize) -> Result<()> {
        const OP: &str = "sample";
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            let expected = "a finite number of at least 0";
            return Err(Error::argument(OP, "temperature", expected, self.temperature));
        }
        between(OP, "top_p", self.top_p, 1.0)?;
        between(OP, "min_p", self.min_p, 1.0)?;
        if self.min_tokens_to_keep == 0 || self.min_tokens_to_keep > vocabulary {
            let (expected, got) = (format!("between 1 and {vocabulary}"), self.min_tokens_to_keep);
            return Err(Error::argument(OP, "min_tokens_to_keep", expected, got));
        }
        // As many as there are is no filter, which 0 says.
        if self.top_k >= vocabulary {
            let expected = format!("less than {vocabulary}, the number of tokens");
            return Err(Error::argument(OP, "top_k", expected, self.top_k));
        }
        match &self.xtc {
            Some(settings) => settings.check(OP),
            None => Ok(()),
        }
    }
}

/// Log-probabilities of logits: what samplers take.
///
/// ```
/// let x = wootz::sample::log_probabilities(&wootz::Array::new([3.0f32, 3.0])?)?;
/// assert!((x.to_vec::<f32>()?[0] + std::f32::consts::LN_2).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn log_probabilities(logits: &Array) -> Result<Array> {
    subtract(logits, logsumexp(logits, -1, true)?)
}

/// All but the `k` largest become −∞; of equal ones those with the lowest indices stay.
///
/// ```
/// let x = wootz::sample::top_k(&wootz::Array::new([-1.0f32, -3.0, -2.0])?, 2)?;
/// assert_eq!(x.to_vec::<f32>()?, [-1.0, f32::NEG_INFINITY, -2.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn top_k(logprobs: &Array, k: usize) -> Result<Array> {
    let vocabulary = vocabulary("top_k", logprobs)?;
    if k == 0 || k >= vocabulary {
        let expected = format!("between 1 and {}", vocabulary.saturating_sub(1));
        return Err(Error::argument("top_k", "k", expected, k));
    }
    where_(among_most(logprobs, k)?, logprobs, f64::NEG_INFINITY)
}

/// Which are the `k` largest of a row; of equal ones those with the lowest indices.
fn among_most(logprobs: &Array, k: usize) -> Result<Array> {
    let (least, last) = if Cutoff::fits(logprobs) {
        Cutoff::Most(k).of(logprobs)?
    } else {
        let order = argpartition(&negative(logprobs)?, k as i64 - 1, -1)?;
        let last = order.index((Ellipsis, k as i64 - 1..k as i64))?;
        (take_along_axis(logprobs, &last, Some(-1))?, last)
    };
    let length = logprobs.shape()[logprobs.rank() - 1];
    let indices = arange_on(0.0, length as f64, 1.0, DType::U32, logprobs.device())?;
    let equal = logical_and(equal(logprobs, &least)?, less_equal(indices, last)?)?;
    logical_or(greater(logprobs, least)?, equal)
}

/// Keeps the most probable tokens that together have the probability `p`, and those as probable as
/// the last of them; the others become −∞.
///
/// ```
/// let x = wootz::Array::new([0.5f32, 0.25, 0.25].map(f32::ln))?;
/// let kept = wootz::sample::top_p(&x, 0.4)?.to_vec::<f32>()?;
/// assert_eq!(kept, [0.5f32.ln(), f32::NEG_INFINITY, f32::NEG_INFINITY]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn top_p(logprobs: &Array, p: f64) -> Result<Array> {
    vocabulary("top_p", logprobs)?;
    between("top_p", "p", p, 1.0)?;
    if Cutoff::fits(logprobs) {
        let (least, _) = Cutoff::Mass(p).of(logprobs)?;
        return where_(less(logprobs, least)?, f64::NEG_INFINITY, logprobs);
    }
    let sorted = sort(logprobs, -1)?;
    let probabilities = exp(sorted.astype(DType::F32)?)?;
    let above = cumsum(&probabilities, -1, true, false)?;
    let first = |x: &Array| x.index((Ellipsis, ..1));
    let total = add(first(&above)?, first(&probabilities)?)?;
    let dropped = sum(&greater_equal(above, multiply(total, p)?)?, -1, true)?;
    // Rounding, or a probability of 0, may drop them all; the most probable stays.
    let dropped = minimum(dropped, sorted.shape()[sorted.rank() - 1] as i64 - 1)?;
    let threshold = take_along_axis(&sorted, &dropped, Some(-1))?;
    where_(less(logprobs, threshold)?, f64::NEG_INFINITY, logprobs)
}

/// Keeps tokens with at least `p` times the highest probability, and at least `keep` tokens; the
/// others become −∞.
///
/// ```
/// let x = wootz::Array::new([0.6f32, 0.3, 0.1].map(f32::ln))?;
/// let kept = wootz::sample::min_p(&x, 0.4, 1)?.to_vec::<f32>()?;
/// assert_eq!(kept[2], f32::NEG_INFINITY);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn min_p(logprobs: &Array, p: f64, keep: usize) -> Result<Array> {
    let vocabulary = vocabulary("min_p", logprobs)?;
    between("min_p", "p", p, 1.0)?;
    if keep == 0 || keep > vocabulary {
        let expected = format!("between 1 and {vocabulary}");
        return Err(Error::argument("min_p", "keep", expected, keep));
    }
    let least = add(max(logprobs, -1, true)?, p.ln())?;
    let mut dropped = less(logprobs, least)?;
    if keep > 1 {
        dropped = logical_and(dropped, logical_not(among_most(logprobs, keep)?)?)?;
    }
    where_(dropped, f64::NEG_INFINITY, logprobs)
}

/// With the settings' probability, all tokens above their threshold but the least probable of these
/// become −∞: the obvious is left out.
///
/// ```
/// use wootz::{Array, sample::{Xtc, xtc}};
/// let x = Array::new([0.5f32, 0.3, 0.2].map(f32::ln))?;
/// let always = Xtc { probability: 1.0, threshold: 0.25, special_tokens: vec![] };
/// let kept = xtc(&x, &always, None)?.to_vec::<f32>()?;
/// assert_eq!((kept[0], kept[1]), (f32::NEG_INFINITY, 0.3f32.ln()));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn xtc(logprobs: &Array, settings: &Xtc, key: Option<&Array>) -> Result<Array> {
    vocabulary("xtc", logprobs)?;
    settings.check("xtc")?;
    let probabilities = softmax(logprobs, -1)?;
    let likely = greater(&probabilities, settings.threshold)?;
    let least = min(&where_(likely, &probabilities, f64::INFINITY)?, -1, true)?;
    let mut dropped = greater(&probabilities, least)?;
    if !settings.special_tokens.is_empty() {
        let special = on_device(&settings.special_tokens, logprobs.device())?;
        dropped = dropped.at((Ellipsis, &special)).set(false)?;
    }
    let chance = random::uniform(0.0, 1.0, &[], DType::F32, key)?;
    let happens = less_equal(to_device(&chance, logprobs.device())?, settings.probability)?;
    where_(logical_and(dropped, happens)?, f64::NEG_INFINITY, logprobs)
}

/// Makes logits of `tokens`, those seen lately, less probable: negative ones are multiplied with
/// `penalty` and others divided by it. The tokens are `[count]`, for all rows of logits, or there are some for each
/// row, `[…, count]`.
///
/// ```
/// use wootz::{Array, sample};
/// let logits = Array::new([[1.0f32, -1.0, 3.0]])?;
/// let seen = Array::new([0u32, 1, 0])?;
/// let y = sample::repetition_penalty(&logits, &seen, 2.0)?;
/// assert_eq!(y.to_vec::<f32>()?, [0.5, -2.0, 3.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn repetition_penalty(logits: &Array, tokens: &Array, penalty: f64) -> Result<Array> {
    vocabulary("repetition_penalty", logits)?;
    if !(penalty > 0.0 && penalty.is_finite()) {
        let expected = "a finite number above 0";
        return Err(Error::argument("repetition_penalty", "penalty", expected, penalty));
    }
    if tokens.size() == 0 {
        return Ok(logits.clone());
    }
    let less_likely =
        |seen: &Array| where_(less(seen, 0)?, multiply(seen, penalty)?, divide(seen, penalty)?);
    set_seen("repetition_penalty", logits, tokens, less_likely)
}

/// Takes `penalty` from the logit of every token among `tokens`, however often it is there. The tokens are those of all
/// rows of logits or of each, as for [`repetition_penalty`].
///
/// ```
/// use wootz::{Array, sample};
/// let logits = Array::new([[1.0f32, 2.0, 3.0]])?;
/// let y = sample::presence_penalty(&logits, &Array::new([0u32, 0])?, 0.5)?;
/// assert_eq!(y.to_vec::<f32>()?, [0.5, 2.0, 3.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn presence_penalty(logits: &Array, tokens: &Array, penalty: f64) -> Result<Array> {
    vocabulary("presence_penalty", logits)?;
    finite("presence_penalty", penalty)?;
    if tokens.size() == 0 {
        return Ok(logits.clone());
    }
    set_seen("presence_penalty", logits, tokens, |seen| subtract(seen, penalty))
}

/// Takes `penalty` from the logit of a token for every time that it is among `tokens`, which are those of all rows of
/// logits or of each, as for [`repetition_penalty`].
///
/// ```
/// use wootz::{Array, sample};
/// let logits = Array::new([[1.0f32, 2.0, 3.0]])?;
/// let y = sample::frequency_penalty(&logits, &Array::new([0u32, 0])?, 0.5)?;
/// assert_eq!(y.to_vec::<f32>()?, [0.0, 2.0, 3.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn frequency_penalty(logits: &Array, tokens: &Array, penalty: f64) -> Result<Array> {
    vocabulary("frequency_penalty", logits)?;
    finite("frequency_penalty", penalty)?;
    if tokens.size() == 0 {
        return Ok(logits.clone());
    }
    if !of_rows("frequency_penalty", logits, tokens)? {
        return logits.at((Ellipsis, tokens)).subtract(penalty);
    }
    let ones = full_like(&astype(tokens, DType::promote(logits.dtype(), DType::F32))?, 1.0)?;
    let vocabulary = logits.shape()[logits.rank() - 1];
    let times = take_along_axis_backward(tokens, &ones, -1, vocabulary)?;
    subtract(logits, astype(&multiply(times, penalty)?, logits.dtype())?)
}

/// Logits with those of tokens changed.
fn set_seen(
    op: &'static str,
    logits: &Array,
    tokens: &Array,
    change: impl Fn(&Array) -> Result<Array>,
) -> Result<Array> {
    if of_rows(op, logits, tokens)? {
        let seen = change(&take_along_axis(logits, tokens, Some(-1))?)?;
        return put_along_axis(logits, tokens, &seen, Some(-1));
    }
    let seen = change(&logits.index((Ellipsis, tokens))?)?;
    logits.at((Ellipsis, tokens)).set(&seen)
}

/// Whether there are tokens for each row of logits.
fn of_rows(op: &'static str, logits: &Array, tokens: &Array) -> Result<bool> {
    if tokens.rank() <= 1 {
        return Ok(false);
    }
    let rows = &logits.shape()[..logits.rank() - 1];
    match tokens.shape().split_last() {
        Some((_, own)) if own == rows => Ok(true),
        _ => {
            let expected = format!(
                "[count], or one with {rows:?} before it for logits of {:?}",
                logits.shape()
            );
            Err(Error::shape(op, "tokens", expected, tokens.shape()))
        }
    }
}

/// Adds a bias to the logits of some tokens.
///
/// ```
/// use wootz::{Array, sample};
/// let logits = Array::new([[1.0f32, 2.0, 3.0]])?;
/// let y = sample::logit_bias(&logits, &[(2, -10.0)])?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, -7.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn logit_bias(logits: &Array, biases: &[(u32, f32)]) -> Result<Array> {
    vocabulary("logit_bias", logits)?;
    if biases.is_empty() {
        return Ok(logits.clone());
    }
    let (tokens, biases): (Vec<u32>, Vec<f32>) = biases.iter().copied().unzip();
    let tokens = on_device(&tokens, logits.device())?;
    let biases = on_device(&biases, logits.device())?;
    logits.at((Ellipsis, &tokens)).add(&biases.astype(logits.dtype())?)
}

/// The number of tokens that there are probabilities of.
fn vocabulary(op: &'static str, logprobs: &Array) -> Result<usize> {
    if !logprobs.dtype().is_float() {
        return Err(Error::dtype(op, "logits", "a floating-point type", logprobs.dtype()));
    }
    match logprobs.shape().last() {
        Some(&length) if length > 0 => Ok(length),
        _ => Err(Error::shape(op, "logits", "a last axis of tokens", logprobs.shape())),
    }
}

fn finite(op: &'static str, penalty: f64) -> Result<()> {
    match penalty.is_finite() {
        true => Ok(()),
        false => Err(Error::argument(op, "penalty", "a finite number", penalty)),
    }
}

fn between(op: &'static str, argument: &'static str, value: f64, most: f64) -> Result<()> {
    match (0.0..=most).contains(&value) {
        true => Ok(()),
        false => Err(Error::argument(op, argument, format!("between 0 and {most}"), value)),
    }
}
