//! `cargo xtask goldens`: records expected values from MLX and mlx-lm, or checks the recorded ones.

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
const PACKAGES: [&str; 3] = ["mlx[cpu]==0.32.4", "numpy==2.4.6", "mlx-lm==0.32.2"];

/// A script, with what it records.
struct Recording {
    script: &'static str,
    /// The Python environment and how many of the packages it has.
    environment: (&'static str, usize),
    /// Below `goldens`.
    folder: &'static str,
    files: [&'static str; 2],
}

const RECORDINGS: [Recording; 2] = [
    Recording {
        script: "record.py",
        environment: ("goldens-mlx-0.32.4", 2),
        folder: "",
        files: ["cases.jsonl", "tensors.safetensors"],
    },
    Recording {
        script: "mlx_lm_record.py",
        environment: ("goldens-mlx-lm-0.32.2", 3),
        folder: "mlx_lm",
        files: ["sparse_experts.safetensors", "gated_delta.safetensors"],
    },
];

/// Makes the Python environments if need be, and records.
pub(crate) fn run(options: &Options) -> Result<()> {
    for recording in &RECORDINGS {
        let (name, packages) = recording.environment;
        let python = python(name, &PACKAGES[..packages])?;
        let kept = root().join("goldens").join(recording.folder);
        if !options.check {
            record(&python, recording, &kept)?;
            continue;
        }
        let made = std::env::temp_dir().join(format!("wootz-goldens-{}", std::process::id()));
        let result =
            record(&python, recording, &made).and_then(|()| compare(recording, &kept, &made));
        std::fs::remove_dir_all(&made).ok();
        result?;
    }
    Ok(())
}

fn record(python: &Path, recording: &Recording, folder: &Path) -> Result<()> {
    // -B: no byte code beside the script.
    let script = root().join("xtask/goldens").join(recording.script);
    show(Command::new(python).arg("-B").arg(script).arg(folder))
}

fn compare(recording: &Recording, kept: &Path, made: &Path) -> Result<()> {
    let Recording { files, folder, .. } = recording;
    for file in files {
        let (old, new) = (std::fs::read(kept.join(file))?, std::fs::read(made.join(file))?);
        if old == new {
            continue;
        }
        // A text diff of the cases says which ops changed; of tensors only the fact is known.
        let cases = [kept.join(files[0]), made.join(files[0])];
        let shown =
            capture(Command::new("sh").args(["-c", "diff \"$0\" \"$1\" | head -20"]).args(cases))?;
        bail!("goldens/{folder}/{file} differs from what MLX gives now\n{shown}");
    }
    println!("goldens: {}: the same bytes", recording.script);
    Ok(())
}
