//! `wootz bench`: how fast a model reads a prompt and writes an answer.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;
use wootz::gpu::GpuCounters;
use wootz_lm::generate::{GenerateOptions, Statistics, TextModel};

use crate::common::Common;
use crate::failure::{expect_folder_of, usage};
use crate::generate::statistics_json;
use crate::plot::{Chart, svg};
use crate::session::{Opened, open, setting, setting_json};
use crate::source::ModelOptions;

/// Options of `wootz bench`.
#[derive(clap::Args)]
#[command(after_help = "\
One run warms up and is not counted. Measure on a quiet machine.

Examples:
  wootz bench
  wootz bench -m model.gguf -p 512,2048 -g 128 --threads 4
  wootz bench -m model.gguf --activations fast --json
  wootz bench -m model.gguf -p 128,512,2048 --plot speed.svg")]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelOptions,

    /// Tokens of the prompt; several sizes with commas.
    #[arg(long, short = 'p', value_name = "N", value_delimiter = ',', default_value = "512")]
    prompt_tokens: Vec<usize>,

    /// Tokens that are generated.
    #[arg(long, short = 'g', value_name = "N", default_value_t = 128)]
    generation_tokens: usize,

    /// Runs that are counted.
    #[arg(long, short = 'n', visible_alias = "repeats", value_name = "N", default_value_t = 5)]
    num_trials: usize,

    /// Tokens of the prompt that are read at once (default 192; more are slightly quicker and take more memory).
    #[arg(long, value_name = "N")]
    prefill_step_size: Option<usize>,

    /// Print JSON (docs/json.md).
    #[arg(long)]
    json: bool,

    /// Also write a chart, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// The runs with one size of prompt.
struct Row {
    prompt: usize,
    runs: Vec<Statistics>,
    /// Of the last run, on a GPU.
    launches: Option<Launches>,
}

/// What a token takes of a GPU.
#[derive(Clone, Copy)]
struct Launches {
    dispatches: f64,
    submissions: f64,
    layers: usize,
}

impl Launches {
    /// From counters before and behind so many steps.
    fn new(before: GpuCounters, after: GpuCounters, steps: usize, layers: usize) -> Launches {
        let each = |count: u64| count as f64 / steps.max(1) as f64;
        Launches {
            dispatches: each(after.dispatches - before.dispatches),
            submissions: each(after.submissions - before.submissions),
            layers,
        }
    }

    /// Those of embeddings, output layer and sampler are shared out among the layers.
    fn per_layer(&self) -> f64 {
        self.dispatches / self.layers.max(1) as f64
    }
}

impl Row {
    fn each(&self, value: impl Fn(&Statistics) -> f64) -> Vec<f64> {
        self.runs.iter().map(value).collect()
    }
}

pub(crate) fn run(options: &Options, common: &Common) -> anyhow::Result<()> {
    if options.num_trials == 0 {
        return Err(usage("--num-trials: expected at least 1, got 0"));
    }
    options.plot.iter().try_for_each(|file| expect_folder_of(file))?;
    let Opened { model, path, device } = open(&options.model, common)?;
    let defaults = GenerateOptions::default();
    let settings = GenerateOptions {
        max_tokens: options.generation_tokens,
        ignore_eos: true,
        prefill_step: options.prefill_step_size.or(defaults.prefill_step),
        ..defaults
    };
    settings.validate().map_err(|error| usage(error.to_string()))?;
    expect_room(&model, options)?;
    let talks = !options.json && !common.quiet;
    if talks {
        println!("{} on {}", options.model.name(), setting(&device, common));
    }
    let mut rows = Vec::new();
    for &prompt in &options.prompt_tokens {
        let tokens = tokens(&model, prompt)?;
        measure(&model, &tokens, &settings)?;
        let (mut runs, mut launches) = (Vec::new(), None);
        for trial in 1..=options.num_trials {
            let (statistics, counted) = measure(&model, &tokens, &settings)?;
            launches = counted;
            if talks {
                println!(
                    "Trial {trial}: prompt_tokens={prompt}, prompt_tps={:.3}, generation_tps={:.3}, peak_memory={:.3}",
                    statistics.prompt_tokens_per_second(),
                    statistics.generation_tokens_per_second(),
                    statistics.peak_memory as f64 / 1e9,
                );
            }
            runs.push(statistics);
        }
        rows.push(Row { prompt, runs, launches });
    }
    if options.json {
        let object = json!({
            "model": options.model.name(), "path": path, "setting": setting_json(&device, common),
            "generation_tokens": options.generation_tokens,
            "results": rows.iter().map(row_json).collect::<Vec<_>>(),
        });
        println!("{}", serde_json::to_string_pretty(&object)?);
    } else {
        rows.iter().for_each(|row| print_row(row, options.generation_tokens));
    }
    if let Some(file) = &options.plot {
        let heading = format!("{} on {}", options.model.name(), setting(&device, common));
        std::fs::write(file, plot(&heading, &rows))
            .with_context(|| format!("{}", file.display()))?;
        common.say(format!("The chart is {}.", file.display()));
    }
    Ok(())
}

