//! Whole models: reading a prompt, the first token of a short one, and generating, at both levels, beside llama.cpp
//! on the same file; and of the program as users start it, the time to the first token and the most memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use wootz::quant::{Activations, set_activations};
use wootz_lm::cache::{CacheOptions, LayerKind, STEP};
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::generate::{GenerateOptions, Session};
use wootz_lm::models::{LanguageModel, LoadOptions, load};

use crate::limits::Limits;
use crate::python::Python;

/// Turns in which every subject runs once.
const ROUNDS: usize = 5;
/// A speed at `exact` is at least this part of that at `fast`.
const EXACT: f64 = 0.85;

/// Seconds from the start of the program to the first token of a small model that was read before.
const START: f64 = 0.5;
/// Bytes beside the file and the cache, while so many tokens are read and written.
const BESIDE: u64 = 150_000_000;
const PROMPT: usize = 512;
const ANSWER: usize = 64;
/// Bytes up to which a model is a small one.
const SMALL: u64 = 200_000_000;

/// What is measured of a model.
#[derive(Clone, Copy)]
enum Task {
    /// Reads a prompt of so many tokens.
    Prompt(usize),
    /// Writes so many tokens.
    Generate(usize),
}

const TASKS: [Task; 3] = [Task::Prompt(32), Task::Prompt(512), Task::Generate(64)];

impl Task {
    fn count(self) -> usize {
        match self {
            Task::Prompt(count) | Task::Generate(count) => count,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Task::Prompt(_) => "prompt",
            Task::Generate(_) => "generate",
        }
    }

    /// The ratio to llama.cpp that is wanted: small models have more to gain.
    fn goal(self, bytes: u64) -> f64 {
        match self {
            Task::Prompt(32) => 1.0,
            _ if bytes < SMALL => 1.5,
            _ => 1.0,
        }
    }
}

/// A model, and the file that llama.cpp measures beside it: the same, or one with as many bits.
#[derive(Clone)]
pub struct Pair {
    own: PathBuf,
    peer: PathBuf,
}

impl Pair {
    /// From `OWN` or `OWN=PEER`.
    pub fn parse(text: &str) -> Result<Pair, String> {
        let (own, peer) = text.split_once('=').unwrap_or((text, text));
        Ok(Pair { own: own.into(), peer: peer.into() })
    }
}

/// Measures all models and prints the table. Gives what misses its goal.
pub fn run(models: &[Pair], mut llama: Option<Python>) -> Result<Vec<String>> {
    if models.is_empty() {
        bail!("no models: --model FILE names one, and cargo xtask bench lm --setup makes some");
    }
    println!("tokens per second; a ratio above 1 means that wootz is faster");
    println!(
        "{:<38} {:>13} {:>9} {:>9} {:>11} {:>10} {:>11} {:>9}",
        "model", "task", "fast", "exact", "exact/fast", "llama.cpp", "fast/llama", "of limit"
    );
    let mut misses = Vec::new();
    for pair in models {
        misses.extend(model(pair, llama.as_mut())?);
    }
    for pair in models {
        misses.extend(program(&pair.own)?);
    }
    Ok(misses)
}

/// Starts `wootz generate` for one token, and for the most memory `wootz bench` with a longer text. Gives what misses
/// its goal.
fn program(file: &Path) -> Result<Vec<String>> {
    let name = file.file_name().context("a model without a name")?.to_string_lossy();
    let Some(wootz) = std::env::var_os("WOOTZ_PROGRAM") else {
        println!("{name:<38} NO PROGRAM: WOOTZ_PROGRAM names it, which cargo xtask bench lm does");
        return Ok(vec![format!("{name}: no program to start")]);
    };
    let checkpoint = Checkpoint::open(file)?;
    let model = load(&checkpoint, &LoadOptions::default())?;
    let cache = cache_bytes(model.as_ref(), PROMPT + ANSWER);
    drop(model);
    let mut seconds = f64::INFINITY;
    // The first turn reads the file.
    for round in 0..=ROUNDS {
        let mut command = Command::new(&wootz);
        command.args([
            "generate",
            "--quiet",
            "--device",
            "cpu",
            "--ignore-chat-template",
            "-n",
            "1",
        ]);
        command.args(["-p", "The capital of France is", "-m"]).arg(file).stdout(Stdio::null());
        let start = Instant::now();
        peak(&mut command)?;
        if round > 0 {
            seconds = seconds.min(start.elapsed().as_secs_f64());
        }
    }
    // Here the prompt has a number of tokens, whatever the vocabulary.
    let mut command = Command::new(&wootz);
    command.args(["bench", "--quiet", "--device", "cpu", "-n", "1"]);
    command.args(["-p", &PROMPT.to_string(), "-g", &ANSWER.to_string(), "-m"]);
    let memory = peak(command.arg(file).stdout(Stdio::null()))?;
    let size = bytes(file)?;
    let allowed = size + cache + BESIDE;
    println!(
        "{name:<38} start to first token and end {seconds:.3} s; {PROMPT} tokens read and {ANSWER} written: at most {:.0} MB in \
         memory, {:.0} allowed",
        memory as f64 / 1e6,
        allowed as f64 / 1e6
    );
    let mut misses = Vec::new();
    if size < SMALL && seconds > START {
        misses.push(format!("{name}: {seconds:.3} s to the first token, wanted {START}"));
    }
    if memory > allowed {
        misses.push(format!("{name}: {memory} bytes in memory, wanted {allowed}"));
    }
    Ok(misses)
}

