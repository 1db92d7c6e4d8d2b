//! `cargo xtask test`: all tests, GPU cases included wherever a driver can be had.

use anyhow::{Result, bail};

use crate::docs;
use crate::driver::Driver;
use crate::run::{cargo, ci, has, install, show};
use crate::targets;

/// Options of `test`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only the harness's CPU part, the CPU's own tests and recorded quantized values, with vectorised kernels
    #[arg(long, conflicts_with = "metal_sim")]
    vector: bool,
    /// Only the CPU's own tests of quantized weights, products and vectors, with vectorised kernels
    #[arg(long, conflicts_with_all = ["metal_sim", "vector"])]
    kernels: bool,
    /// Only random programs, this many on the CPU and a tenth of them on the GPU
    #[arg(long, value_name = "N", conflicts_with_all = ["metal_sim", "vector", "kernels"])]
    programs: Option<usize>,
    /// With --programs: where to begin; a failure prints it
    #[arg(long, requires = "programs")]
    seed: Option<u64>,
    /// Only the CPU kernels that are written for one processor each, on aarch64 emulated by qemu
    #[arg(long, conflicts_with_all = ["metal_sim", "vector", "kernels", "programs"])]
    aarch64: bool,
    /// Only the kernels as Metal: their MSL compiled with clang and run on the CPU
    #[arg(long)]
    metal_sim: bool,
    /// With --metal-sim: every case, and the report to docs/metal-sim.md
    #[arg(long, requires = "metal_sim")]
    full: bool,
}

/// Everything, or the part asked for.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.metal_sim {
        return metal(options.full);
    }
    if options.vector {
        return vector();
    }
    if options.kernels {
        return show(&mut cargo(&KERNELS));
    }
    if options.aarch64 {
        return targets::emulated();
    }
    if let Some(count) = options.programs {
        return programs(count, options.seed);
    }
    workspace()?;
    vector()?;
    metal(false)
}

/// The harness's CPU part with vectorised kernels: development builds compile them for one
/// instruction set, which is not the one that users run. Then tests of those kernels alone, and of values
/// that were recorded of quantized weights.
fn vector() -> Result<()> {
    show(&mut cargo(&VECTOR))?;
    show(&mut cargo(&KERNELS))?;
    show(&mut cargo(&RECORDED))
}

/// The arguments of [`vector`]'s parts. Filters follow the dashes.
pub(crate) const VECTOR: [&str; 8] =
    ["test", "-p", "wootz", "--no-default-features", "--test", "every_op", "--profile", "vector"];
pub(crate) const KERNELS: [&str; 14] = [
    "test",
    "-p",
    "wootz",
    "--no-default-features",
    "--lib",
    "--profile",
    "vector",
    "--",
    "cpu::quant",
    "cpu::gemm",
    "cpu::simd",
    "quant::",
    "ops::joined",
    "ops::quantized",
];
pub(crate) const RECORDED: [&str; 10] = [
    "test",
    "-p",
    "conformance",
    "--no-default-features",
    "--test",
    "recorded",
    "--profile",
    "vector",
    "--",
    "quantized",
];

/// Random programs, in a number of one's own.
fn programs(count: usize, seed: Option<u64>) -> Result<()> {
    let mut tests = cargo(&["test", "--workspace", "--test", "programs", "--", "--nocapture"]);
    Driver::prepare()?.apply(&mut tests);
    tests.env("WOOTZ_PROGRAMS", count.to_string());
    if let Some(seed) = seed {
        tests.env("WOOTZ_SEED", seed.to_string());
    }
    show(&mut tests)
}

/// Every kernel as the MSL that Apple's driver would be given, run on the CPU by metal-sim.
pub(crate) fn metal(full: bool) -> Result<()> {
    prepare_clang();
    // With the features of all tests, so that nothing is compiled for this alone.
    let mut tests = cargo(&["test", "--workspace", "--test", "every_op"]);
    tests.args(["every_kernel_is_right_as_metal", "--", "--ignored", "--nocapture"]);
    if full {
        tests.env("WOOTZ_METAL_SIM", "full");
    }
    docs::discard_metal();
    show(&mut tests)?;
    if full { docs::update_metal() } else { Ok(()) }
}

/// Installs clang where it is missing and that is possible.
fn prepare_clang() {
    if cfg!(target_os = "linux")
        && !has("clang++-19")
        && let Err(error) = install(&["clang-19"])
    {
        // Another clang may do; else tests say that they are skipped, or fail in CI.
        println!("no clang++-19: {error:#}");
    }
}

/// Prepares the driver, runs the tests of the workspace, and compares the table of ops.
pub(crate) fn workspace() -> Result<()> {
    let driver = Driver::prepare()?;
    if let Driver::Missing(reason) = &driver
        && ci()
    {
        bail!("GPU tests must run in CI: {reason}");
    }
    prepare_clang();
    docs::discard();
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    driver.apply(&mut tests);
    show(&mut tests)?;
    match driver {
        Driver::Missing(reason) => {
            // Without GPU cases the table lacks that column.
            docs::discard();
            println!("SKIPPED: GPU tests: {reason}");
        }
        _ => docs::compare()?,
    }
    Ok(())
}
