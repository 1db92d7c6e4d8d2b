//! `cargo xtask check-apple` and `check-windows`: type checks for systems that this one is not.
//! Nothing is linked and nothing runs, so neither a Mac nor Xcode is needed. And `test --aarch64`, which
//! links and runs, under emulation.
//!
//! The standard library of the other system must come from somewhere: an installed target
//! (`rustup target add`), or its sources, named by `WOOTZ_STD_SOURCES`: a folder that holds
//! `library/Cargo.lock`, or an archive of one, `rust-std-src-VERSION.tar.xz`. They must be those of the
//! compiler in use, which then compiles them as part of the check.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::run::{capture, cargo, ci, has, install, root, show, target};

/// Options of both commands.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Then plant a type error in code for that system only, in a copy, and see that it is found
    #[arg(long)]
    planted: bool,
}

/// A system to check for.
pub(crate) struct Target {
    triple: &'static str,
    /// Code that only this system compiles: where, and behind what.
    own: (&'static str, &'static str),
    /// A program that compiling its standard library needs, and Debian's package that has it.
    tool: Option<(&'static str, &'static str)>,
    /// What is checked of the workspace's crates.
    targets: &'static [&'static str],
}

/// Macs with Apple's own processors.
pub(crate) const APPLE: Target = Target {
    triple: "aarch64-apple-darwin",
    own: ("crates/wootz/src/gpu/apple.rs", "target_vendor = \"apple\""),
    tool: None,
    targets: &["--all-targets"],
};

/// Windows, in the variant for which free tools exist everywhere.
pub(crate) const WINDOWS: Target = Target {
    triple: "x86_64-pc-windows-gnu",
    own: ("crates/wootz/src/gpu/device.rs", "windows"),
    // It makes the import libraries of the system's own ones.
    tool: Some(("x86_64-w64-mingw32-dlltool", "binutils-mingw-w64-x86-64")),
    targets: &["--all-targets"],
};

/// Linux on Arm's processors, which qemu emulates.
const ARM: Target = Target {
    triple: "aarch64-unknown-linux-gnu",
    own: ("crates/wootz/src/cpu/quant/neon.rs", "target_arch = \"aarch64\""),
    tool: Some((ARM_LINKER, "gcc-aarch64-linux-gnu")),
    targets: &["--lib"],
};
const ARM_LINKER: &str = "aarch64-linux-gnu-gcc";
const ARM_EMULATOR: &str = "qemu-aarch64";
/// Everything that has kernels for Arm: each has tests of its own, beside portable kernels and sums in f64.
const ARM_TESTS: [&str; 2] = ["cpu::quant", "cpu::gemm"];
/// Where Debian's packages put the system's libraries.
const ARM_SYSTEM: &str = "/usr/aarch64-linux-gnu";

/// Every crate but the program, whose downloads need a compiler of C for the other system.
const CRATES: [&str; 3] = ["--workspace", "--exclude", "wootz-cli"];

/// The program without them.
const PROGRAM: [&str; 5] = ["--package", "wootz-cli", "--bins", "--tests", "--no-default-features"];

/// Without a complaint.
const LINTS: [&str; 5] = [
    "--",
    "-D",
    "warnings",
    // For Windows clippy also accuses those that are `const`: the macro's code is another there.
    "-A",
    "clippy::missing_const_for_thread_local",
];

const SOURCES: &str = "WOOTZ_STD_SOURCES";

/// Where the target's standard library comes from.
enum Std {
    Installed,
    /// The folder `library`.
    Sources(PathBuf),
    /// From nowhere, and why.
    Missing(String),
}

/// Checks, or says why not.
pub(crate) fn run(target: &Target, options: &Options) -> Result<()> {
    let triple = target.triple;
    let standard = match find(target)? {
        // `none`: there are no sources to be had either.
        Std::Missing(reason) if ci() && std::env::var_os(SOURCES).is_none_or(|v| v != "none") => {
            bail!("{triple} must be checked in CI: {reason}")
        }
        Std::Missing(reason) => {
            println!("SKIPPED: type check for {triple}: {reason}");
            return Ok(());
        }
        found => found,
    };
    show(check(target, &standard, &root()).args(target.targets).args(CRATES).args(LINTS))?;
    show(check(target, &standard, &root()).args(PROGRAM).args(LINTS))?;
    println!("{triple}: type-checked");
    if options.planted { plant(target, &standard) } else { Ok(()) }
}

