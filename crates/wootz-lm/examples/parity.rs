//! Runs every checkpoint below a folder that has an `expected.safetensors` beside what mlx-lm computed of it:
//! `parity DIR [--device cpu|gpu] [--only TEXT] [--all] [--self-test]`. A self-test without a folder runs the committed ones. On a GPU, which may be a software driver, one
//! checkpoint of each architecture runs, unless `--all` or `--only` asks for more. Logit errors are of the whole model, relative to the
//! largest score. Narrow types are judged by the three others: of one layer at a time and of scores from MLX's last layer, relative
//! to the length of the results, and of scores with a cache from those without; where no weight is quantized, by logit errors, too.
//! Each line says which limits decide. The exit code is 1 if one fails.
//!
//! With `--self-test` each must pass as it is, and fail with one weight changed: then the exit code is 1 too. It is 0 if a change
//! is not seen, because then the comparison is blind, and also if one cannot be compared: an error is no difference seen.

#[path = "../tests/parity/compare.rs"]
mod compare;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use compare::{Narrow, Outcome, checkpoints, compare};
use wootz::{Array, Device};

struct Options {
    folder: PathBuf,
    device: Device,
    only: Option<String>,
    all: bool,
    self_test: bool,
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn options() -> Result<Options, String> {
    let mut words = std::env::args().skip(1);
    let (mut folder, mut device, mut only) = (None, "cpu".to_string(), None);
    let (mut all, mut self_test) = (false, false);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--device" => device = value()?,
            "--only" => only = Some(value()?),
            "--all" => all = true,
            "--self-test" => self_test = true,
            _ if folder.is_none() && !word.starts_with('-') => folder = Some(PathBuf::from(word)),
            _ => return Err(format!("unexpected {word:?}")),
        }
    }
    let committed = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/tiny-models");
    let folder = folder.or_else(|| self_test.then(committed));
    let folder = folder.ok_or("which folder? parity DIR [--device cpu|gpu] [--self-test]")?;
    let device = Device::from_name(&device).map_err(|error| error.to_string())?;
    Ok(Options { folder, device, only, all, self_test })
}

fn run(options: &Options) -> Result<ExitCode, String> {
    let found = checkpoints(&options.folder)
        .map_err(|error| format!("{}: {error}", options.folder.display()))?;
    let name = |path: &Path| {
        let name = path.strip_prefix(&options.folder).unwrap_or(path).display().to_string();
        if name.is_empty() { path.display().to_string() } else { name }
    };
    let wanted =
        |path: &PathBuf| options.only.as_ref().is_none_or(|only| name(path).contains(only));
    let mut found: Vec<PathBuf> = found.into_iter().filter(wanted).collect();
    if options.device.is_gpu() && !options.all && options.only.is_none() {
        let count = found.len();
        found = one_of_each(found);
        println!(
            "{} of {count} checkpoints, one of each architecture (--all runs all)",
            found.len()
        );
    }
    if found.is_empty() {
        return Err(format!("no checkpoint with expected results in {}", options.folder.display()));
    }
    if options.self_test {
        println!("each as it is, and then with one weight changed, which must fail");
    }
    println!(
        "{:<24} {:>9} {:>8} {:>12} {:>12} {:>14} {:>9}",
        "checkpoint", "dtype", "greedy", "logit error", "layer error", "forced logits", "cached"
    );
    let (mut passed, mut seen) = (0, 0);
    for path in &found {
        let outcome = compare(path, path, &options.device).map_err(|error| error.to_string());
        let passes = print(&name(path), &outcome);
        passed += usize::from(passes);
        if options.self_test && passes {
            let outcome = perturbed(path, &options.device);
            print("  one weight changed", &outcome);
            seen += usize::from(outcome.is_ok_and(|outcome| !outcome.passes()));
        }
    }
    println!("{passed} of {} pass", found.len());
    if !options.self_test {
        return Ok(ExitCode::from(u8::from(passed < found.len())));
    }
    println!("{seen} of {} changes were seen", found.len());
    let seen = seen == found.len();
    match seen {
        true => {
            println!("self-test: all pass as they are, and every change was seen: exit code 1")
        }
        false => {
            println!("self-test: NOT every change was seen: exit code 0")
        }
    }
    Ok(ExitCode::from(u8::from(seen)))
}

/// The first checkpoint of each architecture; a quantized one, if there is one.
fn one_of_each(found: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut chosen: BTreeMap<String, (bool, PathBuf)> = BTreeMap::new();
    for path in found {
        let text = std::fs::read_to_string(path.join("config.json")).unwrap_or_default();
        let config: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        // A file without a configuration is one of its kind.
        let kind = config["model_type"].as_str().map_or(path.display().to_string(), str::to_string);
        let quantized = !config["quantization"].is_null();
        match chosen.get(&kind) {
            Some((better, _)) if *better || !quantized => {}
            _ => drop(chosen.insert(kind, (quantized, path))),
        }
    }
    chosen.into_values().map(|(_, path)| path).collect()
}

fn print(name: &str, outcome: &Result<Outcome, String>) -> bool {
    match outcome {
        Ok(outcome) => {
            let Outcome { dtype, tokens: (equal, all), error, narrow } = outcome;
            let greedy = if equal == all { "equal".to_string() } else { format!("{equal}/{all}") };
            let verdict = if outcome.passes() { "pass" } else { "FAIL" };
            let (dtype, limits) = (dtype.to_string(), outcome.limits());
            let narrow = match narrow {
                Some(Narrow { layer_error, forced_error, cached_error, .. }) => {
                    let cached =
                        cached_error.map_or("-".to_string(), |error| format!("{error:.2e}"));
                    format!("{layer_error:>12.2e} {forced_error:>14.2e} {cached:>9}")
                }
                None => format!("{:>12} {:>14} {:>9}", "-", "-", "-"),
            };
            println!(
                "{name:<24} {dtype:>9} {greedy:>8} {error:>12.2e} {narrow}  {verdict}  ({limits})"
            );
            outcome.passes()
        }
        Err(error) => {
            println!("{name:<24} FAIL: {error}");
            false
        }
    }
}

/// Compares a copy in which one weight of the first layer's norm is another.
fn perturbed(path: &Path, device: &Device) -> Result<Outcome, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let copy = tempfile::tempdir().map_err(|error| said(&error))?;
    let config = copy.path().join("config.json");
    std::fs::copy(path.join("config.json"), config).map_err(|error| said(&error))?;
    let mut arrays: BTreeMap<String, Array> =
        wootz::io::load_safetensors(path).map_err(|error| said(&error))?;
    let norm = arrays
        .iter_mut()
        .find(|(name, _)| name.ends_with("layers.0.post_attention_layernorm.weight"));
    let (_, weight) = norm.ok_or("no norm to change")?;
    weight.set(0, 20.0).map_err(|error| said(&error))?;
    let file = copy.path().join("model.safetensors");
    wootz::io::save_safetensors(&file, &arrays).map_err(|error| said(&error))?;
    compare(copy.path(), path, device).map_err(|error| said(&error))
}
