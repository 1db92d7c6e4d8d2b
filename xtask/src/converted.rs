//! `cargo xtask converted`: mlx-lm and llama.cpp load what `wootz convert` writes, and continue a text as wootz does.
//! Of SmolLM2, what it says is known too: see [`known_answers`].

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::bench;
use crate::driver::Driver;
use crate::run::{cache, capture, cargo, root, show, smollm2, target};

/// Options of `converted`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// A GGUF file of Q4_0, Q4_1, Q8_0 or numbers [default: SmolLM2 in Q4_1, whose answers are known]
    #[arg(long)]
    model: Option<String>,
    /// Install mlx-lm and llama.cpp into the cache first, and fetch the text of the default model
    #[arg(long)]
    setup: bool,
    /// Fail if a peer is not there, or the text of the default model
    #[arg(long)]
    check: bool,
    /// Tiny Shakespeare, whose perplexity is known: `dataset.txt` of the crate femto-gpt 0.2.0 [default: as --setup fetches it]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
}

const PROMPT: &str = "The capital of France is";
const TOKENS: &str = "24";

/// What SmolLM2 says after the prompt, and how well it knows the first tokens of tiny Shakespeare: with a level of
/// activations, the perplexity and how far it may be off.
const ANSWER: &str = " Paris";
const PERPLEXITIES: [(&str, f64, f64); 2] = [("exact", 43.96, 0.05), ("fast", 43.96, 0.5)];

/// A program that loads models, in a Python environment of the cache.
struct Peer {
    name: &'static str,
    environment: &'static str,
    packages: &'static [&'static str],
}

const MLX: Peer = Peer {
    name: "mlx",
    environment: "goldens-mlx-lm-0.32.2",
    packages: &["mlx[cpu]==0.32.4", "numpy==2.4.6", "mlx-lm==0.32.2"],
};
const LLAMA: Peer =
    Peer { name: "llama", environment: bench::LLAMA.environment, packages: bench::LLAMA.packages };

/// A conversion: from which of those before it, to what, how, and whether the peer's arithmetic is so near that all of
/// its tokens must be the same. llama.cpp rounds activations to 8 bits, so that only the first of them must.
struct Conversion {
    from: usize,
    to: &'static str,
    arguments: &'static [&'static str],
    all_equal: bool,
}

const CONVERSIONS: [Conversion; 8] = [
    Conversion { from: 0, to: "lossless", arguments: &[], all_equal: true },
    Conversion { from: 1, to: "again.gguf", arguments: &[], all_equal: false },
    Conversion {
        from: 1,
        to: "float32",
        arguments: &["-d", "--dtype", "float32"],
        all_equal: true,
    },
    Conversion { from: 3, to: "four", arguments: &["-q", "--q-bits", "4"], all_equal: true },
    Conversion { from: 3, to: "eight", arguments: &["-q", "--q-bits", "8"], all_equal: true },
    Conversion { from: 3, to: "f16.gguf", arguments: &["--gguf-type", "F16"], all_equal: false },
    Conversion { from: 3, to: "q8_0.gguf", arguments: &["--gguf-type", "Q8_0"], all_equal: false },
    Conversion { from: 3, to: "q4_0.gguf", arguments: &["--gguf-type", "Q4_0"], all_equal: false },
];

