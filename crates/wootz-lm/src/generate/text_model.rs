//! A model with its tokenizer, opened from files: what most users need.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::options::GenerateOptions;
use super::sampler::TokenSampler;
use super::session::Session;
use super::stream::{Generation, Request};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::models::{LanguageModel, LoadOptions, load};
use crate::tokenizer::Tokenizer;

/// A model, its tokenizer, and the settings that come with it.
///
/// ```no_run
/// use std::io::Write;
/// use wootz_lm::generate::TextModel;
/// use wootz_lm::models::LoadOptions;
///
/// let model = TextModel::open("SmolLM2-135M-Instruct.Q4_1.gguf", &LoadOptions::default())?;
/// let options = model.default_options().clone();
/// let mut generation = model.generate("The capital of France is", &options)?;
/// for piece in &mut generation {
///     print!("{}", piece?.text);
///     std::io::stdout().flush().ok();
/// }
/// println!("\n{}", generation.statistics());
/// # Ok::<(), wootz_lm::Error>(())
/// ```
pub struct TextModel {
    /// The model.
    pub model: Arc<dyn LanguageModel>,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    defaults: GenerateOptions,
    defaults_from: Option<PathBuf>,
}

impl TextModel {
    /// Opens a folder in MLX's layout or a GGUF file. If the folder has a `generation_config.json`,
    /// its sampling settings become the model's defaults; [`defaults_from`](Self::defaults_from)
    /// says so.
    pub fn open(path: impl AsRef<Path>, options: &LoadOptions) -> Result<TextModel> {
        let path = path.as_ref();
        let checkpoint = Checkpoint::open(path)?;
        let tokenizer = match checkpoint.gguf() {
            Some(gguf) => Tokenizer::from_gguf(gguf)?,
            None => Tokenizer::open(path)?,
        };
        let mut text_model = TextModel::new(load(&checkpoint, options)?, tokenizer);
        let config = path.join("generation_config.json");
        if path.is_dir() && config.is_file() {
            text_model.defaults = read_defaults(&config)?;
            text_model.defaults_from = Some(config);
        }
        Ok(text_model)
    }

    /// A model and its tokenizer from elsewhere; the defaults are greedy.
    pub fn new(model: Arc<dyn LanguageModel>, tokenizer: Tokenizer) -> TextModel {
        TextModel { model, tokenizer, defaults: GenerateOptions::default(), defaults_from: None }
    }

    /// The settings that the model comes with.
    pub fn default_options(&self) -> &GenerateOptions {
        &self.defaults
    }

    /// The file that [`default_options`](Self::default_options) come from, if it is not mlx-lm's
    /// defaults: greedy, 256 tokens.
    pub fn defaults_from(&self) -> Option<&Path> {
        self.defaults_from.as_deref()
    }

    /// Continues a text.
    pub fn generate(&self, prompt: &str, options: &GenerateOptions) -> Result<Generation<'_>> {
        self.request(self.encode(prompt)?).options(options).start()
    }

    /// A generation from tokens, to be given a draft model or a prompt cache before it starts.
    pub fn request(&self, tokens: Vec<u32>) -> Request<'_> {
        Request::new(self, tokens)
    }

    /// The tokens of a prompt, with those that a text begins with unless it has them already.
    pub fn encode(&self, prompt: &str) -> Result<Vec<u32>> {
        let begins = self.tokenizer.bos().and_then(|bos| self.tokenizer.token(bos));
        let has_begin = begins.is_some_and(|begin| prompt.starts_with(&begin));
        let tokens = self.tokenizer.encode(prompt, !has_begin)?;
        match tokens.is_empty() {
            false => Ok(tokens),
            true => Err(Error::argument("prompt", "text of at least one token", "none")),
        }
    }

    /// A fresh session for one sequence.
    pub(crate) fn session(&self, options: &GenerateOptions) -> Result<Session> {
        Session::new(self.model.clone(), &options.cache_options(1))
    }

    /// The sampler of these settings. As in mlx-lm, XTC spares line breaks and ends of texts.
    pub(crate) fn sampler(&self, options: &GenerateOptions) -> Result<TokenSampler> {
        let mut special = Vec::new();
        if options.xtc_probability > 0.0 {
            special = self.tokenizer.encode("\n", false)?;
            special.extend_from_slice(self.tokenizer.eos());
        }
        let info = self.model.info();
        TokenSampler::new(options, &special, info.vocab_size, &info.device)
    }

    /// How many tokens can follow the prompt: each but the last goes through the model.
    pub(crate) fn most_tokens(&self, prompt: &[u32], options: &GenerateOptions) -> usize {
        match options.context_of(self.model.info()) {
            Some(context) => options.max_tokens.min(context.saturating_sub(prompt.len()) + 1),
            None => options.max_tokens,
        }
    }
}

fn read_defaults(path: &Path) -> Result<GenerateOptions> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
    let config = serde_json::from_str(&text).map_err(|error| Error::invalid(path, error))?;
    GenerateOptions::from_generation_config(&config).map_err(|error| Error::invalid(path, error))
}
