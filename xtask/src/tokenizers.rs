//! `cargo xtask tokenizers DIR`: every GGUF vocabulary and every chat template of a folder, beside the
//! tokens that are recorded there and beside what Jinja2 renders.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::goldens::TEMPLATES;
use crate::run::{cargo, python, root, show};

/// Options of `tokenizers`.
#[derive(Args)]
pub(crate) struct Options {
    /// A folder as llama.cpp's `models`: `ggml-vocab-*.gguf` with `.inp` and `.out`, and `templates/*.jinja`
    folder: PathBuf,
}

/// Renders the templates with Jinja2, then compares.
pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = std::path::absolute(&options.folder)?;
    std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let made = std::env::temp_dir().join(format!("wootz-templates-{}", std::process::id()));
    let result = compare(&folder, &made);
    std::fs::remove_dir_all(&made).ok();
    result
}

fn compare(folder: &std::path::Path, made: &std::path::Path) -> Result<()> {
    let mut runner = cargo(&["run", "--quiet", "--package", "wootz-lm", "--example", "tokenizers"]);
    runner.arg("--").arg(folder);
    let templates = folder.join("templates");
    if templates.is_dir() {
        let (name, packages) = TEMPLATES;
        let python = python(name, packages)?;
        // -B: no byte code beside the script.
        let script = root().join("xtask/goldens/templates_record.py");
        show(Command::new(python).arg("-B").arg(script).arg(made).arg(&templates))?;
        runner.arg(made.join("renderings.json"));
    }
    show(&mut runner)
}