/// Runs the tests of CPU kernels that are written for one processor each, on an emulated one, or says
/// why not.
pub(crate) fn emulated() -> Result<()> {
    let standard = find(&ARM)?;
    // The linker's package only recommends the system's library.
    let parts = [
        (has(ARM_EMULATOR), "qemu-user"),
        (Path::new(ARM_SYSTEM).join("lib/crti.o").exists(), "libc6-dev-arm64-cross"),
    ];
    let missing: Vec<&str> = parts.iter().filter(|part| !part.0).map(|part| part.1).collect();
    let standard = match missing.is_empty() {
        true => standard,
        false => match install(&missing) {
            Ok(()) => standard,
            Err(e) => Std::Missing(format!("no {}: {e:#}", missing.join(" "))),
        },
    };
    if let Std::Missing(reason) = standard {
        ensure!(!ci(), "{} must be tested in CI: {reason}", ARM.triple);
        println!("SKIPPED: tests for {}: {reason}", ARM.triple);
        return Ok(());
    }
    let mut tests = cargo(&["test", "--locked", "--target", ARM.triple]);
    tests.args(["-p", "wootz", "--no-default-features"]).args(ARM.targets);
    tests.arg("--target-dir").arg(folder());
    let runner = format!("{ARM_EMULATOR} -cpu max -L {ARM_SYSTEM}");
    tests.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", ARM_LINKER);
    tests.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner);
    with_standard(&mut tests, &standard);
    tests.args(["--", "--show-output"]).args(ARM_TESTS);
    all_executed(&mut tests)
}

/// Runs tests and shows what they print: it is a failure if one fails, or has anything to skip, as kernels for
/// instructions that the emulator lacks, or if a part has no tests.
fn all_executed(tests: &mut Command) -> Result<()> {
    let mut child =
        tests.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {tests:?}"))?;
    let (mut passed, mut skipped) = ([0; ARM_TESTS.len()], Vec::new());
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        for (part, passed) in ARM_TESTS.iter().zip(&mut passed) {
            let own = line.strip_prefix("test ").is_some_and(|name| name.starts_with(part));
            *passed += usize::from(own && line.ends_with("... ok"));
        }
        if line.contains("SKIPPED") {
            skipped.push(line);
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "failed with {status}: {tests:?}");
    ensure!(skipped.is_empty(), "not executed on {}: {}", ARM.triple, skipped.join("; "));
    for (part, passed) in ARM_TESTS.iter().zip(passed) {
        ensure!(passed > 0, "{part} has no tests");
        println!("{}: {passed} tests of {part} executed its kernels", ARM.triple);
    }
    Ok(())
}

/// `cargo clippy`, which checks and knows the house rules too, of the workspace in a folder.
fn check(target: &Target, standard: &Std, workspace: &Path) -> Command {
    let mut c = cargo(&["clippy", "--locked", "--target", target.triple]);
    // Optimised macros and build scripts, as the tests have them, take longer to compile than they save.
    c.args(["--config", "profile.dev.opt-level=0"]);
    c.args(["--config", "profile.dev.package.\"*\".opt-level=0"]);
    c.arg("--target-dir").arg(folder()).current_dir(workspace);
    with_standard(&mut c, standard);
    c
}

/// Lets cargo compile the standard library where there are only its sources.
fn with_standard(c: &mut Command, standard: &Std) {
    if let Std::Sources(library) = standard {
        // What cargo and the compiler otherwise allow in nightly versions only; here it decides
        // about a check, never about a product.
        c.arg("-Zbuild-std=std,panic_abort");
        c.env("__CARGO_TESTS_ONLY_SRC_ROOT", library).env("RUSTC_BOOTSTRAP", "1");
    }
}

