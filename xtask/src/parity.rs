//! `cargo xtask parity DIR …`: language models beside what mlx-lm computed of them; see `crates/wootz-lm/examples/parity.rs`.

use anyhow::Result;
use clap::Args;

use crate::driver::Driver;
use crate::run::{cargo, root, show};

/// The runner parses its own arguments.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// A folder of checkpoints with expected.safetensors, then --device cpu|gpu, --only TEXT, --all, --self-test
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds and starts the runner, with the software driver where the GPU is asked for. In the
/// profile of the tests, which has compiled the library already.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut runner = cargo(&["run", "--quiet", "--package", "wootz-lm", "--example", "parity"]);
    if options.arguments.iter().any(|word| word.contains("gpu")) {
        Driver::prepare()?.apply(&mut runner);
    }
    // Paths are relative to where the caller is.
    runner.arg("--manifest-path").arg(root().join("Cargo.toml"));
    runner.current_dir(std::env::current_dir()?);
    show(runner.arg("--").args(&options.arguments))
}
