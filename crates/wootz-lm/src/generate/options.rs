//! What can be asked of a generation, with defaults, validation, and what a model's own
//! `generation_config.json` says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cache::CacheOptions;
use crate::error::{Error, Result};
use crate::models::ModelInfo;

/// Settings of a generation. The default is greedy, as mlx-lm's. Names of fields are those of JSON;
/// unknown ones are errors.
///
/// ```
/// use wootz_lm::generate::GenerateOptions;
/// let options: GenerateOptions = serde_json::from_str(r#"{"temperature": 0.7, "top_k": 40}"#)?;
/// assert_eq!((options.temperature, options.max_tokens), (0.7, 256));
/// let wrong = GenerateOptions { top_p: 1.5, ..options };
/// assert_eq!(wrong.validate().unwrap_err().to_string(), "top_p: expected 0 to 1, got 1.5");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerateOptions {
    /// Tokens to generate at most.
    pub max_tokens: usize,
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
    /// How often the most probable tokens are left out; 0 is never.
    pub xtc_probability: f64,
    /// Tokens more probable than this can be left out, but for the least probable of them.
    pub xtc_threshold: f64,
    /// What is added to the logits of some tokens.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Logits of tokens seen lately are divided by this, negative ones multiplied; 1 changes nothing.
    pub repetition_penalty: f64,
    /// How many of the last tokens, the prompt's included, count as seen lately.
    pub repetition_context_size: usize,
    /// What is taken from the logits of tokens seen lately.
    pub presence_penalty: f64,
    /// As `repetition_context_size`, for `presence_penalty`.
    pub presence_context_size: usize,
    /// What is taken from the logits of tokens for every time they were seen lately.
    pub frequency_penalty: f64,
    /// As `repetition_context_size`, for `frequency_penalty`.
    pub frequency_context_size: usize,
    /// Where random numbers start: the same seed gives the same tokens, and those that mlx-lm draws
    /// after `mx.random.seed`. Without one the time of day decides.
    pub seed: Option<u64>,
    /// Texts that end the generation; they are not part of the output.
    pub stop: Vec<String>,
    /// Tokens that end the generation beside the tokenizer's own.
    pub stop_tokens: Vec<u32>,
    /// Whether tokens that end a text are generated like others. For measurements.
    pub ignore_eos: bool,
    /// How many of the most probable tokens each piece lists with their log-probabilities, beside that
    /// of its own token; 0 lists none.
    pub logprobs: usize,
    /// Tokens of the prompt that go through the model at once. Without a number 192: more take more memory, and
    /// are slightly quicker. But mlx-lm's 2048 where results depend on it, which they do with `max_kv_size` and `kv_bits`, and
    /// where rotary positions follow the length of the text.
    pub prefill_step: Option<usize>,
    /// Tokens that prompt and answer may have together, instead of the model's context. Beyond that a model has not
    /// learnt to read.
    pub context_length: Option<usize>,
    /// Tokens that a draft model proposes at once. None once there are more tokens than `max_kv_size`: read together, they
    /// would have other results.
    pub num_draft_tokens: usize,
    /// Most tokens that attention sees: older ones, but for the first four, are forgotten.
    pub max_kv_size: Option<usize>,
    /// Bits of a quantized cache.
    pub kv_bits: Option<usize>,
    /// Elements that share a scale in a quantized cache.
    pub kv_group_size: usize,
    /// From how many tokens on a cache is quantized.
    pub quantized_kv_start: usize,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        GenerateOptions {
            max_tokens: 256,
            temperature: 0.0,
            top_p: 1.0,
            min_p: 0.0,
            min_tokens_to_keep: 1,
            top_k: 0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            logit_bias: BTreeMap::new(),
            repetition_penalty: 1.0,
            repetition_context_size: 20,
            presence_penalty: 0.0,
            presence_context_size: 20,
            frequency_penalty: 0.0,
            frequency_context_size: 20,
            seed: None,
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            ignore_eos: false,
            logprobs: 0,
            prefill_step: None,
            context_length: None,
            num_draft_tokens: 3,
            max_kv_size: None,
            kv_bits: None,
            kv_group_size: 64,
            quantized_kv_start: 5000,
        }
    }
}

