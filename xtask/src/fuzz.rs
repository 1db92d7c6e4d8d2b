//! `cargo xtask fuzz`: readers of files on whatever bytes libFuzzer thinks of, from a crate of its own
//! outside the workspace, on the nightly toolchain.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run::{capture, has, root, show, target};

/// Options of `fuzz`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long to look for failures, each reader
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Only this reader
    #[arg(value_parser = TARGETS)]
    target: Option<String>,
}

/// The crate of the targets.
const FUZZ: &str = "crates/fuzz";
/// Its programs.
const TARGETS: [&str; 4] = ["safetensors", "gguf", "npy", "npz"];
/// What cargo-fuzz is installed if there is none.
const CARGO_FUZZ: &str = "0.13.2";

/// Runs the readers; what makes one fail is kept and told.
pub(crate) fn run(options: &Options) -> Result<()> {
    install()?;
    let seconds = (options.minutes * 60.0).ceil();
    ensure!(seconds >= 1.0, "--minutes {} is no time", options.minutes);
    for name in TARGETS {
        if options.target.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        println!("== {name}");
        let corpus = root().join(FUZZ).join("corpus").join(name);
        std::fs::create_dir_all(&corpus)?;
        let mut run = nightly(&["fuzz", "run", "--codegen-units=16", "--fuzz-dir", FUZZ]);
        // The nightly compiler has lints that ours does not know.
        run.env("RUSTFLAGS", "-Awarnings");
        run.arg("--target-dir").arg(folder()).arg(name).arg(corpus).args(seeds(name)).arg("--");
        run.arg(format!("-max_total_time={seconds}"));
        // A file of some KiB is read in no time and into little memory, whatever is in it.
        run.args(["-max_len=8192", "-timeout=10", "-malloc_limit_mb=16", "-print_final_stats=1"]);
        let failed = || format!("{name} fails; the input is below {FUZZ}/artifacts/{name}");
        show(&mut run).with_context(failed)?;
    }
    Ok(())
}

/// The folders of files that a reader begins with: those that other programs wrote, and what was found before, which
/// tests replay.
fn seeds(target: &str) -> impl Iterator<Item = PathBuf> {
    let written = match target {
        "npy" | "npz" => "goldens/arrays",
        _ => "goldens/files",
    };
    let found = Path::new("goldens/corpus").join(target);
    [root().join(written), root().join(found)].into_iter().filter(|folder| folder.is_dir())
}

/// Sees that everything needed is there; installs what cargo and rustup can.
fn install() -> Result<()> {
    let compiler = ["c++", "g++", "clang++"].iter().any(|name| has(name));
    ensure!(compiler, "libFuzzer is compiled by a C++ compiler, and there is none");
    if capture(&mut nightly(&["--version"])).is_err() {
        show(Command::new("rustup").args(["toolchain", "install", "nightly", "--profile=minimal"]))
            .context("install the nightly toolchain: rustup toolchain install nightly")?;
    }
    if capture(&mut nightly(&["fuzz", "--version"])).is_err() {
        let version = ["install", "cargo-fuzz", "--locked", "--version", CARGO_FUZZ];
        show(&mut nightly(&version)).context("install it: cargo install cargo-fuzz")?;
    }
    Ok(())
}

/// The nightly cargo, at the root of the repository.
fn nightly(arguments: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.arg("+nightly").args(arguments).current_dir(root());
    cargo
}

/// Apart from other builds: it has other flags.
fn folder() -> PathBuf {
    target().join("fuzz")
}
