//! The wootz command-line program.

mod bench;
mod chat;
mod common;
mod completions;
mod convert;
mod devices;
mod failure;
mod foreign;
mod generate;
mod info;
mod kernels;
mod list;
mod man;
mod perplexity;
mod plot;
mod sampling;
mod session;
mod several;
mod source;
mod text;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use self::common::Common;

/// Run and quantize language models on your own machine.
#[derive(Parser)]
#[command(name = "wootz", version = VERSION, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    common: Common,
}

/// Version and commit.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("WOOTZ_COMMIT"), ")");

const EXAMPLES: &str = "\
Examples:
  wootz generate -p \"Why is the sky blue?\"           with a small model that is fetched once
  wootz chat -m qwen3-0.6b                           a conversation
  wootz convert -m org/name -o NAME-4bit -q          a quantized copy
  wootz perplexity -m model.gguf text.txt            how well a model knows a text
  wootz bench -m model.gguf                          how fast it is";

const DEVICES: &str = "\
Examples:
  wootz devices                            what --device takes: cpu, gpu:0, ...
  wootz devices --verbose                  with every limit of each GPU
  wootz generate --device gpu:0 -p Hello   compute on one of them";

#[derive(Subcommand)]
enum Command {
    /// Continue a text, or answer a question.
    #[command(visible_alias = "run")]
    Generate(generate::Options),
    /// Talk with a model.
    Chat(chat::Options),
    /// Quantize a model, or bring it into another layout: Hugging Face, MLX, GGUF.
    Convert(convert::Options),
    /// Measure how well a model predicts a text.
    Perplexity(perplexity::Options),
    /// Measure how fast a model reads and writes.
    Bench(bench::Options),
    /// Describe a model: architecture, parameters, formats, memory.
    Info(info::Options),
    /// List the models in the caches, or those with a short name.
    List(list::Options),
    /// List the devices that arrays can live on, and which one is the default.
    #[command(after_help = DEVICES)]
    Devices,
    /// Print the GPU kernels of an operation as they reach the driver, or list all.
    Kernels(kernels::Options),
    /// Print completions for a shell.
    Completions(completions::Options),
    /// Print the manual page.
    Man(man::Options),
}

fn main() -> ExitCode {
    let Cli { command, common } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    match run(&command, &common) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}

/// Prints what clap says: help, or what of the arguments is wrong.
fn refuse(error: &clap::Error) -> ExitCode {
    // Where nobody reads, there is nobody to tell.
    let _printed = error.print();
    if error.use_stderr() {
        let arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        if let Some(hint) = foreign::hint(arguments) {
            failure::print_hint(&hint);
        }
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn run(command: &Command, common: &Common) -> anyhow::Result<()> {
    // Whoever computes opens the device; the others only have to be asked for one that there is.
    common.check()?;
    match command {
        Command::Generate(options) => generate::run(options, common),
        Command::Chat(options) => chat::run(options, common),
        Command::Convert(options) => convert::run(options, common),
        Command::Perplexity(options) => perplexity::run(options, common),
        Command::Bench(options) => bench::run(options, common),
        Command::Info(options) => info::run(options, common),
        Command::List(options) => list::run(options),
        Command::Devices => devices::run(common.verbose),
        Command::Kernels(options) => kernels::run(options, common),
        Command::Completions(options) => completions::run(options, &mut Cli::command()),
        Command::Man(options) => man::run(options, Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
