//! The next token from logits, on the device and in mlx-lm's order: logit bias, repetition, presence
//! and frequency penalties; log-probabilities; top-p, min-p, XTC and top-k; temperature and the draw.
//!
//! All of it is one compiled function of the logits and of a state of fixed size: a random key, and
//! the last tokens that penalties look at. Keys are split as MLX splits those of `mx.random.seed`,
//! so that the draws are mlx-lm's. Only the drawn token travels to the host, with the
//! log-probabilities that were asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use wootz::random::{self, Samples};
use wootz::sample::{self, Xtc};
use wootz::{
    Array, Compiled, DType, Device, Ellipsis, argmax, argpartition, argsort, compile, concatenate,
    multiply, negative, take_along_axis, view,
};

use super::options::GenerateOptions;
use super::session::Head;
use crate::error::{Error, Result};

type Step = Box<dyn Fn(&[Array]) -> wootz::Result<Vec<Array>> + Send + Sync>;

/// Draws tokens by the settings of [`GenerateOptions`].
///
/// ```
/// use wootz::{Array, Device};
/// use wootz_lm::generate::{GenerateOptions, TokenSampler};
/// let options = GenerateOptions { repetition_penalty: 2.0, ..GenerateOptions::default() };
/// let sampler = TokenSampler::new(&options, &[], 3, &Device::cpu())?;
/// // Token 1 has the largest logit, but the prompt has it already.
/// let state = sampler.start(&[1], None)?;
/// let (draw, _) = sampler.draw(&Array::new([[1.0f32, 1.5, 0.5]])?, &state)?;
/// assert_eq!(draw.read()?.token, 0);
/// # Ok::<(), wootz_lm::Error>(())
/// ```
pub struct TokenSampler {
    step: Compiled<Step>,
    settings: Settings,
    vocabulary: usize,
    device: Device,
}

/// What a [`TokenSampler`] remembers from draw to draw. Cheap to clone, so that a draw can be taken
/// back.
#[derive(Clone)]
pub struct SamplerState {
    pub(crate) arrays: Vec<Array>,
}

/// A token that was drawn, perhaps not computed yet.
#[derive(Clone)]
pub struct Draw {
    /// `uint32` of shape `[1, 1]`, as models take it.
    pub token: Array,
    /// The words that the host reads: the token, and what else was asked for.
    report: Array,
    listed: usize,
}

/// A token on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// Its number.
    pub token: u32,
    /// Its log-probability, before filters and temperature; none if it was not asked for.
    pub logprob: Option<f32>,
    /// The most probable tokens and their log-probabilities, best first.
    pub top_logprobs: Vec<(u32, f32)>,
}

/// The options that matter here, as the compiled function has them.
#[derive(Clone)]
struct Settings {
    bias: Vec<(u32, f32)>,
    /// Penalty and how many tokens it looks at.
    repetition: Option<(f64, usize)>,
    presence: Option<(f64, usize)>,
    frequency: Option<(f64, usize)>,
    temperature: f64,
    top_p: f64,
    min_p: f64,
    min_tokens_to_keep: usize,
    xtc: Option<Xtc>,
    top_k: usize,
    listed: usize,
}

impl TokenSampler {
    /// A sampler for logits of this many tokens on this device. `special` tokens are never left out
    /// by XTC.
    pub fn new(
        options: &GenerateOptions,
        special: &[u32],
        vocabulary: usize,
        device: &Device,
    ) -> Result<TokenSampler> {
        options.validate()?;
        if vocabulary == 0 {
            return Err(Error::argument("vocabulary", "at least 1", 0));
        }
        if let Some((&token, _)) = options.logit_bias.last_key_value()
            && token as usize >= vocabulary
        {
            let expected = format!("tokens below {vocabulary}");
            return Err(Error::argument("logit_bias", expected, token));
        }
        let settings = Settings::of(options, special, vocabulary);
        let inner = settings.clone();
        let step: Step = Box::new(move |inputs| inner.step(inputs));
        Ok(TokenSampler { step: compile(step), settings, vocabulary, device: device.clone() })
    }

