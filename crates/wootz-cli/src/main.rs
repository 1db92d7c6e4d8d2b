//! The wootz command-line program.

mod devices;
mod kernels;

use clap::{Parser, Subcommand};

/// Run, fine-tune and quantize language models on your own machine.
#[derive(Parser)]
#[command(name = "wootz", version = VERSION, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Version and commit.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("WOOTZ_COMMIT"), ")");

#[derive(Subcommand)]
enum Command {
    /// List the devices that arrays can live on, and which one is the default.
    Devices(devices::Options),
    /// Print the GPU kernels of an operation as they reach the driver, or list all.
    Kernels(kernels::Options),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Devices(options) => devices::run(&options),
        Command::Kernels(options) => kernels::run(&options),
    }
}
