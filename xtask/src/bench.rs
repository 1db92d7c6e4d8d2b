//! `cargo xtask bench`: wootz beside its peers, in a crate of its own outside the workspace, so
//! that the peers never enter the product's lock file.

use anyhow::{Result, bail};

use crate::run::{cache, cargo, python, root, show, target};

/// Options of `bench`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Install the Python peers (PyTorch: over 5 GB) into a cache outside the repository
    #[arg(long)]
    setup: bool,
    /// Fail on a missing peer or a missed goal
    #[arg(long)]
    check: bool,
    /// Only rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

// The newest release; compiling without AVX-512 it still is the peer for everything but bf16.
const TORCH: &str = "torch-2.15.0";
const TORCH_PACKAGES: [&str; 2] = ["torch==2.15.0", "numpy"];

/// Builds and runs the bench program.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.setup {
        python(TORCH, &TORCH_PACKAGES)?;
    }
    let mut bench = cargo(&["run", "--release", "--quiet"]);
    bench.arg("--manifest-path").arg(root().join("crates/bench/Cargo.toml"));
    bench.arg("--target-dir").arg(target().join("bench")).arg("--");
    // The pool of the peers that are crates.
    bench.env("RAYON_NUM_THREADS", "2");
    let folder = cache()?.join(TORCH);
    if folder.join("installed.txt").exists() {
        bench.arg("--torch").arg(folder.join("bin/python"));
        bench.arg("--script").arg(root().join("xtask/bench/torch_bench.py"));
    } else if options.check {
        bail!("no PyTorch to compare with: run `cargo xtask bench --setup` first");
    }
    if options.check {
        bench.arg("--check");
    }
    if let Some(text) = &options.filter {
        bench.args(["--filter", text]);
    }
    show(&mut bench)
}