/// Seconds in which a model of 1.1 billion parameters is quantized.
const CONVERSION: f64 = 20.0;
/// The most memory meanwhile, as a part of the largest file that is read.
const OF_SHARD: f64 = 1.5;

/// Quantizes a model in one file to 4 bits with `wootz convert`, and gives what misses its goal.
pub fn conversion(source: &Path) -> Result<Vec<String>> {
    let name = source.file_name().context("a model without a name")?.to_string_lossy();
    let Some(wootz) = std::env::var_os("WOOTZ_PROGRAM") else {
        println!(
            "convert {name} NO PROGRAM: WOOTZ_PROGRAM names it, which cargo xtask bench quant does"
        );
        return Ok(vec![format!("convert {name}: no program to start")]);
    };
    let folder = source.with_extension(format!("converted-{}", std::process::id()));
    let (mut seconds, mut memory) = (f64::INFINITY, 0);
    // The first turn reads the file.
    for round in 0..=ROUNDS {
        let mut command = Command::new(&wootz);
        command.args(["convert", "--quiet", "-q", "--q-bits", "4", "--q-group-size", "64", "-m"]);
        command.arg(source).arg("-o").arg(&folder).stdout(Stdio::null());
        let start = Instant::now();
        let most = peak(&mut command);
        let took = start.elapsed().as_secs_f64();
        _ = std::fs::remove_dir_all(&folder);
        memory = memory.max(most?);
        if round > 0 {
            seconds = seconds.min(took);
        }
    }
    let allowed = bytes(source)? as f64 * OF_SHARD;
    println!(
        "convert {name} to affine, 4 bits: {seconds:.1} s, wanted {CONVERSION:.0}; at most {:.0} MB in memory, the \
         mapped file included, {:.0} allowed",
        memory as f64 / 1e6,
        allowed / 1e6
    );
    let mut misses = Vec::new();
    if seconds > CONVERSION {
        misses.push(format!("convert {name}: {seconds:.1} s, wanted {CONVERSION}"));
    }
    if memory as f64 > allowed {
        misses.push(format!("convert {name}: {memory} bytes in memory, wanted {allowed}"));
    }
    Ok(misses)
}

/// Runs a program and gives the most memory that it had, as the system counted it.
fn peak(command: &mut Command) -> Result<u64> {
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    // The count is of the highest so far, so that looking often enough misses little.
    while child.try_wait()?.is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
        most = most.max(kilobytes.unwrap_or(0u64) * 1024);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    if !child.wait()?.success() {
        bail!("{command:?} failed");
    }
    Ok(most)
}

/// Bytes of the memory of so many tokens.
fn cache_bytes(model: &dyn LanguageModel, tokens: usize) -> u64 {
    let of = |kind: LayerKind| match kind {
        // Allocated for so many tokens at a time.
        LayerKind::Attention { heads, keys, values, dtype, .. } => {
            heads * (keys + values) * tokens.next_multiple_of(STEP) * dtype.size()
        }
        LayerKind::Recurrent(states) => {
            states.iter().map(|(shape, dtype)| shape.iter().product::<usize>() * dtype.size()).sum()
        }
    };
    model.layers().into_iter().map(of).sum::<usize>() as u64
}