    /// The state before the first draw. `tokens` are those so far: the prompt. Without a seed the
    /// time of day decides.
    pub fn start(&self, tokens: &[u32], seed: Option<u64>) -> Result<SamplerState> {
        let mut arrays = Vec::new();
        if self.settings.temperature > 0.0 {
            let seed = seed.unwrap_or_else(unseeded);
            let words = [(seed >> 32) as u32, seed as u32];
            arrays.push(Array::from_slice_on(&words, &[2], &self.device)?);
        }
        let window = self.settings.window();
        if window > 0 {
            let recent = &tokens[tokens.len().saturating_sub(window)..];
            let Some(&oldest) = recent.first() else {
                return Err(Error::argument("prompt", "at least one token", "none"));
            };
            if let Some(&token) = recent.iter().find(|&&token| token as usize >= self.vocabulary) {
                let expected = format!("tokens below {}", self.vocabulary);
                return Err(Error::argument("prompt", expected, token));
            }
            // Shorter histories begin with their oldest token again and again: penalties that only
            // ask what is there do not see a difference, and the one that counts has weights.
            let missing = window - recent.len();
            let mut padded = vec![oldest; missing];
            padded.extend_from_slice(recent);
            arrays.push(Array::from_slice_on(&padded, &[window], &self.device)?);
            let weights: Vec<f32> = (0..window).map(|i| f32::from(i >= missing)).collect();
            arrays.push(Array::from_slice_on(&weights, &[window], &self.device)?);
        }
        Ok(SamplerState { arrays })
    }

    /// Draws from logits `[1, vocabulary]`. On a GPU this returns without waiting.
    pub fn draw(&self, logits: &Array, state: &SamplerState) -> Result<(Draw, SamplerState)> {
        if logits.shape() != [1, self.vocabulary] {
            let expected = format!("the shape [1, {}]", self.vocabulary);
            return Err(Error::argument("logits", expected, format!("{:?}", logits.shape())));
        }
        let mut inputs = Vec::with_capacity(1 + state.arrays.len());
        inputs.push(logits.clone());
        inputs.extend(state.arrays.iter().cloned());
        self.drawn(self.step.call_owned(inputs)?)
    }

    /// The same as a part of a model's recorded step.
    pub(crate) fn head(&self) -> Head {
        let settings = self.settings.clone();
        Arc::new(move |inputs| settings.step(inputs))
    }

    /// What the compiled function's results are.
    pub(crate) fn drawn(&self, outputs: Vec<Array>) -> Result<(Draw, SamplerState)> {
        let mut outputs = outputs.into_iter();
        let token = outputs.next().ok_or_else(|| Error::argument("sampler", "a token", "none"))?;
        let report = if self.settings.listed > 0 { outputs.next() } else { None };
        let report = report.unwrap_or_else(|| token.clone());
        let draw = Draw { token, report, listed: self.settings.listed };
        Ok((draw, SamplerState { arrays: outputs.collect() }))
    }
}

impl Draw {
    /// The token on the host, when it is there: the only wait of a step.
    pub fn read(&self) -> Result<Token> {
        let words = self.report.to_vec::<u32>()?;
        let (&token, rest) = words.split_first().ok_or_else(|| {
            Error::argument("sampler", "a token", format!("{:?}", self.report.shape()))
        })?;
        let (chosen, rest) = rest.split_at(rest.len().min(1));
        let (tokens, logprobs) = rest.split_at(self.listed.min(rest.len()));
        let logprobs = logprobs.iter().map(|&bits| f32::from_bits(bits));
        let mut top_logprobs: Vec<(u32, f32)> = tokens.iter().copied().zip(logprobs).collect();
        top_logprobs.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let logprob = chosen.first().map(|&bits| f32::from_bits(bits));
        Ok(Token { token, logprob, top_logprobs })
    }
}

impl Settings {
    fn of(options: &GenerateOptions, special: &[u32], vocabulary: usize) -> Settings {
        let penalty = |value: f64, none: f64, context| (value != none).then_some((value, context));
        let special = special.iter().copied().filter(|&token| (token as usize) < vocabulary);
        let xtc = (options.xtc_probability > 0.0).then(|| Xtc {
            probability: options.xtc_probability,
            threshold: options.xtc_threshold,
            special_tokens: special.collect(),
        });
        Settings {
            bias: options.logit_bias.iter().map(|(&token, &bias)| (token, bias)).collect(),
            repetition: penalty(options.repetition_penalty, 1.0, options.repetition_context_size),
            presence: penalty(options.presence_penalty, 0.0, options.presence_context_size),
            frequency: penalty(options.frequency_penalty, 0.0, options.frequency_context_size),
            temperature: options.temperature,
            top_p: options.top_p,
            min_p: options.min_p,
            min_tokens_to_keep: options.min_tokens_to_keep.min(vocabulary),
            xtc,
            // As many as there are is the same as all.
            top_k: if options.top_k < vocabulary { options.top_k } else { 0 },
            listed: options.logprobs.min(vocabulary),
        }
    }

    /// How many of the last tokens penalties look at.
    fn window(&self) -> usize {
        let penalties = [self.repetition, self.presence, self.frequency];
        penalties.iter().flatten().map(|(_, context)| *context).max().unwrap_or(0)
    }

