//! `cargo xtask bench`: wootz beside its peers, in a crate of its own outside the workspace, so
//! that the peers never enter the product's lock file.

use anyhow::{Result, bail};

use crate::run::{cache, cargo, python, root, show, target};

/// Options of `bench`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which rows: `quant` (products with quantized weights), or without a word those of floats
    set: Option<String>,
    /// Install the Python peers into a cache outside the repository: PyTorch (over 5 GB) for floats, llama.cpp
    /// (compiled for this processor) and MLX for `quant`
    #[arg(long)]
    setup: bool,
    /// Fail on a missing peer or a missed goal
    #[arg(long)]
    check: bool,
    /// Only rows whose name, sizes and dtype contain this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// A folder of ggml's shared libraries, to be measured instead of those of llama-cpp-python
    #[arg(long, value_name = "FOLDER")]
    ggml: Option<std::path::PathBuf>,
}

/// A Python package to compare with: its environment, what is installed there, and how the program is told of it.
struct Peer {
    environment: &'static str,
    packages: &'static [&'static str],
    argument: &'static str,
    script: [&'static str; 2],
}

const QUANT_SCRIPT: [&str; 2] = ["--quant-script", "xtask/bench/quant_bench.py"];

// The newest release; compiling without AVX-512 it still is the peer for everything but bf16.
const TORCH: Peer = Peer {
    environment: "torch-2.15.0",
    packages: &["torch==2.15.0", "numpy"],
    argument: "--torch",
    script: ["--torch-script", "xtask/bench/torch_bench.py"],
};

// From source, so that it uses whatever this processor has.
const LLAMA: Peer = Peer {
    environment: "llama-cpp-python-0.3.36",
    packages: &[
        "llama-cpp-python==0.3.36",
        "numpy",
        "--no-binary=llama-cpp-python",
        "--config-settings=cmake.args=-DGGML_NATIVE=ON",
    ],
    argument: "--llama",
    script: QUANT_SCRIPT,
};

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
        Some(other) => bail!("there is no set {other}: known is quant"),
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
            python(peer.environment, peer.packages)?;
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
    if options.check {
        bench.arg("--check");
    }
    if let Some(text) = &options.filter {
        bench.args(["--filter", text]);
    }
    show(&mut bench)
}