fn model(pair: &Pair, mut llama: Option<&mut Python>) -> Result<Vec<String>> {
    let checkpoint = Checkpoint::open(&pair.own)?;
    let model = load(&checkpoint, &LoadOptions::default())?;
    let name = pair.own.file_name().context("a model without a name")?.to_string_lossy();
    let bytes = bytes(&pair.own)?;
    if let Some(llama) = &mut llama {
        llama.ask(&format!("load {}", pair.peer.display()))?;
    }
    let mut misses = Vec::new();
    for task in TASKS {
        let (mut fast, mut exact, mut peer) = (f64::INFINITY, f64::INFINITY, None);
        let mut limits = Limits::default();
        // One turn more than count: the first reads files and records plans.
        for round in 0..=ROUNDS {
            let [a, b] =
                [Activations::Fast, Activations::Exact].map(|level| own(&model, task, level));
            let (a, b) = (a?, b?);
            let request = format!("{} {} reps 1", task.name(), task.count());
            let c = match &mut llama {
                Some(llama) => Some(llama.seconds(&request)?),
                None => None,
            };
            limits = limits.best(&Limits::of_reading(1));
            if round > 0 {
                (fast, exact) = (fast.min(a), exact.min(b));
                peer = c.map(|c| peer.map_or(c, |peer: f64| peer.min(c)));
            }
        }
        let per_second = |seconds: f64| task.count() as f64 / seconds;
        let ratio = peer.map(|peer| peer / fast);
        // Of what memory gives, for what is bound by reading weights.
        let limit = matches!(task, Task::Generate(_))
            .then(|| bytes as f64 * per_second(fast) / 1e9 / limits.read);
        let shown = |value: Option<f64>, digits| match value {
            Some(value) => format!("{value:.digits$}"),
            None => "-".to_string(),
        };
        println!(
            "{name:<38} {:>13} {:>9.1} {:>9.1} {:>11.2} {:>10} {:>11} {:>9}",
            format!("{} {}", task.name(), task.count()),
            per_second(fast),
            per_second(exact),
            fast / exact,
            shown(peer.map(per_second), 1),
            shown(ratio, 2),
            shown(limit, 2),
        );
        let title = format!("{name} {} {}", task.name(), task.count());
        match ratio {
            Some(ratio) if ratio < task.goal(bytes) => {
                misses
                    .push(format!("{title}: {ratio:.2} of llama.cpp, wanted {}", task.goal(bytes)));
            }
            None => misses.push(format!("{title}: NO PEER (llama.cpp)")),
            _ => (),
        }
        if fast / exact < EXACT {
            misses.push(format!("{title}: exact is {:.2} of fast, wanted {EXACT}", fast / exact));
        }
    }
    Ok(misses)
}

/// Seconds that a task takes.
fn own(model: &Arc<dyn LanguageModel>, task: Task, level: Activations) -> Result<f64> {
    set_activations(level);
    let mut session = Session::new(model.clone(), &CacheOptions::default())?;
    let vocabulary = model.info().vocab_size;
    let read = |session: &mut Session, count: usize| -> Result<wootz::Array> {
        let step = GenerateOptions::default().prefill_step_of(model.info());
        let logits = session.prefill(&tokens(count, vocabulary), step, &mut |_, _| ())?;
        let token = wootz::argmax(&logits, -1, true)?;
        token.item::<u32>()?;
        Ok(token)
    };
    match task {
        Task::Prompt(count) => {
            let start = Instant::now();
            read(&mut session, count)?;
            Ok(start.elapsed().as_secs_f64())
        }
        Task::Generate(count) => {
            let mut token = read(&mut session, 32)?;
            // The peer's first step counts, and so does ours, which records the plan.
            let start = Instant::now();
            for _ in 0..count {
                token = next(&mut session, &token)?;
            }
            Ok(start.elapsed().as_secs_f64())
        }
    }
}

fn next(session: &mut Session, token: &wootz::Array) -> Result<wootz::Array> {
    let token = wootz::argmax(&session.decode(token)?, -1, true)?;
    token.item::<u32>()?;
    Ok(token)
}

/// Tokens of all kinds, the same as the peer reads.
fn tokens(count: usize, vocabulary: usize) -> Vec<u32> {
    let mut state = 1u64;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) % vocabulary.max(1) as u64) as u32
    };
    (0..count).map(next).collect()
}

/// Bytes of a file, or of the weights in a folder.
fn bytes(path: &Path) -> Result<u64> {
    if path.is_file() {
        return Ok(path.metadata()?.len());
    }
    let mut sum = 0;
    for entry in path.read_dir()? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "safetensors") {
            sum += entry.metadata()?.len();
        }
    }
    Ok(sum)
}
