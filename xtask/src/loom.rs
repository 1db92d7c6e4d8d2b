//! `cargo xtask loom`: models of the thread team and of the cache of memory in every order of their
//! threads, from a crate of its own outside the workspace.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::run::{cargo, root, show, target};

/// Options of `loom`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Then plant mistakes in copies of what is modelled, and see that each is found
    #[arg(long)]
    planted: bool,
}

/// The crate of the models.
const MODELS: &str = "crates/loom-models";
/// What it models.
const MODELLED: &str = "crates/wootz/src/cpu";
/// The files that a copy needs.
const FILES: [&str; 2] = ["threads.rs", "buffer.rs"];

/// Mistakes: what, in which file, instead of which words, and which.
const PLANTED: [(&str, &str, &str, &str); 6] = [
    (
        "no look at the state before parking",
        FILES[0],
        "if !can_join(self.",
        "if !can_join(0 & self.",
    ),
    ("no fence before parking", FILES[0], "fence(Ordering::SeqCst);\n                if", "if"),
    (
        "a job opens before it is written",
        FILES[0],
        "| OPEN, Ordering::Release",
        "| OPEN, Ordering::Relaxed",
    ),
    (
        "a worker leaves before its writes",
        FILES[0],
        "sub(1, Ordering::Release",
        "sub(1, Ordering::Relaxed",
    ),
    (
        "the caller does not see a worker's writes",
        FILES[0],
        "load(Ordering::Acquire) & INSIDE",
        "load(Ordering::Relaxed) & INSIDE",
    ),
    (
        "a limit is checked under another lock",
        FILES[1],
        "let cached =",
        "drop(pool);\n        let mut pool = self::pool();\n        let cached =",
    ),
];

/// Runs the models.
pub(crate) fn run(options: &Options) -> Result<()> {
    show(&mut models(&root()))?;
    if options.planted { plant() } else { Ok(()) }
}

fn models(at: &Path) -> std::process::Command {
    let mut run = cargo(&["run", "--locked", "--quiet"]);
    run.arg("--manifest-path").arg(at.join(MODELS).join("Cargo.toml"));
    run.arg("--target-dir").arg(folder());
    run
}

/// Sees that models fail with each mistake.
fn plant() -> Result<()> {
    let copy = folder().join("planted");
    let sources = std::fs::read_dir(root().join(MODELS).join("src"))?
        .map(|entry| Ok(PathBuf::from(MODELS).join("src").join(entry?.file_name())))
        .collect::<Result<Vec<_>>>()?;
    let manifest = ["Cargo.toml", "Cargo.lock"].map(|name| Path::new(MODELS).join(name));
    let modelled = FILES.map(|name| Path::new(MODELLED).join(name));
    for file in sources.iter().chain(&manifest).chain(&modelled) {
        let to = copy.join(file);
        std::fs::create_dir_all(to.parent().unwrap_or(&copy))?;
        std::fs::copy(root().join(file), to)?;
    }
    for (mistake, file, right, wrong) in PLANTED {
        let file = Path::new(MODELLED).join(file);
        let text = std::fs::read_to_string(root().join(&file))?;
        ensure!(text.matches(right).count() == 1, "{}: not once: {right}", file.display());
        std::fs::write(copy.join(&file), text.replace(right, wrong))?;
        let out = models(&copy).output().context("cannot start cargo")?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        ensure!(
            !out.status.success() && said.contains("panicked"),
            "a planted mistake was not found: {mistake}\n{said}"
        );
        // What the first panic said is on the line behind it.
        let found = said.lines().skip_while(|line| !line.contains("panicked")).nth(1);
        println!("planted and found: {mistake}: {}", found.unwrap_or(""));
        std::fs::write(copy.join(&file), text)?;
    }
    Ok(())
}

/// Apart from other builds: it has other dependencies.
fn folder() -> PathBuf {
    target().join("loom")
}
