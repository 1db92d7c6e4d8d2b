//! `cargo xtask bench`: wootz beside its peers, in a crate of its own outside the workspace, so
//! that the peers never enter the product's lock file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::run::{cache, cargo, has, install, python, root, show, smollm2, target};

/// Options of `bench`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which rows: `quant` (products with quantized weights), `lm` (whole models), or without a word those of floats
    set: Option<String>,
    /// Install the Python peers into a cache outside the repository: PyTorch (over 5 GB) for floats, llama.cpp
    /// (compiled for this processor) and MLX for `quant`, llama.cpp for `lm`, which also gets its models
    #[arg(long)]
    setup: bool,
    /// Fail on a missing peer, a missing model or a missed goal
    #[arg(long)]
    check: bool,
    /// Only rows whose name, sizes and dtype contain this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// A model to measure with `lm` instead of those of `--setup`; with `=FILE` another that llama.cpp measures
    #[arg(long, value_name = "FILE[=FILE]")]
    model: Vec<String>,
    /// A folder of ggml's shared libraries, to be measured instead of those of llama-cpp-python
    #[arg(long, value_name = "FOLDER")]
    ggml: Option<PathBuf>,
}

/// A Python package to compare with: its environment, what is installed there, and how the program is told of it.
pub(crate) struct Peer {
    pub(crate) environment: &'static str,
    pub(crate) packages: &'static [&'static str],
    argument: &'static str,
    script: [&'static str; 2],
}

const LM_SCRIPT: &str = "xtask/bench/lm_bench.py";
const QUANT_SCRIPT: [&str; 2] = ["--quant-script", "xtask/bench/quant_bench.py"];

// The newest release; compiling without AVX-512 it still is the peer for everything but bf16.
const TORCH: Peer = Peer {
    environment: "torch-2.15.0",
    packages: &["torch==2.15.0", "numpy"],
    argument: "--torch",
    script: ["--torch-script", "xtask/bench/torch_bench.py"],
};

// From source, so that it uses whatever this processor has.
pub(crate) const LLAMA: Peer = Peer {
    environment: "llama-cpp-python-0.3.36",
    packages: &[
        "llama-cpp-python==0.3.36",
        "numpy",
        "gguf==0.19.0",
        "--no-binary=llama-cpp-python",
        "--config-settings=cmake.args=-DGGML_NATIVE=ON",
    ],
    argument: "--llama",
    script: QUANT_SCRIPT,
};

const LLAMA_MODELS: Peer = Peer { script: ["--lm-script", LM_SCRIPT], ..LLAMA };

const MLX: Peer = Peer {
    environment: "bench-mlx-0.32.4",
    packages: &["mlx[cpu]==0.32.4", "numpy"],
    argument: "--mlx",
    script: QUANT_SCRIPT,
};

/// Builds and runs the bench program.
pub(crate) fn run(options: &Options) -> Result<()> {
    let peers: &[Peer] = match options.set.as_deref() {
        None => &[TORCH],
        Some("quant") => &[LLAMA, MLX],
        Some("lm") => &[LLAMA_MODELS],
        Some(other) => bail!("there is no set {other}: known are quant and lm"),
    };
    let mut bench = cargo(&["run", "--release", "--quiet"]);
    bench.arg("--manifest-path").arg(root().join("crates/bench/Cargo.toml"));
    bench.arg("--target-dir").arg(target().join("bench")).arg("--");
    // The pool of the peers that are crates.
    bench.env("RAYON_NUM_THREADS", "2");
    bench.args(&options.set);
    let mut scripts = std::collections::BTreeSet::new();
    for peer in peers {
        if options.setup {
            install_peer(peer.environment, peer.packages)?;
        }
        let folder = cache()?.join(peer.environment);
        if folder.join("installed.txt").exists() {
            bench.arg(peer.argument).arg(folder.join("bin/python"));
            scripts.insert(peer.script);
        } else if options.check {
            bail!("no {} to compare with: run with --setup first", peer.environment);
        } else {
            println!("NO PEER: {} is not there; --setup installs it", peer.environment);
        }
    }
    for [argument, script] in scripts {
        bench.arg(argument).arg(root().join(script));
    }
    if let Some(folder) = &options.ggml {
        bench.arg("--ggml").arg(folder);
    }
    if options.set.is_some() {
        // The program as users start it.
        show(&mut cargo(&["build", "--release", "--quiet", "--package", "wootz-cli"]))?;
        bench.env("WOOTZ_PROGRAM", target().join("release/wootz"));
    }
    match options.set.as_deref() {
        Some("lm") => {
            for model in models(options)? {
                bench.arg("--model").arg(model);
            }
        }
        Some("quant") => {
            if options.setup {
                make_models()?;
            }
            for model in present(vec![synthetic("F16.gguf")?.into()], options.check)? {
                bench.arg("--convert").arg(model);
            }
        }
        _ => {}
    }
    if options.check {
        bench.arg("--check");
    }
    if let Some(text) = &options.filter {
        bench.args(["--filter", text]);
    }
    show(&mut bench)
}