/// An error if a run would end early, because the model's context is full.
fn expect_room(model: &TextModel, options: &Options) -> anyhow::Result<()> {
    let (Some(most), generated) = (model.model.info().context_length, options.generation_tokens)
    else {
        return Ok(());
    };
    match options.prompt_tokens.iter().find(|&&prompt| prompt.saturating_add(generated) > most) {
        None => Ok(()),
        Some(prompt) => Err(usage(format!(
            "--prompt-tokens {prompt} and --generation-tokens {generated}: expected at most {most} together, the \
             model's context, got {}",
            prompt.saturating_add(generated)
        ))),
    }
}

/// Tokens of all kinds, the same in every run.
fn tokens(model: &TextModel, count: usize) -> anyhow::Result<Vec<u32>> {
    let info = model.model.info();
    if count == 0 {
        return Err(usage("--prompt-tokens: expected at least 1, got 0"));
    }
    let mut state = 1u64;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) % info.vocab_size.max(1) as u64) as u32
    };
    Ok((0..count).map(next).collect())
}

fn measure(
    model: &TextModel,
    tokens: &[u32],
    settings: &GenerateOptions,
) -> anyhow::Result<(Statistics, Option<Launches>)> {
    let info = model.model.info();
    let counters = || info.device.as_gpu().map(|gpu| gpu.counters());
    let mut generation = model.request(tokens.to_vec()).options(settings).start()?;
    let mut first = None;
    while let Some(piece) = generation.next() {
        piece?;
        if first.is_none() {
            first = Some((generation.statistics().generation_tokens, counters()));
        }
    }
    let statistics = generation.statistics();
    let launches = match (first, counters()) {
        (Some((tokens, Some(before))), Some(after)) => {
            // A step is queued before the token before it is read, and none behind the last.
            let steps = (statistics.generation_tokens - tokens).saturating_sub(1);
            (steps > 0).then(|| Launches::new(before, after, steps, info.layers))
        }
        _ => None,
    };
    Ok((statistics, launches))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn spread(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() as f64 - 1.0).max(1.0)).sqrt()
}

fn print_row(row: &Row, generated: usize) {
    let reading = row.each(Statistics::prompt_tokens_per_second);
    let writing = row.each(Statistics::generation_tokens_per_second);
    let memory = row.runs.iter().map(|run| run.peak_memory).max().unwrap_or(0);
    println!(
        "Prompt: {} tokens, {:.3} ± {:.3} tokens-per-sec",
        row.prompt,
        mean(&reading),
        spread(&reading)
    );
    println!(
        "Generation: {generated} tokens, {:.3} ± {:.3} tokens-per-sec",
        mean(&writing),
        spread(&writing)
    );
    println!("Peak memory: {:.3} GB", memory as f64 / 1e9);
    if let Some(launches) = row.launches {
        println!(
            "GPU: {:.1} dispatches a token ({:.1} a layer), {:.2} submissions a token",
            launches.dispatches,
            launches.per_layer(),
            launches.submissions
        );
    }
}

fn row_json(row: &Row) -> serde_json::Value {
    let reading = row.each(Statistics::prompt_tokens_per_second);
    let writing = row.each(Statistics::generation_tokens_per_second);
    json!({
        "prompt_tokens": row.prompt,
        "prompt_tokens_per_second": { "mean": mean(&reading), "spread": spread(&reading) },
        "generation_tokens_per_second": { "mean": mean(&writing), "spread": spread(&writing) },
        "runs": row.runs.iter().map(statistics_json).collect::<Vec<_>>(),
        "gpu": row.launches.map(|launches| json!({
            "dispatches_per_token": launches.dispatches,
            "dispatches_per_layer": launches.per_layer(),
            "submissions_per_token": launches.submissions,
        })),
    })
}

fn plot(heading: &str, rows: &[Row]) -> String {
    let bars = |value: fn(&Statistics) -> f64| -> Vec<(String, Vec<f64>)> {
        rows.iter().map(|row| (format!("prompt of {}", row.prompt), row.each(value))).collect()
    };
    let reading = bars(Statistics::prompt_tokens_per_second);
    let writing = bars(Statistics::generation_tokens_per_second);
    let unit = "tokens per second";
    let charts = [
        Chart { title: "Prompt", unit, bars: &reading },
        Chart { title: "Generation", unit, bars: &writing },
    ];
    svg(heading, &charts)
}
