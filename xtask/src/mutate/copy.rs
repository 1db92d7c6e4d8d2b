//! The copy of the project that mistakes are planted in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Mutation;
use crate::run::{capture, root, target};

/// Where the copy and what is built of it are; kept from run to run.
pub(super) fn folder() -> PathBuf {
    target().join("mutate")
}

/// Copies every file that is tracked, or would be if it were added. Files that are the same already
/// are left alone, so that cargo compiles only what changed.
pub(super) fn make() -> Result<PathBuf> {
    let tree = folder().join("tree");
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let names = capture(Command::new("git").args(list).current_dir(root()))?;
    let names: BTreeSet<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
    for name in &names {
        // A file that was deleted is listed until the deletion is committed.
        let Ok(bytes) = std::fs::read(root().join(name)) else { continue };
        let to = tree.join(name);
        if std::fs::read(&to).is_ok_and(|old| old == bytes) {
            continue;
        }
        std::fs::create_dir_all(to.parent().unwrap_or(&tree))?;
        std::fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    remove_others(&tree, &tree, &names)?;
    Ok(tree)
}

fn remove_others(folder: &Path, tree: &Path, names: &BTreeSet<&str>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.strip_prefix(tree).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        if path.is_dir() {
            remove_others(&path, tree, names)?;
        } else if !names.contains(name.as_str()) || !root().join(&name).exists() {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Whether a mistake can be planted; known before anything is built.
pub(super) fn check(tree: &Path, mutation: &Mutation) -> Result<()> {
    apply(tree, mutation, &["--check"])
}

/// Plants a mistake in the copy.
pub(super) fn plant(tree: &Path, mutation: &Mutation) -> Result<()> {
    apply(tree, mutation, &[])
}

fn apply(tree: &Path, mutation: &Mutation, options: &[&str]) -> Result<()> {
    let mut apply = Command::new("git");
    apply.arg("apply").args(options).arg(&mutation.path).current_dir(tree);
    // Within a repository, git would take the paths from its root.
    apply.env("GIT_CEILING_DIRECTORIES", folder()).env_remove("GIT_DIR");
    capture(&mut apply).map(drop).with_context(|| {
        format!("xtask/mutations/{}.patch no longer applies; make it anew", mutation.name)
    })
}