pub(crate) fn run(options: &Options) -> Result<()> {
    // Before anything that takes long.
    let text = match &options.text {
        Some(text) => Some(text.clone()),
        None if options.model.is_some() => None,
        None => shakespeare(options.setup)?,
    };
    ensure!(
        !options.check || options.model.is_some() || text.is_some(),
        "no text to measure perplexity on: --setup fetches it, or name it with --text"
    );
    for peer in [&MLX, &LLAMA].iter().filter(|_| options.setup) {
        bench::install_peer(peer.environment, peer.packages)?;
    }
    show(&mut cargo(&["build", "--quiet", "--release", "--package", "wootz-cli"]))?;
    let wootz = target().join("release/wootz");
    let first = match &options.model {
        None => smollm2(&mut Command::new(&wootz))?,
        Some(model) => {
            let mut command = Command::new(&wootz);
            command.args(["info", "--json", "--quiet", "--device", "cpu", "-m", model]);
            let info = json(&mut command)?;
            PathBuf::from(info["path"].as_str().context("no path of the model")?)
        }
    };
    let folder = target().join("converted");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let mut made = vec![first];
    let (mut failed, mut absent) = match small_models(&folder.join("small"))? {
        Some(failed) => (failed, 0),
        None => (0, 1),
    };
    for Conversion { from, to, arguments, all_equal } in &CONVERSIONS {
        let place = folder.join(to);
        let mut command = Command::new(&wootz);
        command.args(["convert", "--quiet", "--device", "cpu", "-m"]).arg(&made[*from]);
        show(command.arg("-o").arg(&place).args(*arguments))?;
        let peer = if to.ends_with(".gguf") { &LLAMA } else { &MLX };
        let verdict = match tokens_of_peer(peer, &place)? {
            None => {
                absent += 1;
                format!("NO PEER: {} is not there; --setup installs it", peer.environment)
            }
            Some(theirs) => {
                let ours = tokens(&wootz, &place)?;
                let same = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
                let wanted = if *all_equal { ours.len() } else { 4 };
                let passes = same >= wanted && ours.len() == theirs.len();
                failed += usize::from(!passes);
                let verdict = if passes { "pass" } else { "FAIL" };
                format!("{same} of {} tokens equal {}'s  {verdict}", ours.len(), peer.environment)
            }
        };
        println!("{to:<12} {verdict}");
        made.push(place);
    }
    let bytes = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
    let same = bytes(&made[0])? == bytes(&made[2])?;
    println!(
        "GGUF to MLX to GGUF: {}",
        if same { "the same bytes  pass" } else { "other bytes  FAIL" }
    );
    if options.model.is_none() {
        failed += known_answers(&wootz, [&made[0], &made[1]], text.as_deref())?;
    }
    std::fs::remove_dir_all(&folder)?;
    ensure!(failed == 0 && same, "{failed} conversions are not what the peers read");
    if options.check && absent > 0 {
        bail!("{absent} conversions had no peer");
    }
    Ok(())
}

/// How far llama.cpp's scores of the small models of `tests/gguf.rs` may be from ours, of the largest score; and of
/// Gemma's, since its table for their activation function has half precision.
const DISTANCES: [f64; 2] = [1e-5, 2e-3];

/// llama.cpp's scores of a small model of each architecture, beside ours. Gives the number of those that differ; none if
/// it is not installed.
fn small_models(folder: &Path) -> Result<Option<usize>> {
    let python = cache()?.join(LLAMA.environment).join("bin/python");
    if !python.exists() {
        println!("small models NO PEER: {} is not there; --setup installs it", LLAMA.environment);
        return Ok(None);
    }
    std::fs::create_dir_all(folder)?;
    let mut command = cargo(&["test", "--quiet", "--package", "wootz-lm", "--test", "gguf"]);
    let name = "small_models_are_written_with_their_scores_where_they_are_asked_for";
    capture(command.args([name, "--", "--exact"]).env("WOOTZ_SMALL_GGUF", folder))?;
    let mut command = Command::new(python);
    command.arg("-B").arg(root().join("xtask/peers/logits.py")).arg(folder);
    let answer = json(&mut command)?;
    let models = answer["models"].as_array().context("no models")?;
    ensure!(!models.is_empty(), "tests wrote no small models");
    let mut failed = 0;
    for model in models {
        let difference = model["difference"].as_f64().context("no difference")?;
        let (same, tokens) = (&model["same"], &model["tokens"]);
        let name = model["name"].as_str().unwrap_or_default();
        let passes = difference <= DISTANCES[usize::from(name.contains("gemma"))];
        failed += usize::from(!passes);
        let verdict = if passes { "pass" } else { "FAIL" };
        println!(
            "{name:<24} {difference:.1e} from llama.cpp, {same} of {tokens} tokens equal  {verdict}"
        );
    }
    Ok(Some(failed))
}

