//! Options of how text is generated, with mlx-lm's names, for every command that generates.

use wootz_lm::generate::{GenerateOptions, TextModel};

use crate::common::Common;
use crate::failure::usage;

/// How tokens are chosen, and what is remembered.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Sampling {
    /// Tokens to generate at most [default: 100; in a chat 256].
    #[arg(long, short = 'n', value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    max_tokens: Option<usize>,

    /// 0 takes the likeliest token, 1 draws with the model's probabilities [default: 0].
    #[arg(
        long,
        visible_alias = "temperature",
        value_name = "X",
        allow_negative_numbers = true,
        help_heading = SAMPLING
    )]
    temp: Option<f64>,

    /// Draw among the likeliest tokens that together have this probability [default: 1].
    #[arg(long, value_name = "P", help_heading = SAMPLING)]
    top_p: Option<f64>,

    /// Draw among tokens with at least this part of the highest probability [default: 0].
    #[arg(long, value_name = "P", help_heading = SAMPLING)]
    min_p: Option<f64>,

    /// Keep at least so many tokens when --min-p filters.
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    min_tokens_to_keep: Option<usize>,

    /// Draw among so many of the likeliest tokens; 0 for all [default: 0].
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    top_k: Option<usize>,

    /// How often the likeliest tokens are left out.
    #[arg(long, value_name = "P", help_heading = SAMPLING)]
    xtc_probability: Option<f64>,

    /// Tokens likelier than this may be left out.
    #[arg(long, value_name = "P", help_heading = SAMPLING)]
    xtc_threshold: Option<f64>,

    /// Where random numbers start: the same seed gives the same text.
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    seed: Option<u64>,

    /// Make tokens that were there lately less likely; 1 does not.
    #[arg(long, value_name = "X", help_heading = SAMPLING)]
    repetition_penalty: Option<f64>,

    /// How many tokens count as lately.
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    repetition_context_size: Option<usize>,

    /// Taken from the logits of tokens that were there lately.
    #[arg(long, value_name = "X", allow_hyphen_values = true, help_heading = SAMPLING)]
    presence_penalty: Option<f64>,

    /// Taken from the logits of tokens for each time that they were there lately.
    #[arg(long, value_name = "X", allow_hyphen_values = true, help_heading = SAMPLING)]
    frequency_penalty: Option<f64>,

    /// Add to a token's logit, as 1234:-5; may be repeated.
    #[arg(long, value_name = "TOKEN:X", allow_hyphen_values = true, help_heading = SAMPLING)]
    logit_bias: Vec<String>,

    /// A text that ends the answer; may be repeated.
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,

    /// Remember at most so many tokens: the first four and the latest.
    #[arg(long, short = 'c', value_name = "N", help_heading = MEMORY)]
    max_kv_size: Option<usize>,

    /// Bits of a quantized memory: 4, 6 or 8; also 2, 3 and 5.
    #[arg(long, value_name = "BITS", value_parser = kv_bits, help_heading = MEMORY)]
    kv_bits: Option<usize>,

    /// Numbers that share a scale in a quantized memory: 32, 64 or 128 [default: 64].
    #[arg(long, value_name = "N", value_parser = kv_group_size, help_heading = MEMORY)]
    kv_group_size: Option<usize>,

    /// From how many tokens on the memory is quantized [default: 5000].
    #[arg(long, value_name = "N", help_heading = MEMORY)]
    quantized_kv_start: Option<usize>,

    /// Tokens that prompt and answer may have together, also beyond the model's context [default: the model's].
    #[arg(long, value_name = "N", help_heading = MEMORY)]
    context: Option<usize>,

    /// Tokens of the prompt that are read at once (default 192; with --max-kv-size or --kv-bits, and where rotary positions
    /// follow the length of the text, 2048 as in mlx-lm; more are slightly quicker and take more memory).
    #[arg(long, value_name = "N", help_heading = MEMORY)]
    prefill_step_size: Option<usize>,
}

const SAMPLING: &str = "Sampling";
const MEMORY: &str = "Memory";

fn whole(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected a whole number of at least 1".to_string())
}

fn kv_bits(text: &str) -> Result<usize, String> {
    one_of(text, &[2, 3, 4, 5, 6, 8])
}

fn kv_group_size(text: &str) -> Result<usize, String> {
    one_of(text, &[32, 64, 128])
}

fn one_of(text: &str, allowed: &[usize]) -> Result<usize, String> {
    let given = text.parse().ok().filter(|number| allowed.contains(number));
    given.ok_or_else(|| {
        let listed: Vec<String> = allowed.iter().map(usize::to_string).collect();
        format!("expected one of {}", listed.join(", "))
    })
}

impl Sampling {
    /// The options, on top of what the model's `generation_config.json` asks for, if it has one. A command
    /// has its usual number of tokens.
    pub(crate) fn options(
        &self,
        model: &TextModel,
        max_tokens: usize,
        common: &Common,
    ) -> anyhow::Result<GenerateOptions> {
        let mut options = from_model(model, common);
        options.max_tokens = self.max_tokens.unwrap_or(max_tokens);
        let set = |to: &mut f64, from: Option<f64>| *to = from.unwrap_or(*to);
        set(&mut options.temperature, self.temp);
        set(&mut options.top_p, self.top_p);
        set(&mut options.min_p, self.min_p);
        set(&mut options.xtc_probability, self.xtc_probability);
        set(&mut options.xtc_threshold, self.xtc_threshold);
        set(&mut options.repetition_penalty, self.repetition_penalty);
        set(&mut options.presence_penalty, self.presence_penalty);
        set(&mut options.frequency_penalty, self.frequency_penalty);
        let set = |to: &mut usize, from: Option<usize>| *to = from.unwrap_or(*to);
        set(&mut options.min_tokens_to_keep, self.min_tokens_to_keep);
        set(&mut options.top_k, self.top_k);
        set(&mut options.repetition_context_size, self.repetition_context_size);
        set(&mut options.kv_group_size, self.kv_group_size);
        set(&mut options.quantized_kv_start, self.quantized_kv_start);
        options.prefill_step = self.prefill_step_size.or(options.prefill_step);
        options.context_length = self.context.or(options.context_length);
        options.seed = self.seed;
        options.stop = self.stop.clone();
        options.max_kv_size = self.max_kv_size;
        options.kv_bits = self.kv_bits;
        for bias in &self.logit_bias {
            let parsed = bias.split_once(':').and_then(|(token, bias)| {
                Some((token.trim().parse().ok()?, bias.trim().parse().ok()?))
            });
            let (token, bias) = parsed.ok_or_else(|| {
                usage(format!(
                    "--logit-bias: expected a token's number and a bias, as 1234:-5, got {bias:?}"
                ))
            })?;
            options.logit_bias.insert(token, bias);
        }
        options.validate().map_err(|error| usage(error.to_string()))?;
        Ok(options)
    }
}

/// What a model asks for itself.
fn from_model(model: &TextModel, common: &Common) -> GenerateOptions {
    let options = model.default_options().clone();
    if let Some(path) = model.defaults_from()
        && options != GenerateOptions::default()
    {
        common.say(format!(
            "Sampling as {} asks: temperature {}, top-p {}, top-k {}, repetition penalty {}.",
            path.display(),
            options.temperature,
            options.top_p,
            options.top_k,
            options.repetition_penalty
        ));
    }
    options
}
