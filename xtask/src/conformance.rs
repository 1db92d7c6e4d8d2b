//! `cargo xtask conformance DIR …`: runs cases recorded from MLX; see `crates/conformance`.

use anyhow::Result;
use clap::Args;

use crate::driver::Driver;
use crate::run::{cargo, root, show};

/// The runner parses its own arguments.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// A folder of cases, then --device cpu|gpu, --op, --set, --without, --json, --require, --require-class,
    /// --require-set, --known, --self-test; --help tells all
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds and starts the runner, with the software driver where the GPU is asked for. In the
/// profile of the tests, which has compiled the library already.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut runner = cargo(&["run", "--quiet", "--package", "conformance"]);
    if options.arguments.iter().any(|word| word.contains("gpu")) {
        Driver::prepare()?.apply(&mut runner);
    }
    // Paths are relative to where the caller is.
    runner.arg("--manifest-path").arg(root().join("Cargo.toml"));
    runner.current_dir(std::env::current_dir()?);
    show(runner.arg("--").args(&options.arguments))
}
