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
    /// Then write goldens/corpus, which tests replay: the smallest inputs that reach everything reached so far
    #[arg(long)]
    commit: bool,
    /// Only this reader
    #[arg(value_parser = TARGETS)]
    target: Option<String>,
}

/// The crate of the targets.
const FUZZ: &str = "crates/fuzz";
/// Its programs.
const TARGETS: [&str; 6] = ["safetensors", "safetensors_index", "gguf", "gguf_parts", "npy", "npz"];
/// What cargo-fuzz is installed if there is none.
const CARGO_FUZZ: &str = "0.13.2";
/// What is kept of inputs that were found, a folder for each reader.
const KEPT: &str = "goldens/corpus";
/// The most bytes of one reader: a repository should carry no more of them.
const MOST: u64 = 256 << 10;
/// A file of some KiB is read in no time and into little memory, whatever is in it.
const LIMITS: [&str; 3] = ["-max_len=8192", "-timeout=10", "-malloc_limit_mb=16"];

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
        let mut run = libfuzzer(name);
        run.arg(&corpus).args(seeds(name)).arg("--").args(LIMITS);
        run.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
        let failed = || {
            format!(
                "{name} fails; the input is below {FUZZ}/artifacts/{name}. Mend the reader, and keep the \
                 input as {KEPT}/{name}/NAME, where NAME says what it is"
            )
        };
        show(&mut run).with_context(failed)?;
        if options.commit {
            commit(name, &corpus)?;
        }
    }
    Ok(())
}

/// A reader's program under libFuzzer, without its arguments.
fn libfuzzer(name: &str) -> Command {
    let mut run = nightly(&["fuzz", "run", "--codegen-units=16", "--fuzz-dir", FUZZ]);
    // The nightly compiler has lints that ours does not know.
    run.env("RUSTFLAGS", "-Awarnings");
    run.arg("--target-dir").arg(folder()).arg(name);
    run
}

/// Writes anew what is kept of a reader's inputs: of all there are, few that reach every branch. Inputs that people
/// named stay, though nothing may be reached by them alone: they were failures.
fn commit(name: &str, corpus: &Path) -> Result<()> {
    let kept = root().join(KEPT).join(name);
    std::fs::create_dir_all(&kept)?;
    let fewer = folder().join("kept").join(name);
    if fewer.exists() {
        std::fs::remove_dir_all(&fewer)?;
    }
    std::fs::create_dir_all(&fewer)?;
    let mut merge = libfuzzer(name);
    merge.arg(&fewer).arg(corpus).args(seeds(name)).arg("--").args(LIMITS);
    // How often a branch was taken counts while looking; here only whether it was.
    show(merge.args(["-merge=1", "-set_cover_merge=1", "-use_counters=0"]))?;

    for file in files(&kept)? {
        if is_digest(&file) {
            std::fs::remove_file(file)?;
        }
    }
    for file in files(&fewer)? {
        std::fs::copy(&file, kept.join(file.file_name().unwrap_or_default()))?;
    }
    let files = files(&kept)?;
    let mut bytes = 0;
    for file in &files {
        bytes += file.metadata()?.len();
    }
    println!("{KEPT}/{name}: {} inputs of together {bytes} bytes", files.len());
    ensure!(bytes <= MOST, "{KEPT}/{name}: {bytes} bytes are more than {MOST}");
    Ok(())
}

/// The files in a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    entries.filter(|path| path.as_ref().map_or(true, |path| path.is_file())).collect()
}

/// Whether libFuzzer named a file: by the SHA-1 of what is in it.
fn is_digest(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The folders of files that a reader begins with: those that other programs wrote, and what was found before, which
/// tests replay.
fn seeds(target: &str) -> impl Iterator<Item = PathBuf> {
    let written = match target {
        "npy" | "npz" => "goldens/arrays",
        _ => "goldens/files",
    };
    let found = Path::new(KEPT).join(target);
    [root().join(written), root().join(found)].into_iter().filter(|folder| folder.is_dir())
}

/// Sees that everything needed is there; installs what cargo and rustup can.
fn install() -> Result<()> {
    let compiler = ["c++", "g++", "clang++"].iter().any(|name| has(name));
    ensure!(compiler, "libFuzzer is compiled by a C++ compiler, and there is none");
    if capture(&mut nightly(&["--version"])).is_err() {
        show(Command::new("rustup").args(["toolchain", "install", "nightly", "--profile=minimal"]))
            .context("libFuzzer needs the nightly toolchain: rustup toolchain install nightly")?;
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
