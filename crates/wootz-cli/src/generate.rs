//! `wootz generate`: continues a text or answers a question, as it comes.

use std::io::{self, IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use wootz_lm::generate::{FinishReason, Piece, PromptCache, Statistics, TextModel};
use wootz_lm::tokenizer::{ChatOptions, Message};

use crate::common::Common;
use crate::failure::{WithHint, expect_folder_of, hinted, usage};
use crate::sampling::Sampling;
use crate::session::{Opened, open, setting, setting_json};
use crate::several::{self, How};
use crate::source::ModelOptions;

/// Options of `wootz generate`.
#[derive(clap::Args)]
#[command(after_help = "\
Without --model, SmolLM2-135M-Instruct is used: from the cache, from Hugging Face, or from the Python
package index. Numbers after the answer are mlx-lm's: the speed of reading and of writing, and memory.

Examples:
  wootz generate -p \"Why is the sky blue?\"
  wootz generate -m qwen3-0.6b -p \"Write a haiku\" --temp 0.7 --seed 1
  wootz generate -m model.gguf -p \"The capital of France is\" --ignore-chat-template -n 5
  wootz generate -m model.gguf -p \"One\" -p \"Two\" -p \"Three\" --json
  cat letter.txt | wootz generate --system-prompt \"Summarize the text\" --quiet
  wootz generate -m ./folder -p \"Hello\" --json")]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelOptions,

    /// The question or text; - reads it from standard input, as does leaving it out in a pipe. Given several times, all are
    /// answered at once.
    #[arg(long, short = 'p', value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Vec<String>,

    /// What the model is told to be, before the prompt.
    #[arg(long, value_name = "TEXT")]
    system_prompt: Option<String>,

    /// The beginning of the answer.
    #[arg(long, value_name = "TEXT")]
    prefill_response: Option<String>,

    /// Continue the prompt as it is, without the model's chat template.
    #[arg(long, conflicts_with_all = ["system_prompt", "prefill_response", "chat_template_config"])]
    ignore_chat_template: bool,

    /// Variables for the chat template, as JSON: '{"enable_thinking": false}'.
    #[arg(long, value_name = "JSON")]
    chat_template_config: Option<String>,

    /// Another token that ends the answer; may be repeated.
    #[arg(long, value_name = "TOKEN")]
    extra_eos_token: Vec<String>,

    #[command(flatten)]
    sampling: Sampling,

    /// A file that keeps what was computed: read if it is there, and written at the end.
    #[arg(long, value_name = "FILE", help_heading = "Memory")]
    prompt_cache_file: Option<PathBuf>,

    /// A small model with the same tokens that guesses ahead; the answer does not change.
    #[arg(long, value_name = "MODEL", help_heading = "Speculative decoding")]
    draft_model: Option<String>,

    /// Tokens that it guesses at a time [default: 3].
    #[arg(long, value_name = "N", requires = "draft_model", help_heading = "Speculative decoding")]
    num_draft_tokens: Option<usize>,

    /// Print one JSON object at the end (docs/json.md) instead of text and numbers; of several prompts one each, in lines.
    #[arg(long)]
    json: bool,

    /// With --json: the log-probability of each token, and of so many likeliest ones.
    #[arg(long, value_name = "N", requires = "json")]
    logprobs: Option<usize>,
}

/// Tokens of an answer, unless others are asked for: mlx-lm's number.
const MAX_TOKENS: usize = 100;

