//! `cargo xtask metal-report`: what the owner of a Mac runs once. Tests and measurements on real
//! Metal, and what is known of the machine, in one file to send in. Nothing is sent by itself.
//!
//! It goes on after a failure: a part that fails is what the report is for.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::driver::Driver;
use crate::run::{cargo, root};
use crate::test::{KERNELS, VECTOR};

/// Options of `metal-report`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "metal-report.txt")]
    output: PathBuf,
    /// Only parts whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Something to run and to report.
struct Part {
    name: &'static str,
    /// Whether it is about the GPU, so that it says nothing of Metal elsewhere.
    gpu: bool,
    command: Command,
}

/// How a part ended.
struct Outcome {
    name: &'static str,
    result: String,
    seconds: f64,
}

/// Writes the report.
pub(crate) fn run(options: &Options) -> Result<()> {
    let path = root().join(&options.output);
    let mut report =
        File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    writeln!(report, "wootz on Metal: report of version {}", env!("CARGO_PKG_VERSION"))?;
    if !metal() {
        writeln!(report, "NOT METAL: this is {}, not a Mac; {}", std::env::consts::OS, software())?;
    }
    let only = options.only.as_deref().unwrap_or("");
    let mut outcomes = Vec::new();
    for part in parts()?.into_iter().filter(|part| part.name.contains(only)) {
        println!("{} ...", part.name);
        let outcome = execute(part, &mut report)?;
        println!("{}: {} ({:.0} s)", outcome.name, outcome.result, outcome.seconds);
        outcomes.push(outcome);
    }
    writeln!(report, "\n== summary")?;
    for Outcome { name, result, seconds } in &outcomes {
        writeln!(report, "{name:<16}{seconds:>8.0} s  {result}")?;
    }
    drop(report);
    without_home(&path)?;
    println!("{} is written: please read it, then send it in", path.display());
    Ok(())
}

fn parts() -> Result<Vec<Part>> {
    let part = |name, gpu, command| Part { name, gpu, command };
    let other = |program: &str, arguments: &[&str]| {
        let mut c = Command::new(program);
        c.args(arguments).current_dir(root());
        c
    };
    let driver = Driver::prepare()?;
    let on_gpu = |arguments: &[&str]| {
        let mut c = cargo(arguments);
        driver.apply(&mut c);
        c
    };
    let speed = ["run", "--release", "-p", "wootz", "--example", "speed", "--"];
    let mut parts = vec![
        part("commit", false, other("git", &["log", "-1", "--format=%H %cs"])),
        part("changes", false, other("git", &["status", "--short"])),
        part("compiler", false, other("rustc", &["-vV"])),
    ];
    if metal() {
        parts.push(part("system", false, other("sw_vers", &[])));
        let keys = ["machdep.cpu.brand_string", "hw.model", "hw.memsize", "hw.ncpu"];
        let keys = [keys.as_slice(), &["hw.perflevel0.physicalcpu", "hw.pagesize"]].concat();
        parts.push(part("chip", false, other("sysctl", &keys)));
        // The number of GPU cores, and the version of Metal.
        parts.push(part("display", false, other("system_profiler", &["SPDisplaysDataType"])));
    } else {
        parts.push(part("system", false, other("uname", &["-srm"])));
    }
    let devices = ["run", "--release", "-p", "wootz-cli", "--", "devices", "--verbose"];
    parts.extend([
        part("devices", true, on_gpu(&devices)),
        part("speed gpu", true, on_gpu(&[speed.as_slice(), &["gpu"]].concat())),
        part("speed cpu", false, on_gpu(&[speed.as_slice(), &["cpu"]].concat())),
        // The processor beside the peers that are crates; PyTorch takes part if it was installed for it.
        part("bench", false, cargo(&["xtask", "bench"])),
        // Last, because they take longest. The harness runs every operation on the GPU; the CPU's
        // kernels run as they are compiled for users too.
        part("test", true, on_gpu(&["test", "--workspace", "--no-fail-fast"])),
        part("test vector", false, cargo(&VECTOR)),
        part("test kernels", false, cargo(&KERNELS)),
    ]);
    Ok(parts)
}

/// Runs a part with everything it prints going into the report.
fn execute(mut part: Part, report: &mut File) -> Result<Outcome> {
    writeln!(report, "\n== {}", part.name)?;
    if part.gpu && !metal() {
        writeln!(report, "NOT METAL: {}", software())?;
    }
    writeln!(report, "$ {}", line(&part.command))?;
    let start = Instant::now();
    part.command.stdin(Stdio::null());
    part.command.stdout(report.try_clone()?).stderr(report.try_clone()?);
    // Cargo's progress is for terminals.
    part.command.env("CARGO_TERM_PROGRESS_WHEN", "never").env("CARGO_TERM_COLOR", "never");
    let result = match part.command.status() {
        Ok(status) => {
            status.code().map_or_else(|| status.to_string(), |c| format!("exit code {c}"))
        }
        Err(e) => format!("not started: {e}"),
    };
    let seconds = start.elapsed().as_secs_f64();
    writeln!(report, "== {}: {result}, {seconds:.1} s", part.name)?;
    Ok(Outcome { name: part.name, result, seconds })
}

/// A command as one would type it.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The owner's name, which paths contain, is nobody's business.
fn without_home(path: &Path) -> Result<()> {
    let Some(home) = std::env::var("HOME").ok().filter(|home| home.len() > 1) else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(&std::fs::read(path)?).replace(&home, "~");
    std::fs::write(path, text)?;
    Ok(())
}

fn metal() -> bool {
    cfg!(target_os = "macos")
}

fn software() -> &'static str {
    "GPU parts run on Vulkan, on Mesa's software driver where that is found"
}
