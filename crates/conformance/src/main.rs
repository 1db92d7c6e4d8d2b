//! `conformance DIR`: runs a folder of recorded cases and prints what passed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use conformance::tensor::Kind;
use conformance::{Class, Figures, Filter, Known};
use wootz::Device;

#[derive(Parser)]
#[command(about = "Runs operations against cases recorded from MLX")]
struct Arguments {
    /// A folder with cases.jsonl and tensors.safetensors
    folder: PathBuf,
    /// cpu, gpu, or gpu:N for an adapter
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Only these operations
    #[arg(long, value_delimiter = ',')]
    op: Vec<String>,
    /// Only the operations of named sets (foundation, networks, quantized, transformer)
    #[arg(long, value_delimiter = ',', conflicts_with = "op")]
    set: Vec<String>,
    /// Leaves out the cases in which these dtypes occur, and says how many they were
    #[arg(long, value_name = "DTYPE", value_delimiter = ',')]
    without: Vec<String>,
    /// Writes the result of every case
    #[arg(long)]
    json: Option<PathBuf>,
    /// Percent of each tier that must pass, such as 99.5,99,90. Of all operations, 99.5,97,80 if nothing is
    /// said, and 98,95 on a GPU
    #[arg(long, value_delimiter = ',')]
    require: Vec<f64>,
    /// Percent of each class of cases that must pass, such as exact=100,error=100,close=99.5
    #[arg(long, value_name = "CLASS=PERCENT", value_delimiter = ',', value_parser = class_figure)]
    require_class: Vec<(Class, f64)>,
    /// Percent of the cases of named sets that must pass, such as networks=99
    #[arg(long, value_name = "SET=PERCENT", value_delimiter = ',', value_parser = set_figure)]
    require_set: Vec<(String, f64)>,
    /// Failures that are known, with their reasons: they do not count for --require-class
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// Lists the operations that pass whole, too
    #[arg(long)]
    all: bool,
    /// Failing cases shown for each operation
    #[arg(long, default_value_t = 3)]
    reasons: usize,
    /// Corrupts expectations of passing cases and checks that each is noticed
    #[arg(long)]
    self_test: bool,
    /// Writes the failures as lines of a list of known ones
    #[arg(long)]
    write_failures: Option<PathBuf>,
    /// Writes a sample of the cases to a folder
    #[arg(long)]
    make_sample: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let mut folder = conformance::read(&arguments.folder)?;
    let filter = match &arguments.set[..] {
        [] => Filter { ops: arguments.op.clone(), of_sets: false },
        sets => Filter::sets(sets)?,
    };
    filter.apply(&mut folder)?;
    let mut left_out = Vec::new();
    for name in &arguments.without {
        let kind = Kind::from_name(name)?;
        let before = folder.cases.len();
        folder.cases.retain(|case| !case.mentions(kind, &folder.tensors));
        left_out.push(format!("not counted: {} {name} cases", before - folder.cases.len()));
    }
    if let Some(path) = &arguments.make_sample {
        let sample = conformance::sample(&folder);
        sample.write(path)?;
        println!("{} of {} cases", sample.cases.len(), folder.cases.len());
        return Ok(());
    }
    let device = Device::from_name(&arguments.device)?;
    if arguments.self_test {
        let (text, unnoticed) = conformance::self_test(&folder, &device);
        unnoticed.iter().take(50).for_each(|line| println!("UNNOTICED {line}"));
        print!("{text}");
        ensure!(unnoticed.is_empty(), "{} corruptions were not noticed", unnoticed.len());
        return Ok(());
    }
    let report = conformance::run(&folder, &device);
    print!("{}", report.text(arguments.all, arguments.reasons));
    left_out.iter().for_each(|line| println!("{line}"));
    if let Some(path) = &arguments.json {
        std::fs::write(path, serde_json::to_vec_pretty(&report.json())?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &arguments.write_failures {
        let kind = if device.is_gpu() { "gpu" } else { "cpu" };
        std::fs::write(path, Known::lines(&report, kind))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let known = match &arguments.known {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Known::parse(&text, if device.is_gpu() { "gpu" } else { "cpu" })?
        }
        None => Known::default(),
    };
    report.require(&Figures {
        tiers: required(arguments, device.is_gpu()),
        classes: &arguments.require_class,
        sets: &arguments.require_set,
        known: &known,
    })
}

/// What `--require-class` says of one class.
fn class_figure(text: &str) -> Result<(Class, f64)> {
    let (name, percent) = text.split_once('=').context("expected CLASS=PERCENT")?;
    Ok((Class::from_name(name)?, percent.parse()?))
}

/// What `--require-set` says of one set.
fn set_figure(text: &str) -> Result<(String, f64)> {
    let (name, percent) = text.split_once('=').context("expected SET=PERCENT")?;
    Filter::sets(&[name])?;
    Ok((name.to_string(), percent.parse()?))
}

/// What must pass: what is asked for, or of all operations what the project holds itself to.
fn required(arguments: &Arguments, gpu: bool) -> &[f64] {
    let all = arguments.op.is_empty() && arguments.set.is_empty();
    match (&arguments.require[..], gpu) {
        ([], false) if all => &[99.5, 97.0, 80.0],
        ([], true) if all => &[98.0, 95.0],
        (asked, _) => asked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_operations_are_held_to_the_projects_figures() {
        let figures = |words: &[&str], gpu| {
            let words = ["conformance", "folder"].iter().chain(words);
            required(&Arguments::parse_from(words), gpu).to_vec()
        };
        assert_eq!(figures(&[], false), [99.5, 97.0, 80.0]);
        assert_eq!(figures(&[], true), [98.0, 95.0]);
        assert!(figures(&["--op", "add"], false).is_empty());
        assert!(figures(&["--set", "quantized"], true).is_empty());
        assert_eq!(figures(&["--require", "1,2"], false), [1.0, 2.0]);
    }

    #[test]
    fn classes_have_figures_by_name() {
        let parse = |text| {
            Arguments::try_parse_from(["conformance", "folder", "--require-class", text])
                .map(|arguments| arguments.require_class)
        };
        let asked = parse("exact=100,close=99.5").unwrap();
        assert_eq!(asked, [(Class::Exact, 100.0), (Class::Close, 99.5)]);
        let error = parse("near=3").unwrap_err().to_string();
        assert!(error.contains("there are exact, close, set, sign, error"), "{error}");
    }

    #[test]
    fn sets_have_figures_by_name() {
        let parse = |text| {
            Arguments::try_parse_from(["conformance", "folder", "--require-set", text])
                .map(|arguments| arguments.require_set)
        };
        assert_eq!(parse("networks=99").unwrap(), [("networks".to_string(), 99.0)]);
        assert!(parse("network=99").unwrap_err().to_string().contains("there is no set"));
    }
}