/// Tokens that are read at once.
const CHUNK: usize = 192;

/// The same in mlx-lm.
const CHUNK_OF_MLX: usize = 2048;

impl GenerateOptions {
    /// Whether every field can be honoured; the error names the first that cannot.
    pub fn validate(&self) -> Result<()> {
        at_least("max_tokens", self.max_tokens, 1)?;
        number("temperature", self.temperature, 0.0, f64::MAX)?;
        number("top_p", self.top_p, 0.0, 1.0)?;
        number("min_p", self.min_p, 0.0, 1.0)?;
        at_least("min_tokens_to_keep", self.min_tokens_to_keep, 1)?;
        number("xtc_probability", self.xtc_probability, 0.0, 1.0)?;
        number("xtc_threshold", self.xtc_threshold, 0.0, 0.5)?;
        if let Some((token, bias)) = self.logit_bias.iter().find(|(_, bias)| bias.is_nan()) {
            return Err(Error::argument(format!("logit_bias of {token}"), "a number", bias));
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite()) {
            let expected = "a finite number above 0";
            return Err(Error::argument("repetition_penalty", expected, self.repetition_penalty));
        }
        number("presence_penalty", self.presence_penalty, f64::MIN, f64::MAX)?;
        number("frequency_penalty", self.frequency_penalty, f64::MIN, f64::MAX)?;
        at_least("repetition_context_size", self.repetition_context_size, 1)?;
        at_least("presence_context_size", self.presence_context_size, 1)?;
        at_least("frequency_context_size", self.frequency_context_size, 1)?;
        if self.stop.iter().any(String::is_empty) {
            return Err(Error::argument("stop", "texts of at least one character", "\"\""));
        }
        at_least("prefill_step", self.prefill_step.unwrap_or(1), 1)?;
        at_least("context_length", self.context_length.unwrap_or(1), 1)?;
        let keep = CacheOptions::default().keep;
        if let Some(size) = self.max_kv_size.filter(|&size| size <= keep) {
            let expected = format!("more than the {keep} first tokens that are kept");
            return Err(Error::argument("max_kv_size", expected, size));
        }
        at_least("num_draft_tokens", self.num_draft_tokens, 1)?;
        at_least("kv_group_size", self.kv_group_size, 1)
    }

    /// Tokens that prompt and answer may have together, with a model; without a limit if there is none.
    pub fn context_of(&self, model: &ModelInfo) -> Option<usize> {
        self.context_length.or(model.context_length)
    }

    /// Tokens of a prompt that a model reads at once.
    pub fn prefill_step_of(&self, model: &ModelInfo) -> usize {
        let usual = if self.chunks_matter(model) { CHUNK_OF_MLX } else { CHUNK };
        self.prefill_step.unwrap_or(usual)
    }

    /// Whether results depend on the chunks that a prompt is read in: in a ring that keeps its first tokens, where tokens
    /// of a chunk see each other before they are quantized, and where rotation is that of the chunk's end.
    pub(crate) fn chunks_matter(&self, model: &ModelInfo) -> bool {
        self.max_kv_size.is_some() || self.kv_bits.is_some() || model.dynamic_from.is_some()
    }

    /// Tokens that come before keys and values of a text are quantized, if they are while at most so many are generated.
    pub(crate) fn until_quantized(&self, prompt: usize, most: usize) -> Option<usize> {
        let left = self.quantized_kv_start.saturating_sub(prompt);
        (self.kv_bits.is_some() && left <= most).then_some(left)
    }

    /// The cache that these settings ask for, for so many sequences at once.
    pub fn cache_options(&self, batch: usize) -> CacheOptions {
        CacheOptions {
            max_kv_size: self.max_kv_size,
            kv_bits: self.kv_bits,
            kv_group_size: self.kv_group_size,
            quantized_kv_start: self.quantized_kv_start,
            batch,
            ..CacheOptions::default()
        }
    }

