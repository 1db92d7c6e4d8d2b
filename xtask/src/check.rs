//! `cargo xtask check`: the stages of CI, each with its time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::driver::Driver;
use crate::run::{cargo, root, show, target};
use crate::{test, tidy};

/// Options of `check`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// A folder of conformance cases to run too, on both devices
    #[arg(long, value_name = "DIR")]
    conformance: Option<PathBuf>,
}

type Stage<'a> = (&'static str, Box<dyn Fn() -> Result<()> + 'a>);

/// Runs every stage, the later ones even if an earlier one failed, and prints a summary.
pub(crate) fn run(options: &Options) -> Result<()> {
    let start = Instant::now();
    let mut stages: Vec<Stage<'_>> = vec![
        ("fmt", Box::new(|| show(&mut cargo(&["fmt", "--all", "--check"])))),
        // With the tests, whose dependencies have features that those of a plain build lack: so the
        // library is compiled once for all that follows.
        ("build", Box::new(|| show(&mut cargo(&["build", "--workspace", "--all-targets"])))),
        ("test", Box::new(test::workspace)),
        // After the tests, which write the table of ops that tidy compares.
        ("tidy", Box::new(tidy::run)),
        // What is packed is what `build` compiled; compiling it a second time would show little.
        (
            "package",
            Box::new(|| {
                let all = ["package", "-p", "wootz-macros", "-p", "wootz", "-p", "wootz-lm"];
                show(cargo(&all).args(["-p", "wootz-cli", "--allow-dirty", "--no-verify"]))
            }),
        ),
    ];
    if let Some(folder) = &options.conformance {
        for (name, device) in [("conformance cpu", "cpu"), ("conformance gpu", "gpu")] {
            stages.push((name, Box::new(move || conformance(folder, device))));
        }
    }
    // A copy, because `build` may replace this program.
    let xtask = target().join("xtask-beside");
    std::fs::copy(std::env::current_exe()?, &xtask)?;
    // What others compile into folders of their own fills the time in which these wait for one crate.
    let mut results: Vec<Outcome> = Vec::new();
    let beside = std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut results = vec![run_beside("clippy", clippy())];
            results.extend(BESIDE.iter().map(|(name, task)| {
                let mut command = Command::new(&xtask);
                command.args(*task);
                run_beside(name, command)
            }));
            results.push(run_beside("doc", doc()));
            results
        });
        results.extend(stages.iter().map(|(name, stage)| {
            println!("== {name}");
            let start = Instant::now();
            let result = stage();
            if let Err(e) = &result {
                println!("{e:#}");
            }
            println!("== {name}: {:.1} s", start.elapsed().as_secs_f64());
            (*name, start.elapsed(), result)
        }));
        beside.join()
    });
    match beside {
        Ok(beside) => results.extend(beside),
        Err(_) => bail!("the stages beside the others did not end"),
    }
    summary(&results, start.elapsed())
}

/// A stage's name, its time and how it ended.
type Outcome = (&'static str, Duration, Result<()>);

/// Stages that run beside the others: their tasks of `cargo xtask`. The last one begins when the
/// tests, which it shares with them, are compiled, and fills the time in which one test runs long.
const BESIDE: [(&str, &[&str]); 5] = [
    ("loom", &["loom"]),
    ("test kernels", &["test", "--kernels"]),
    ("check-apple", &["check-apple"]),
    ("check-windows", &["check-windows"]),
    ("test metal", &["test", "--metal-sim"]),
];

/// The lints, in a folder of their own: they share little with what is built.
fn clippy() -> Command {
    let mut clippy = cargo(&["clippy", "--workspace", "--all-targets", "--target-dir"]);
    clippy.arg(target().join("clippy")).args(["--", "-D", "warnings"]);
    clippy
}

/// The documentation, without warnings.
fn doc() -> Command {
    let mut doc = cargo(&["doc", "--workspace", "--no-deps"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    doc
}

/// Runs a command by itself and prints what it said when it has ended.
fn run_beside(name: &'static str, mut command: Command) -> Outcome {
    let start = Instant::now();
    let mut run = || {
        let output = command.output().context("cannot start")?;
        let said = [output.stdout, output.stderr].map(|s| String::from_utf8_lossy(&s).into_owned());
        println!("== {name}, beside the others\n{}", said.concat());
        ensure!(output.status.success(), "failed with {}", output.status);
        Ok(())
    };
    let result = run();
    if let Err(e) = &result {
        println!("{name}: {e:#}");
    }
    println!("== {name}: {:.1} s", start.elapsed().as_secs_f64());
    (name, start.elapsed(), result)
}

/// Runs a folder of cases, which are held to the runner's figures and to some more: what is compared
/// bit by bit, and what must be refused, is right whole, but for cases whose reasons are listed; what is
/// compared with a tolerance, quantized weights and kernels of transformers at 99.5 %, layers and
/// optimizers at 99 %.
fn conformance(folder: &Path, device: &str) -> Result<()> {
    // As `build` made it; `cargo run` would compile the library for this package alone.
    let mut run = Command::new(target().join("debug/conformance"));
    Driver::prepare()?.apply(&mut run);
    run.arg(std::path::absolute(folder)?).args(["--device", device]);
    run.args(["--require-class", "exact=100,error=100,close=99.5"]);
    run.args(["--require-set", "networks=99,quantized=99.5,transformer=99.5"]);
    show(run.arg("--known").arg(root().join("crates/conformance/expected_failures.txt")))
}

fn summary(results: &[Outcome], total: Duration) -> Result<()> {
    println!("\n{:<17}{:>9}  result", "stage", "seconds");
    for (name, time, result) in results {
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("{name:<17}{:>9.1}  {word}", time.as_secs_f64());
    }
    println!("{:<17}{:>9.1}", "total", total.as_secs_f64());
    let failed: Vec<&str> = results.iter().filter(|r| r.2.is_err()).map(|r| r.0).collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}
