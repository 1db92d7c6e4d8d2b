//! `cargo xtask goldens`: records expected values from MLX, or checks the recorded ones.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::run::{capture, python, root, show};

/// Options of `goldens`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Record into a temporary folder and compare with goldens/ byte for byte
    #[arg(long)]
    check: bool,
}

// Other versions of MLX give other numbers; other versions of NumPy may give other inputs.
const PACKAGES: [&str; 2] = ["mlx[cpu]==0.32.4", "numpy==2.4.6"];
const FILES: [&str; 2] = ["cases.jsonl", "tensors.safetensors"];

/// Makes the Python environment if need be, and records.
pub(crate) fn run(options: &Options) -> Result<()> {
    let python = python("goldens-mlx-0.32.4", &PACKAGES)?;
    let kept = root().join("goldens");
    if !options.check {
        return record(&python, &kept);
    }
    let made = std::env::temp_dir().join(format!("wootz-goldens-{}", std::process::id()));
    let result = record(&python, &made).and_then(|()| compare(&kept, &made));
    std::fs::remove_dir_all(&made).ok();
    result
}

fn record(python: &Path, folder: &Path) -> Result<()> {
    // -B: no byte code beside the script.
    let script = root().join("xtask/goldens/record.py");
    show(Command::new(python).arg("-B").arg(script).arg(folder))
}

fn compare(kept: &Path, made: &Path) -> Result<()> {
    for file in FILES {
        let (old, new) = (std::fs::read(kept.join(file))?, std::fs::read(made.join(file))?);
        if old == new {
            continue;
        }
        // A text diff of the cases says which ops changed; of tensors only the fact is known.
        let cases = [kept.join(FILES[0]), made.join(FILES[0])];
        let shown =
            capture(Command::new("sh").args(["-c", "diff \"$0\" \"$1\" | head -20"]).args(cases))?;
        bail!("goldens/{file} differs from what MLX gives now\n{shown}");
    }
    println!("goldens: the same bytes");
    Ok(())
}
