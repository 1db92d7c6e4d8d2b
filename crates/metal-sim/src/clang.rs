//! Finding clang and calling it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The oldest major version that is known to work.
const OLDEST: u32 = 17;

/// A clang that can compile kernels.
#[derive(Clone, Debug)]
pub struct Toolchain {
    program: PathBuf,
    version: String,
}

impl Toolchain {
    /// Looks for `clang++-19`, then for other names of clang 17 or newer. The error says what is
    /// missing and how to get it.
    pub fn find() -> Result<Toolchain, String> {
        if !cfg!(target_os = "linux") {
            return Err("kernels are run as Metal only on Linux".into());
        }
        Toolchain::find_among(&["clang++-19", "clang++", "clang++-20", "clang++-18", "clang++-17"])
    }

    /// Looks for one of these programs.
    pub fn find_among(programs: &[&str]) -> Result<Toolchain, String> {
        let mut old = None;
        for program in programs {
            let Some(version) = version(Path::new(program)) else { continue };
            match major(&version) {
                Some(major) if major >= OLDEST => {
                    return Ok(Toolchain { program: program.into(), version });
                }
                _ => old = Some(version),
            }
        }
        let found = old.map_or("found none".to_owned(), |version| format!("found only {version}"));
        Err(format!(
            "kernels are run as Metal by clang {OLDEST} or newer: {found} \
             (Debian and Ubuntu: apt-get install clang-19)"
        ))
    }

    /// The first line of `clang --version`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Runs clang in a folder; what it says is the error.
    pub(crate) fn run(&self, folder: &Path, arguments: &[&str]) -> Result<(), String> {
        let output = Command::new(&self.program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

fn version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
}

fn major(version: &str) -> Option<u32> {
    let number = version.split("version ").nth(1)?;
    number.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_clang_is_explained() {
        let reason = Toolchain::find_among(&["no-such-clang++"]).unwrap_err();
        assert!(reason.contains("found none") && reason.contains("clang-19"), "{reason}");
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(major("Debian clang version 19.1.7 (3~deb12u1)"), Some(19));
        assert_eq!(major("Apple clang version 15.0.0"), Some(15));
        assert_eq!(major("gcc 12"), None);
    }
}