pub(crate) fn run(options: &Options, common: &Common) -> anyhow::Result<()> {
    let prompts = read_prompts(&options.prompt)?;
    if prompts.len() > 1 {
        expect_one_prompt(options)?;
    }
    options.prompt_cache_file.iter().try_for_each(|file| expect_folder_of(file))?;
    let Opened { model, path, device } = open(&options.model, common)?;
    let mut settings = options.sampling.options(&model, MAX_TOKENS, common)?;
    // A token's own comes with those of the likeliest, of which there is at least one then.
    settings.logprobs = options.logprobs.map_or(0, |listed| listed.max(1));
    if let Some(count) = options.num_draft_tokens {
        settings.num_draft_tokens = count;
    }
    for token in &options.extra_eos_token {
        let id = model.tokenizer.id(token);
        settings.stop_tokens.push(
            id.ok_or_else(|| anyhow!("--extra-eos-token: the model has no token {token:?}"))?,
        );
    }
    settings.validate().map_err(|error| usage(error.to_string()))?;
    let mut tokens = Vec::with_capacity(prompts.len());
    for prompt in &prompts {
        tokens.push(encode(&model, prompt, options)?);
    }
    if prompts.len() > 1 {
        let opened = Opened { model, path, device };
        let how =
            How { name: options.model.name(), json: options.json, logprobs: options.logprobs };
        return several::answer(&opened, &prompts, &tokens, &settings, &how, common);
    }
    let tokens = tokens.into_iter().flatten().collect();
    let draft = match &options.draft_model {
        None => None,
        Some(name) => {
            let draft = ModelOptions { model: Some(name.clone()), ..ModelOptions::default() };
            Some(open(&draft, common).context("--draft-model")?.model)
        }
    };
    let kept = options
        .prompt_cache_file
        .as_ref()
        .map(|file| load_cache(file, &model, common))
        .transpose()?;
    let mut request = model.request(tokens).options(&settings);
    if let Some(draft) = &draft {
        request = request.draft(draft);
    }
    if let Some(kept) = &kept {
        request = request.prompt_cache(kept);
    }
    common.detail(setting(&device, common));
    let bar = prompt_bar(common);
    let mut generation = request.start_with(&mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        ControlFlow::Continue(())
    })?;
    bar.finish_and_clear();
    let mut out = io::stdout().lock();
    let talks = !options.json && !common.quiet;
    if talks {
        writeln!(out, "==========")?;
    }
    let (mut text, mut pieces, mut finish) = (String::new(), Vec::new(), None);
    for piece in &mut generation {
        let piece = piece?;
        if options.json {
            text.push_str(&piece.text);
        } else {
            write!(out, "{}", piece.text)?;
            out.flush()?;
        }
        if let Some(listed) = options.logprobs {
            pieces.push(logprobs_json(&piece, listed));
        }
        finish = piece.finish_reason.or(finish);
    }
    let statistics = generation.statistics();
    let all = generation.tokens().to_vec();
    drop(generation);
    if let (Some(file), Some(kept)) = (&options.prompt_cache_file, &kept) {
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.save(file, model.model.as_ref())?;
    }
    if options.json {
        let generated = all.get(statistics.prompt_tokens..).unwrap_or_default();
        let mut object = json!({
            "model": options.model.name(), "path": path, "text": text, "tokens": generated,
            "finish_reason": finish.as_ref().map(FinishReason::name),
            "setting": setting_json(&device, common), "statistics": statistics_json(&statistics),
        });
        if options.logprobs.is_some() {
            object["logprobs"] = Value::Array(pieces);
        }
        writeln!(out, "{}", serde_json::to_string_pretty(&object)?)?;
        return Ok(());
    }
    writeln!(out)?;
    if talks {
        writeln!(out, "==========\n{statistics}")?;
        writeln!(out, "Activations: {}", common.activations.name())?;
    }
    Ok(())
}

/// What is told of a token as JSON, with so many of the likeliest.
pub(crate) fn logprobs_json(piece: &Piece, listed: usize) -> Value {
    let likeliest = &piece.top_logprobs[..listed.min(piece.top_logprobs.len())];
    json!({
        "token": piece.token, "text": piece.text, "logprob": piece.logprob,
        "top_logprobs": likeliest,
    })
}

/// The counts and speeds of a generation as JSON.
pub(crate) fn statistics_json(statistics: &Statistics) -> Value {
    json!({
        "prompt_tokens": statistics.prompt_tokens,
        "cached_tokens": statistics.cached_tokens,
        "prompt_tokens_per_second": statistics.prompt_tokens_per_second(),
        "time_to_first_token": statistics.time_to_first_token,
        "generation_tokens": statistics.generation_tokens,
        "generation_tokens_per_second": statistics.generation_tokens_per_second(),
        "generation_time": statistics.generation_time,
        "draft_tokens": statistics.draft_tokens,
        "peak_memory": statistics.peak_memory,
    })
}

/// An error if an option is given that is for one prompt only.
fn expect_one_prompt(options: &Options) -> anyhow::Result<()> {
    for (option, given) in [
        ("--prompt-cache-file", options.prompt_cache_file.is_some()),
        ("--draft-model", options.draft_model.is_some()),
    ] {
        if given {
            let count = options.prompt.len();
            return Err(usage(format!("{option} is for one prompt, and {count} are given")));
        }
    }
    Ok(())
}

/// The prompts: as given, or one from standard input.
fn read_prompts(given: &[String]) -> anyhow::Result<Vec<String>> {
    match given.is_empty() {
        true => Ok(vec![read_prompt(None)?]),
        false => given.iter().map(|prompt| read_prompt(Some(prompt))).collect(),
    }
}