/// Installs a peer with what compiles it.
pub(crate) fn install_peer(environment: &str, packages: &[&str]) -> Result<()> {
    // Where there is none, pip compiles one, which takes longer than all the rest.
    if environment == LLAMA.environment && !has("cmake") {
        install(&["cmake", "ninja-build"])?;
    }
    python(environment, packages).map(|_| ())
}

/// The models to measure: those that are named, or those that `--setup` makes.
fn models(options: &Options) -> Result<Vec<OsString>> {
    if !options.model.is_empty() {
        return Ok(options.model.iter().map(OsString::from).collect());
    }
    let affine = synthetic("affine4")?;
    let (source, like) = (synthetic("F16.gguf")?, synthetic("Q4_0.gguf")?);
    let wootz = ["run", "--release", "--quiet", "--package", "wootz-cli", "--"];
    if options.setup {
        make_models()?;
        if !affine.exists() {
            let mut convert = cargo(&wootz);
            convert.args(["convert", "--hf-path"]).arg(&source).arg("--mlx-path").arg(&affine);
            show(convert.args(["-q", "--q-bits", "4", "--q-group-size", "64"]))?;
        }
    }
    let mut models = vec![smollm2(&mut cargo(&wootz))?.into_os_string()];
    for name in ["Q4_0.gguf", "Q4_K_M.gguf", "Q8_0.gguf"] {
        models.push(synthetic(name)?.into_os_string());
    }
    // llama.cpp has nothing of the kind; its Q4_0 has as many bits.
    let mut pair = affine.into_os_string();
    pair.push("=");
    pair.push(like);
    models.push(pair);
    present(models, options.check)
}

/// The synthetic model in a format.
fn synthetic(format: &str) -> Result<PathBuf> {
    Ok(cache()?.join("bench-models").join(format!("synthetic-1.1b.{format}")))
}

/// Makes the synthetic model in llama.cpp's formats, where it is not there.
fn make_models() -> Result<()> {
    let python = cache()?.join(LLAMA.environment).join("bin/python");
    let folder = cache()?.join("bench-models");
    show(Command::new(python).arg("-B").arg(root().join(LM_SCRIPT)).arg("make").arg(folder))
}

/// Those models that are there, where what is missing is no failure.
fn present(mut models: Vec<OsString>, check: bool) -> Result<Vec<OsString>> {
    let mut absent = 0;
    models.retain(|model| {
        let text = model.to_string_lossy();
        let missing = text.split('=').find(|file| !Path::new(file).exists());
        if let Some(file) = missing {
            absent += 1;
            println!("NO MODEL: {file} is not there; --setup makes it");
        }
        missing.is_none()
    });
    ensure!(!check || absent == 0, "{absent} models are missing: run with --setup first");
    Ok(models)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_model_is_left_out_or_a_failure() {
        let here = root().join("Cargo.toml").into_os_string();
        let models = || vec![here.clone(), OsString::from("nowhere.gguf")];
        assert_eq!(present(models(), false).unwrap(), [here.clone()]);
        assert!(present(models(), true).is_err());
        // Of a pair, the one that llama.cpp reads counts as well.
        let mut pair = here.clone();
        pair.push("=nowhere.gguf");
        assert!(present(vec![pair], true).is_err());
        assert_eq!(present(vec![here.clone()], true).unwrap(), [here]);
    }
}