/// What SmolLM2 says from GGUF, from MLX's layout and on a GPU; and its perplexity. Gives the number of wrong answers.
fn known_answers(wootz: &Path, [gguf, mlx]: [&Path; 2], text: Option<&Path>) -> Result<usize> {
    let mut failed = 0;
    let mut judge = |what: &str, found: String, passes: bool| {
        failed += usize::from(!passes);
        println!("{what:<32} {found}  {}", if passes { "pass" } else { "FAIL" });
    };
    let driver = Driver::prepare()?;
    for (what, model, device) in
        [("GGUF, cpu", gguf, "cpu"), ("MLX, cpu", mlx, "cpu"), ("GGUF, gpu", gguf, "gpu")]
    {
        let mut command = Command::new(wootz);
        driver.apply(&mut command);
        command.args(["generate", "--json", "--quiet", "--temp", "0", "--ignore-chat-template"]);
        command.args(["--device", device, "-n", "1", "-p", PROMPT, "-m"]).arg(model);
        let text = json(&mut command)?["text"].as_str().unwrap_or_default().to_string();
        judge(what, format!("{PROMPT}{text}"), text == ANSWER);
    }
    let Some(text) = text else {
        println!("SKIPPED: the perplexity of tiny Shakespeare; --setup fetches the text");
        return Ok(failed);
    };
    for (level, expected, most) in PERPLEXITIES {
        let mut command = Command::new(wootz);
        command.args(["perplexity", "--quiet", "--device", "cpu", "--activations", level]);
        command.args(["--no-bos", "--max-tokens", "300", "--window", "300", "-m"]).arg(gguf);
        let found: f64 = capture(command.arg(text))?.trim().parse().context("no number")?;
        let said = format!("{found:.4}, expected {expected} ± {most}");
        judge(&format!("perplexity, {level}"), said, (found - expected).abs() <= most);
    }
    Ok(failed)
}

/// Tiny Shakespeare in the cache, which a crate carries; none if it is not there and should not be fetched. Cargo fetches the
/// crate, and checks it.
fn shakespeare(fetch: bool) -> Result<Option<PathBuf>> {
    let folder = cache()?.join("femto-gpt-0.2.0");
    let text = folder.join("dataset.txt");
    if text.exists() || !fetch {
        return Ok(text.exists().then_some(text));
    }
    std::fs::create_dir_all(&folder)?;
    let manifest = folder.join("Cargo.toml");
    std::fs::write(&manifest, DEPENDS_ON_TEXT)?;
    let mut command = cargo(&["metadata", "--quiet", "--format-version", "1", "--manifest-path"]);
    let told = json(command.arg(&manifest))?;
    let packages = told["packages"].as_array().context("cargo names no packages")?;
    let found = packages.iter().find(|package| package["name"] == "femto-gpt");
    let found = found.and_then(|package| package["manifest_path"].as_str()).map(Path::new);
    let source = found.context("cargo names no femto-gpt")?.with_file_name("dataset.txt");
    // Renamed when it is whole.
    let part = folder.join("dataset.part");
    std::fs::copy(&source, &part).with_context(|| source.display().to_string())?;
    std::fs::rename(&part, &text)?;
    Ok(Some(text))
}

/// A package that is never compiled, whose dependency has the text.
const DEPENDS_ON_TEXT: &str = "\
[package]
name = \"text\"
version = \"0.0.0\"
edition = \"2024\"

[lib]
path = \"Cargo.toml\"

[dependencies]
femto-gpt = { version = \"=0.2.0\", default-features = false }

[workspace]
";

fn json(command: &mut Command) -> Result<Value> {
    let text = capture(command)?;
    let line = text.lines().rev().find(|line| line.starts_with('{')).unwrap_or(&text);
    serde_json::from_str(&text).or_else(|_| serde_json::from_str(line)).context("no JSON")
}

fn numbers(value: &Value) -> Vec<u64> {
    value["tokens"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

fn tokens(wootz: &Path, model: &Path) -> Result<Vec<u64>> {
    let mut command = Command::new(wootz);
    command.args(["generate", "--json", "--quiet", "--device", "cpu", "--temp", "0"]);
    command.args(["--ignore-chat-template", "-p", PROMPT, "-n", TOKENS, "-m"]).arg(model);
    json(&mut command).map(|answer| numbers(&answer))
}

/// What a peer makes of a model; none if it is not installed.
fn tokens_of_peer(peer: &Peer, model: &Path) -> Result<Option<Vec<u64>>> {
    let python = cache()?.join(peer.environment).join("bin/python");
    if !python.exists() {
        return Ok(None);
    }
    let mut command = Command::new(python);
    command.arg("-B").arg(root().join("xtask/peers/greedy.py")).arg(peer.name);
    json(command.arg(model).args([TOKENS, PROMPT])).map(|answer| Some(numbers(&answer)))
}