fn find(target: &Target) -> Result<Std> {
    let found = if installed(target)? {
        Std::Installed
    } else if let Some(path) =
        std::env::var_os(SOURCES).filter(|value| !value.is_empty() && value != "none")
    {
        Std::Sources(sources(&std::path::absolute(path)?)?)
    } else {
        return Ok(Std::Missing(format!(
            "rustc has no standard library for it; run `rustup target add {}`, or let {SOURCES} \
             name the sources of Rust's standard library",
            target.triple
        )));
    };
    if let Some((tool, package)) = target.tool
        && !has(tool)
        && let Err(e) = install(&[package])
    {
        return Ok(Std::Missing(format!("no {tool}: {e:#}")));
    }
    Ok(found)
}

fn installed(target: &Target) -> Result<bool> {
    let folder = capture(rustc().args(["--print", "target-libdir", "--target", target.triple]))?;
    let Ok(entries) = std::fs::read_dir(folder.trim()) else { return Ok(false) };
    Ok(entries.flatten().any(|e| e.file_name().to_string_lossy().starts_with("libstd-")))
}

/// The folder `library` below a path, or unpacked from it.
fn sources(path: &Path) -> Result<PathBuf> {
    let good = |folder: &Path| folder.join("library/Cargo.lock").is_file();
    if path.is_dir() {
        ensure!(good(path), "{SOURCES}: {} has no library/Cargo.lock", path.display());
        return Ok(path.join("library"));
    }
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    ensure!(path.is_file(), "{SOURCES}: there is no {}", path.display());
    let version = capture(rustc().arg("--version"))?;
    let version = version.split_whitespace().nth(1).unwrap_or("").to_string();
    let wanted = format!("rust-std-src-{version}.tar.xz");
    ensure!(name == wanted, "{SOURCES}: {name} is not {wanted}, as this compiler needs");

    let unpacked = folder().join(format!("rust-std-src-{version}"));
    if !good(&unpacked) {
        // Complete or not there at all, whoever interrupts.
        let partial = folder().join(format!("rust-std-src-{version}.{}", std::process::id()));
        std::fs::create_dir_all(&partial)?;
        show(Command::new("tar").arg("-xJf").arg(path).arg("-C").arg(&partial))?;
        ensure!(good(&partial), "{SOURCES}: {} has no library/Cargo.lock", path.display());
        std::fs::rename(&partial, &unpacked)
            .with_context(|| format!("cannot make {}", unpacked.display()))?;
    }
    Ok(unpacked.join("library"))
}

/// Sees that an error in code for this system alone fails the check, at its place.
fn plant(target: &Target, standard: &Std) -> Result<()> {
    let (file, condition) = target.own;
    let copy = folder().join("planted");
    if copy.exists() {
        std::fs::remove_dir_all(&copy)?;
    }
    let list = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let names = capture(Command::new("git").args(list).current_dir(root()))?;
    // Files that are deleted but not yet committed are listed too.
    for name in names.lines().filter(|name| root().join(name).is_file()) {
        let to = copy.join(name);
        std::fs::create_dir_all(to.parent().unwrap_or(&copy))?;
        std::fs::copy(root().join(name), to)?;
    }
    let mut text = std::fs::read_to_string(copy.join(file))?;
    let line = text.lines().count() + 2;
    text.push_str(&format!("#[cfg({condition})]\nconst _PLANTED: u32 = \"not a number\";\n"));
    std::fs::write(copy.join(file), text)?;

    let mut planted = check(target, standard, &copy);
    // As above, else dependencies are checked again for another set of features. It ends soon.
    planted.args(target.targets).args(CRATES).args(LINTS);
    let out = planted.output().with_context(|| format!("cannot start {planted:?}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    let found = said.contains("E0308") && said.contains(&format!("{}:{line}", local(file)));
    ensure!(
        !out.status.success() && found,
        "a type error planted at {file}:{line} was not found; the check said:\n{said}"
    );
    std::fs::remove_dir_all(&copy)?;
    println!("{}: a type error planted in {file} is found", target.triple);
    Ok(())
}

/// A path as the compiler prints it here.
fn local(path: &str) -> String {
    path.replace('/', std::path::MAIN_SEPARATOR_STR)
}

fn rustc() -> Command {
    let mut c = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    c.current_dir(root());
    c
}

/// Apart from other builds, which would otherwise wait for these and be rebuilt by them.
fn folder() -> PathBuf {
    target().join("cross")
}
