//! Measures wootz beside its peers, in turns within one run, against the machine's limits.

mod crates;
mod limits;
mod models;
mod python;
mod quantized;
mod rows;
mod table;
mod training;
mod wootz_side;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;

use crate::limits::Limits;
use crate::python::Python;
use crate::rows::{Peer, Row, Work};
use crate::table::Line;

/// Threads of every subject: what the peers' published figures use.
pub const THREADS: usize = 2;
/// Rounds of a measurement; each subject runs `REPS` times per round and the best time counts.
pub const ROUNDS: usize = 12;
const REPS: usize = 3;
/// Peers' threads spin after their work; let them park before the next subject runs.
const PAUSE: Duration = Duration::from_millis(60);

#[derive(Parser)]
struct Arguments {
    /// The rows to measure: `quant`, `lm`, or without a word those of floats
    set: Option<String>,
    /// The Python that has PyTorch
    #[arg(long, requires = "torch_script")]
    torch: Option<PathBuf>,
    /// The program that answers for PyTorch
    #[arg(long)]
    torch_script: Option<PathBuf>,
    /// The Python that has llama-cpp-python
    #[arg(long)]
    llama: Option<PathBuf>,
    /// A folder of ggml's shared libraries, if not those of llama-cpp-python
    #[arg(long, requires = "llama")]
    ggml: Option<PathBuf>,
    /// The Python that has MLX
    #[arg(long, requires = "quant_script")]
    mlx: Option<PathBuf>,
    /// The program that answers for llama.cpp and MLX
    #[arg(long)]
    quant_script: Option<PathBuf>,
    /// The program that answers for llama.cpp with whole models
    #[arg(long)]
    lm_script: Option<PathBuf>,
    /// A model to measure with `lm`; with `=FILE` another that llama.cpp measures beside it
    #[arg(long, value_parser = models::Pair::parse)]
    model: Vec<models::Pair>,
    /// A model in one file to quantize, with `quant`
    #[arg(long)]
    convert: Option<PathBuf>,
    /// Fail on a missing peer or a missed goal
    #[arg(long)]
    check: bool,
    /// Only rows whose name contains this
    #[arg(long)]
    filter: Option<String>,
}

/// Something that can be run and timed: returns the best seconds of some repetitions.
pub type Subject = Box<dyn FnMut(usize) -> Result<f64>>;

/// Peers in processes of their own.
type Pythons = Vec<(Peer, Python)>;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let rows = match arguments.set.as_deref() {
        None => rows::all(),
        Some("quant") => rows::quantized(),
        Some("lm") => return whole_models(&arguments),
        Some(other) => bail!("there is no set {other}: known are quant and lm"),
    };
    let mut pythons = start(&arguments)?;
    println!("{}", Limits::measure(ROUNDS));
    let mut versions: Vec<&str> = pythons.iter().map(|(_, python)| python.version()).collect();
    versions.push(crates::VERSIONS);
    println!("peers: {}", versions.join("; "));
    println!("{}", table::HEAD);
    let filter = arguments.filter.as_deref().unwrap_or("");
    let mut misses = Vec::new();
    for row in rows.iter().filter(|row| row.title().contains(filter)) {
        let line = measure(row, &mut pythons)?;
        println!("{line}");
        misses.extend(line.misses(row));
    }
    if let Some(source) = arguments.convert.as_ref().filter(|_| "convert".contains(filter)) {
        misses.extend(models::conversion(source)?);
    }
    report(&misses, arguments.check)
}

fn whole_models(arguments: &Arguments) -> Result<()> {
    let mut told = Vec::new();
    if let Some(folder) = &arguments.ggml {
        told.extend(["--libraries".to_string(), folder.display().to_string()]);
    }
    let llama = match (&arguments.llama, &arguments.lm_script) {
        (Some(python), Some(script)) => {
            Some(Python::start("llama-cpp-python", python, script, &told)?)
        }
        _ => None,
    };
    if let Some(llama) = &llama {
        println!("peer: {}", llama.version());
    }
    report(&models::run(&arguments.model, llama)?, arguments.check)
}

/// Prints what is missed, which is a failure where goals are checked.
fn report(misses: &[String], check: bool) -> Result<()> {
    for miss in misses {
        println!("MISSED: {miss}");
    }
    if check && !misses.is_empty() {
        bail!("{} goals missed or peers missing", misses.len());
    }
    Ok(())
}

/// Starts the peers that are there.
fn start(arguments: &Arguments) -> Result<Pythons> {
    let folder = arguments.ggml.as_ref().map(|folder| folder.display().to_string());
    let llama = [Some("llama".to_string()), folder].into_iter().flatten().collect();
    let script = &arguments.quant_script;
    let wanted = [
        (Peer::Torch, "PyTorch", &arguments.torch, &arguments.torch_script, vec![]),
        (Peer::Llama, "llama-cpp-python", &arguments.llama, script, llama),
        (Peer::Mlx, "mlx", &arguments.mlx, script, vec!["mlx".to_string()]),
    ];
    let mut pythons = Vec::new();
    for (peer, name, python, script, told) in wanted {
        if let (Some(python), Some(script)) = (python, script) {
            pythons.push((peer, Python::start(name, python, script, &told)?));
        }
    }
    Ok(pythons)
}

/// Runs wootz and the row's peers in turns and keeps each one's best time.
fn measure(row: &Row, pythons: &mut Pythons) -> Result<Line> {
    let mut own = wootz_side::subject(row)?;
    let mut peers: Vec<(Peer, Option<Subject>, f64)> = Vec::new();
    for &peer in row.peers {
        peers.push((peer, crates::subject(peer, row)?, f64::INFINITY));
    }
    let mut limits = Limits::default();
    let mut best = f64::INFINITY;
    let mut bytes = wootz_side::peak_bytes(row)?;
    for _ in 0..row.rounds() {
        // What the machine gives changes by the second, so the limits take part in the turns.
        limits = limits.best(&match row.work {
            Work::Read(_) => Limits::of_reading(REPS),
            _ => Limits::measure(REPS),
        });
        if let Some(own) = &mut own {
            best = best.min(own(REPS)?);
            std::thread::sleep(PAUSE);
        }
        for (peer, subject, time) in &mut peers {
            let python = pythons.iter_mut().find(|(python, _)| python == peer);
            let seconds = match (subject, python) {
                (Some(subject), _) => subject(REPS)?,
                // A peer that cannot run is one that is missing, and says why.
                (None, Some((_, python))) => match python.time(row, REPS) {
                    Ok((seconds, taken)) => {
                        bytes.peer = taken.or(bytes.peer);
                        seconds
                    }
                    Err(error) => {
                        eprintln!("{}: {error}", row.title());
                        continue;
                    }
                },
                _ => continue,
            };
            *time = time.min(seconds);
            std::thread::sleep(PAUSE);
        }
    }
    let finite = |t: f64| t.is_finite().then_some(t);
    let peers = peers.into_iter().map(|(p, _, t)| (p, finite(t))).collect();
    Ok(Line::new(row, finite(best), peers, &limits, bytes))
}

/// The best of `reps` timed runs.
pub fn best_of(reps: usize, mut run: impl FnMut()) -> f64 {
    (0..reps)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}
