//! Development tasks: `cargo xtask <command>`, one file per command.

use clap::{Parser, Subcommand};

mod bench;
mod check;
mod conformance;
mod converted;
mod docs;
mod driver;
mod fuzz;
mod goldens;
mod loom;
mod metal_report;
mod mutate;
mod parity;
mod run;
mod targets;
mod test;
mod tidy;
mod tokenizers;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Development tasks of wootz")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Does what CI does, with the time of each stage
    Check(check::Options),
    /// Installs the software Vulkan driver and clang where it may, then runs all tests
    Test(test::Options),
    /// Type-checks everything, tests included, for Macs, on any system
    CheckApple(targets::Options),
    /// Type-checks every crate and test for Windows, on any system
    CheckWindows(targets::Options),
    /// Runs the thread team and the cache of memory in every order of their threads
    Loom(loom::Options),
    /// Gives readers of files whatever bytes libFuzzer thinks of (nightly toolchain)
    Fuzz(fuzz::Options),
    /// Plants mistakes in a copy and tells which of them the tests notice
    Mutate(mutate::Options),
    /// House rules that the compiler does not know
    Tidy,
    /// Copies the table of ops that the test harness wrote to docs/ops.md
    Docs,
    /// Records expected values from MLX into goldens/
    Goldens(goldens::Options),
    /// Compares vocabularies and chat templates of a folder with recorded tokens and with Jinja2
    Tokenizers(tokenizers::Options),
    /// Runs a folder of cases recorded from MLX
    Conformance(conformance::Options),
    /// Runs a folder of language models beside what mlx-lm computed of them
    Parity(parity::Options),
    /// mlx-lm and llama.cpp load what `wootz convert` writes, and continue a text as wootz does
    Converted(converted::Options),
    /// Tests and measures on a Mac's GPU, and writes one file to send in
    MetalReport(metal_report::Options),
    /// Measures wootz beside its peers and the machine's limits
    Bench(bench::Options),
}

fn main() -> std::process::ExitCode {
    let result = match Arguments::parse().command {
        Command::Check(options) => check::run(&options),
        Command::Test(options) => test::run(&options),
        Command::CheckApple(options) => targets::run(&targets::APPLE, &options),
        Command::CheckWindows(options) => targets::run(&targets::WINDOWS, &options),
        Command::Loom(options) => loom::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Mutate(options) => mutate::run(&options),
        Command::Tidy => tidy::run(),
        Command::Docs => docs::update(),
        Command::Goldens(options) => goldens::run(&options),
        Command::Tokenizers(options) => tokenizers::run(&options),
        Command::Conformance(options) => conformance::run(&options),
        Command::Parity(options) => parity::run(&options),
        Command::Converted(options) => converted::run(&options),
        Command::MetalReport(options) => metal_report::run(&options),
        Command::Bench(options) => bench::run(&options),
    };
    // The message alone: where in this program it arose helps nobody.
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
