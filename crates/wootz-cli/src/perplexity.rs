//! `wootz perplexity`: how well a model predicts a text.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use wootz_lm::generate::{Convention, PerplexityOptions};

use crate::common::Common;
use crate::session::{Opened, open, setting, setting_json};
use crate::source::ModelOptions;

/// Options of `wootz perplexity`.
#[derive(clap::Args)]
#[command(after_help = "\
The lower, the better the model knows the text. Numbers can only be compared if tokenizer, windows and
convention are the same.

Examples:
  wootz perplexity text.txt
  wootz perplexity -m model.gguf text.txt --window 2048
  wootz perplexity -m model.gguf text.txt --convention llama.cpp     as llama-perplexity counts
  wootz perplexity text.txt --max-tokens 300 --window 300 --no-bos")]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelOptions,

    /// A text file.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Tokens that are seen together.
    #[arg(
        long,
        short = 'c',
        visible_alias = "sequence-length",
        value_name = "N",
        default_value_t = 512
    )]
    window: usize,

    /// Tokens that a window may have, also beyond the model's context [default: the model's].
    #[arg(long, value_name = "N")]
    context: Option<usize>,

    /// Only so many tokens from the beginning of the text.
    #[arg(long, short = 'n', value_name = "N")]
    max_tokens: Option<usize>,

    /// Which tokens count.
    #[arg(long, value_name = "NAME", default_value = "mlx-lm")]
    convention: Counting,

    /// Do not put the token before the text that texts begin with.
    #[arg(long)]
    no_bos: bool,

    /// Print JSON (docs/json.md).
    #[arg(long)]
    json: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Counting {
    /// All tokens of a window but the first.
    #[value(name = "mlx-lm")]
    MlxLm,
    /// The second half of each window.
    #[value(name = "llama.cpp")]
    LlamaCpp,
}

pub(crate) fn run(options: &Options, common: &Common) -> anyhow::Result<()> {
    let name = options.file.display().to_string();
    let bytes = std::fs::read(&options.file).with_context(|| name.clone())?;
    let text = String::from_utf8(bytes).map_err(|error| {
        anyhow!("{name}: not UTF-8 from byte {} on", error.utf8_error().valid_up_to())
    })?;
    let Opened { model, path, device } = open(&options.model, common)?;
    let convention = match options.convention {
        Counting::MlxLm => Convention::MlxLm,
        Counting::LlamaCpp => Convention::LlamaCpp,
    };
    let settings = PerplexityOptions {
        window: options.window,
        convention,
        bos: !options.no_bos,
        context_length: options.context,
    };
    let before = settings.bos && convention == Convention::MlxLm;
    let mut tokens = model.tokenizer.encode(&text, before)?;
    tokens.truncate(options.max_tokens.unwrap_or(usize::MAX));
    common.detail(format!("{} tokens, {}", tokens.len(), setting(&device, common)));
    let bar = bar(common);
    let started = Instant::now();
    let found = model.perplexity_of(&tokens, &settings, &mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();
    let memory = wootz_lm::generate::peak_memory(&device);
    if options.json {
        let object = json!({
            "model": options.model.name(), "path": path, "file": options.file, "perplexity": found,
            "window": settings.window, "convention": settings.convention, "seconds": seconds,
            "peak_memory": memory, "setting": setting_json(&device, common),
        });
        println!("{}", serde_json::to_string_pretty(&object)?);
        return Ok(());
    }
    if common.quiet {
        println!("{:.4}", found.perplexity);
        return Ok(());
    }
    println!("Perplexity: {:.4} ± {:.4}", found.perplexity, found.standard_error);
    println!("Tokens: {} in {} windows of {}", found.tokens, found.windows, settings.window);
    println!("Time: {seconds:.2} s, {:.1} tokens-per-sec", found.tokens as f64 / seconds.max(1e-9));
    println!("Peak memory: {:.3} GB", memory as f64 / 1e9);
    println!("Activations: {}", common.activations.name());
    Ok(())
}

fn bar(common: &Common) -> ProgressBar {
    if common.quiet {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} windows {eta}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