    /// The defaults, changed to what a model's `generation_config.json` asks for. It counts only if
    /// it says `do_sample`, as everywhere: without that the most probable token is taken.
    pub fn from_generation_config(config: &Value) -> Result<GenerateOptions> {
        let mut options = GenerateOptions::default();
        let number = |key: &str| match config.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(Error::argument(key, "a number", value)),
            },
        };
        if let Some(penalty) = number("repetition_penalty")? {
            options.repetition_penalty = penalty;
        }
        if config.get("do_sample").and_then(Value::as_bool) == Some(true) {
            options.temperature = number("temperature")?.unwrap_or(1.0);
            options.top_p = number("top_p")?.unwrap_or(options.top_p);
            options.min_p = number("min_p")?.unwrap_or(options.min_p);
            options.top_k = match number("top_k")? {
                Some(k) if k >= 0.0 && k.fract() == 0.0 => k as usize,
                Some(k) => return Err(Error::argument("top_k", "a whole number of at least 0", k)),
                None => 0,
            };
        }
        options.validate()?;
        Ok(options)
    }
}

fn at_least(field: &str, value: usize, least: usize) -> Result<()> {
    match value >= least {
        true => Ok(()),
        false => Err(Error::argument(field, format!("at least {least}"), value)),
    }
}

fn number(field: &str, value: f64, least: f64, most: f64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let expected = match (least == f64::MIN, most == f64::MAX) {
        (true, _) => "a finite number".to_string(),
        (false, true) => format!("a finite number of at least {least}"),
        (false, false) => format!("{least} to {most}"),
    };
    Err(Error::argument(field, expected, value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_names_the_field_and_its_value() {
        let good = GenerateOptions::default();
        good.validate().unwrap();
        let bad = [
            (GenerateOptions { max_tokens: 0, ..good.clone() }, "max_tokens", "0"),
            (GenerateOptions { temperature: -0.5, ..good.clone() }, "temperature", "-0.5"),
            (GenerateOptions { temperature: f64::NAN, ..good.clone() }, "temperature", "NaN"),
            (GenerateOptions { min_p: 2.0, ..good.clone() }, "min_p", "2"),
            (GenerateOptions { xtc_threshold: 0.7, ..good.clone() }, "xtc_threshold", "0.7"),
            (
                GenerateOptions { repetition_penalty: 0.0, ..good.clone() },
                "repetition_penalty",
                "0",
            ),
            (GenerateOptions { stop: vec![String::new()], ..good.clone() }, "stop", "\"\""),
            (GenerateOptions { prefill_step: Some(0), ..good.clone() }, "prefill_step", "0"),
            (GenerateOptions { max_kv_size: Some(4), ..good.clone() }, "max_kv_size", "4"),
        ];
        for (options, field, got) in bad {
            let text = options.validate().unwrap_err().to_string();
            assert!(text.starts_with(&format!("{field}: ")) && text.ends_with(got), "{text}");
        }
    }

    #[test]
    fn json_has_defaults_and_refuses_unknown_names() {
        let text = r#"{"stop": ["\n"], "logit_bias": {"5": -2.5}, "seed": 7}"#;
        let options: GenerateOptions = serde_json::from_str(text).unwrap();
        assert_eq!((options.seed, options.logit_bias[&5]), (Some(7), -2.5));
        let again: GenerateOptions =
            serde_json::from_value(serde_json::to_value(&options).unwrap()).unwrap();
        assert_eq!(again, options);
        let unknown = serde_json::from_str::<GenerateOptions>(r#"{"temprature": 1}"#);
        assert!(unknown.unwrap_err().to_string().contains("temprature"));
    }

    #[test]
    fn a_generation_config_counts_if_it_samples() {
        let config = json!({ "do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95 });
        let options = GenerateOptions::from_generation_config(&config).unwrap();
        assert_eq!((options.temperature, options.top_k, options.top_p), (0.6, 20, 0.95));
        let config = json!({ "temperature": 0.6, "repetition_penalty": 1.1 });
        let options = GenerateOptions::from_generation_config(&config).unwrap();
        assert_eq!((options.temperature, options.repetition_penalty), (0.0, 1.1));
        let config = json!({ "do_sample": true, "top_p": "much" });
        let error = GenerateOptions::from_generation_config(&config).unwrap_err().to_string();
        assert_eq!(error, "top_p: expected a number, got \"much\"");
    }
}