/// A prompt: as given, or from standard input.
fn read_prompt(given: Option<&str>) -> anyhow::Result<String> {
    let prompt = match given {
        Some("-") => read_input()?,
        // As mlx-lm, because shells make line breaks hard to type.
        Some(text) => text.replace("\\n", "\n").replace("\\t", "\t"),
        None if io::stdin().is_terminal() => {
            return Err(hinted(
                usage("there is no prompt"),
                "give one with --prompt, or through a pipe",
            ));
        }
        None => read_input()?,
    };
    if prompt.is_empty() {
        return Err(hinted(
            usage("the prompt is empty"),
            "give one with --prompt, or through a pipe",
        ));
    }
    Ok(prompt)
}

fn read_input() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).context("standard input")?;
    String::from_utf8(bytes).map_err(|error| {
        anyhow!("standard input: not UTF-8 from byte {} on", error.utf8_error().valid_up_to())
    })
}

/// The prompt's tokens, in the model's chat template if it has one.
fn encode(model: &TextModel, prompt: &str, options: &Options) -> anyhow::Result<Vec<u32>> {
    if options.ignore_chat_template || !model.tokenizer.has_chat_template() {
        if options.system_prompt.is_some()
            || options.prefill_response.is_some()
            || options.chat_template_config.is_some()
        {
            return Err(anyhow!("the model has no chat template"))
                .hint("leave out --system-prompt, --prefill-response and --chat-template-config");
        }
        return Ok(model.encode(prompt)?);
    }
    let mut messages = Vec::new();
    messages.extend(options.system_prompt.as_ref().map(|text| Message::new("system", text)));
    messages.push(Message::new("user", prompt));
    let mut chat = chat_options(options.chat_template_config.as_deref())?;
    let text = match &options.prefill_response {
        None => model.tokenizer.apply_chat_template(&messages, &chat)?,
        Some(begun) => {
            messages.push(Message::new("assistant", begun));
            chat.add_generation_prompt = false;
            begun_answer(&model.tokenizer.apply_chat_template(&messages, &chat)?, begun)?
        }
    };
    // The template writes the tokens that a text begins with.
    Ok(model.tokenizer.encode(&text, false)?)
}

/// A conversation up to the end of its last message, without what the template writes behind it: as Hugging
/// Face's `continue_final_message`.
fn begun_answer(text: &str, last: &str) -> anyhow::Result<String> {
    let (bare, from_first) = (last.trim(), last.trim_start());
    let Some(place) = text.rfind(bare) else {
        return Err(anyhow!("the chat template does not write the last message as it is"))
            .hint("leave out --prefill-response");
    };
    // Spaces at its end stay if the template keeps them.
    let kept = if text[place..].starts_with(from_first) { from_first } else { bare };
    Ok(text[..place + kept.len()].to_string())
}

/// Variables of a chat template.
pub(crate) fn chat_options(config: Option<&str>) -> anyhow::Result<ChatOptions> {
    let mut chat = ChatOptions::default();
    if let Some(config) = config {
        chat.variables = serde_json::from_str(config).map_err(|error| {
            usage(format!("--chat-template-config: expected a JSON object: {error}"))
        })?;
    }
    Ok(chat)
}

/// What an earlier run left in a file.
fn load_cache(
    file: &Path,
    model: &TextModel,
    common: &Common,
) -> anyhow::Result<Mutex<PromptCache>> {
    let mut kept = PromptCache::new(usize::MAX);
    if file.exists() {
        let tokens = kept.load(file, model.model.as_ref())?;
        common.detail(format!("{}: {tokens} tokens", file.display()));
    }
    Ok(Mutex::new(kept))
}

/// Progress over a prompt that takes a while.
pub(crate) fn prompt_bar(common: &Common) -> ProgressBar {
    if common.quiet {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("reading {wide_bar} {pos}/{len} tokens");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_begun_answer_ends_where_it_was_begun() {
        let text = "<user>Sure?</end><assistant>Sure </end>\n";
        assert_eq!(begun_answer(text, "Sure ").unwrap(), "<user>Sure?</end><assistant>Sure ");
        let trimmed = "<user>Sure?</end><assistant>Sure</end>\n";
        assert_eq!(begun_answer(trimmed, " Sure ").unwrap(), "<user>Sure?</end><assistant>Sure");
        assert!(begun_answer(text, "No").is_err());
    }
}