    /// From logits and the state's arrays to the token, the report if something is listed, and the next
    /// state's arrays.
    fn step(&self, inputs: &[Array]) -> wootz::Result<Vec<Array>> {
        let (logits, state) = (&inputs[0].astype(DType::F32)?, &inputs[1..]);
        let (keys, window) = state.split_at(usize::from(self.temperature > 0.0));
        let mut logits = sample::logit_bias(logits, &self.bias)?;
        if let [recent, weights] = window {
            logits = self.penalized(&logits, recent, weights)?;
        }
        let mut next = Vec::with_capacity(state.len());
        let token = match keys.first() {
            // The largest logit is the most probable token; nothing has to be normalised for it.
            None => argmax(&logits, -1, false)?,
            Some(key) => {
                let (token, key) = self.sampled(&sample::log_probabilities(&logits)?, key)?;
                next.push(key);
                token
            }
        };
        if let [recent, weights] = window {
            let newest = Array::ones(&[1], DType::F32)?;
            next.push(concatenate(&[&recent.index(1..)?, &token.reshape(&[1])?], 0)?);
            next.push(concatenate(&[&weights.index(1..)?, &newest], 0)?);
        }
        let mut outputs = vec![token.reshape(&[1, 1])?];
        if self.listed > 0 {
            outputs.push(self.report(&logits, &token)?);
        }
        outputs.extend(next);
        Ok(outputs)
    }

    fn penalized(&self, logits: &Array, recent: &Array, weights: &Array) -> wootz::Result<Array> {
        let last = |x: &Array, context: usize| x.index((x.size() - context) as i64..);
        let mut logits = logits.clone();
        if let Some((penalty, context)) = self.repetition {
            logits = sample::repetition_penalty(&logits, &last(recent, context)?, penalty)?;
        }
        if let Some((penalty, context)) = self.presence {
            logits = sample::presence_penalty(&logits, &last(recent, context)?, penalty)?;
        }
        if let Some((penalty, context)) = self.frequency {
            let amounts = multiply(last(weights, context)?, penalty)?;
            logits = logits.at((Ellipsis, &last(recent, context)?)).subtract(&amounts)?;
        }
        Ok(logits)
    }

    /// A token by the filters and the temperature, and the key after its draws.
    fn sampled(&self, logprobs: &Array, key: &Array) -> wootz::Result<(Array, Array)> {
        let mut kept = logprobs.clone();
        let mut key = key.clone();
        if self.top_p > 0.0 && self.top_p < 1.0 {
            kept = sample::top_p(&kept, self.top_p)?;
        }
        if self.min_p != 0.0 {
            kept = sample::min_p(&kept, self.min_p, self.min_tokens_to_keep)?;
        }
        if let Some(xtc) = &self.xtc {
            let used = next_key(&mut key)?;
            kept = sample::xtc(&kept, xtc, Some(&used))?;
        }
        if self.top_k > 0 {
            kept = sample::top_k(&kept, self.top_k)?;
        }
        let used = next_key(&mut key)?;
        let scaled = multiply(kept, 1.0 / self.temperature)?;
        Ok((random::categorical(&scaled, -1, Samples::One, Some(&used))?, key))
    }

    /// All that the host reads, as words of one array: token, its log-probability, the listed tokens,
    /// theirs.
    fn report(&self, logits: &Array, token: &Array) -> wootz::Result<Array> {
        let token = token.reshape(&[1, 1])?;
        let logprobs = sample::log_probabilities(logits)?;
        let chosen = take_along_axis(&logprobs, &token, Some(-1))?;
        let order = match self.listed < logits.size() {
            true => argpartition(&negative(&logprobs)?, self.listed as i64 - 1, -1)?,
            false => argsort(&negative(&logprobs)?, -1)?,
        };
        let listed = order.index((Ellipsis, ..self.listed as i64))?;
        let theirs = take_along_axis(&logprobs, &listed, Some(-1))?;
        let words = |x: Array| view(&x.contiguous()?, DType::U32);
        let parts = [token, words(chosen)?, listed.astype(DType::U32)?, words(theirs)?];
        concatenate(&parts, -1)?.reshape(&[2 + 2 * self.listed])
    }
}

/// The key to use, as MLX takes it from its sequence, whose state becomes the next.
fn next_key(key: &mut Array) -> wootz::Result<Array> {
    let keys = random::split(key, 2)?;
    *key = keys.index(0)?;
    keys.index(1)
}

/// A seed that no other call gets.
fn unseeded() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    now ^ (CALLS.fetch_add(1, Ordering::Relaxed) << 48)
}

#[cfg(test)]
mod tests;
