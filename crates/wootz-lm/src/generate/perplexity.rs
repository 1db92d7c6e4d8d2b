//! How well a model predicts a text: the exponential of the mean negative log-probability of its
//! tokens.

use serde::Serialize;
use wootz::{Array, cross_entropy};

use super::options::GenerateOptions;
use super::text_model::TextModel;
use crate::error::{Error, Result};

/// Positions whose logits are in memory at once.
const ROWS: usize = 128;

/// How a text is cut into windows, and what of them counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Convention {
    /// As mlx-lm: in each window every token but the first counts. Tokens behind the last whole
    /// window do not, unless there is no whole one.
    #[default]
    MlxLm,
    /// As llama.cpp: in each window the tokens after the middle count, so that each has at least half
    /// a window before it. Only whole windows count, and there must be two.
    LlamaCpp,
}

/// Settings of [`TextModel::perplexity`].
#[derive(Clone, Debug, PartialEq)]
pub struct PerplexityOptions {
    /// Tokens of a window.
    pub window: usize,
    /// What counts.
    pub convention: Convention,
    /// Whether each window begins with the token that texts begin with, in the place of its first
    /// (llama.cpp), or before all of them (mlx-lm, where the tokenizer puts it before the text).
    pub bos: bool,
    /// Tokens that a window may have, instead of the model's context.
    pub context_length: Option<usize>,
}

impl Default for PerplexityOptions {
    /// mlx-lm's: windows of 512, whatever the tokenizer puts before the text.
    fn default() -> PerplexityOptions {
        PerplexityOptions {
            window: 512,
            convention: Convention::MlxLm,
            bos: true,
            context_length: None,
        }
    }
}

/// A perplexity and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Perplexity {
    /// `exp(mean negative log-probability)`.
    pub perplexity: f64,
    /// Of `perplexity`, by the spread of the tokens' log-probabilities.
    pub standard_error: f64,
    /// Tokens that counted.
    pub tokens: usize,
    /// Windows that they were in.
    pub windows: usize,
}

impl TextModel {
    /// The perplexity of a text. `progress` hears how many windows are done, and how many there are.
    pub fn perplexity(
        &self,
        text: &str,
        options: &PerplexityOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Perplexity> {
        let before = options.bos && options.convention == Convention::MlxLm;
        let tokens = self.tokenizer.encode(text, before)?;
        self.perplexity_of(&tokens, options, progress)
    }

    /// The perplexity of tokens.
    pub fn perplexity_of(
        &self,
        tokens: &[u32],
        options: &PerplexityOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Perplexity> {
        let window = options.window;
        let context = options.context_length.or(self.model.info().context_length);
        if window < 2 || context.is_some_and(|context| window > context) {
            let most = context.map_or("any number".to_string(), |context| context.to_string());
            return Err(Error::argument("window", format!("2 to {most}"), window));
        }
        let mut windows: Vec<&[u32]> = tokens.chunks_exact(window).collect();
        let first = match options.convention {
            Convention::MlxLm => {
                if windows.is_empty() {
                    windows.push(tokens);
                }
                0
            }
            Convention::LlamaCpp => window / 2,
        };
        let needed = if options.convention == Convention::LlamaCpp { 2 * window } else { 2 };
        if tokens.len() < needed {
            return Err(Error::argument("text", format!("at least {needed} tokens"), tokens.len()));
        }
        let replaced = match (options.convention, options.bos) {
            (Convention::LlamaCpp, true) => self.tokenizer.bos(),
            _ => None,
        };
        let mut losses = Vec::new();
        for (index, window) in windows.iter().enumerate() {
            progress(index, windows.len());
            let mut window = window.to_vec();
            if let (Some(bos), Some(token)) = (replaced, window.first_mut()) {
                *token = bos;
            }
            self.losses(&window, first, &mut losses)?;
        }
        progress(windows.len(), windows.len());
        Ok(summary(&losses, windows.len()))
    }

    /// Negative log-probabilities of the tokens of a window, those after the one at `first`.
    fn losses(&self, window: &[u32], first: usize, losses: &mut Vec<f32>) -> Result<()> {
        let mut session = self.session(&GenerateOptions::default())?;
        let (inputs, targets) = (&window[..window.len() - 1], &window[1..]);
        // Where rotation follows the length of the text, a window is read at once, as in mlx-lm.
        let whole = self.model.info().dynamic_from.is_some_and(|from| inputs.len() > from);
        let rows = if whole { inputs.len() } else { ROWS };
        for start in (0..inputs.len()).step_by(rows.max(1)) {
            let end = inputs.len().min(start + rows);
            let logits = session.logits_of(&inputs[start..end])?;
            let targets =
                Array::from_slice_on(&targets[start..end], &[end - start], logits.device())?;
            let own = cross_entropy(&logits, &targets)?.to_vec::<f32>()?;
            losses.extend(own.into_iter().skip(first.saturating_sub(start)));
        }
        Ok(())
    }
}

fn summary(losses: &[f32], windows: usize) -> Perplexity {
    let count = losses.len() as f64;
    let mean = losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / count;
    let squares: f64 = losses.iter().map(|&loss| (f64::from(loss) - mean).powi(2)).sum();
    let spread = (squares / (count - 1.0).max(1.0)).sqrt();
    let perplexity = mean.exp();
    let standard_error = perplexity * spread / count.sqrt();
    Perplexity { perplexity, standard_error, tokens: losses.len(), windows }
}
