//! `cargo xtask tidy`: house rules that neither the compiler nor clippy knows.

mod dependencies;
mod layers;
mod sources;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::docs;
use crate::run::{capture, root};

/// Applies every rule and lists every breach.
pub(crate) fn run() -> Result<()> {
    let files = files()?;
    let mut breaches = Vec::new();
    sources::check(&files, &mut breaches);
    layers::check(&files, &mut breaches);
    dependencies::check(&mut breaches)?;
    if let Err(e) = docs::compare() {
        breaches.push(e.to_string());
    }
    if !breaches.is_empty() {
        bail!("{}\n{} breaches of house rules", breaches.join("\n"), breaches.len());
    }
    println!("tidy: {} files", files.len());
    Ok(())
}

/// A text file of the project.
struct Source {
    /// Path from the root, with forward slashes.
    path: String,
    text: String,
}

impl Source {
    /// The file's extension, or nothing.
    fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, e)| e)
    }

    /// Lines of library code with their numbers: up to the unit tests, without `//` comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let tests = self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        let lines = self.text[..tests].lines().enumerate();
        lines.map(|(i, line)| (i + 1, line.split("//").next().unwrap_or("")))
    }
}

/// Every text file that is tracked, or would be if it were added.
fn files() -> Result<Vec<Source>> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let names = capture(Command::new("git").args(list).current_dir(root()))?;
    let readable = |path: &str| -> Option<Source> {
        let text = std::fs::read_to_string(root().join(PathBuf::from(path))).ok()?;
        Some(Source { path: path.to_string(), text })
    };
    Ok(names.lines().filter_map(readable).collect())
}
