//! The generated table of ops: the test harness writes `wootz-ops.md` into the target folder from
//! what ran; `docs/ops.md` is its committed copy.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::run::{root, target};

/// Copies the harness's table over the committed one.
pub(crate) fn update() -> Result<()> {
    let made = made();
    let text = std::fs::read(&made)
        .with_context(|| format!("{} is written by `cargo xtask test`", made.display()))?;
    std::fs::create_dir_all(root().join("docs"))?;
    std::fs::write(committed(), text)?;
    println!("docs/ops.md is up to date");
    Ok(())
}

/// Copies the report of a full run of kernels as Metal over the committed one.
pub(crate) fn update_metal() -> Result<()> {
    let Ok(text) = std::fs::read_to_string(target().join("wootz-metal.md")) else { return Ok(()) };
    let title = "# Every case as Metal\n\nThe report of the last `cargo xtask test --metal-sim --full`; see \
                 [metal.md](metal.md) for what it proves.\n\n";
    std::fs::write(root().join("docs/metal-sim.md"), format!("{title}{text}"))?;
    println!("docs/metal-sim.md is up to date");
    Ok(())
}

/// Removes the report of an earlier run.
pub(crate) fn discard_metal() {
    let _ = std::fs::remove_file(target().join("wootz-metal.md"));
}

/// Fails if the committed table differs from the harness's, if that has run.
pub(crate) fn compare() -> Result<()> {
    let Ok(new) = std::fs::read(made()) else { return Ok(()) };
    let old = std::fs::read(committed()).unwrap_or_default();
    ensure!(old == new, "docs/ops.md is stale: run `cargo xtask test`, then `cargo xtask docs`");
    Ok(())
}

/// Removes the harness's table: an old or incomplete one must not be compared.
pub(crate) fn discard() {
    std::fs::remove_file(made()).ok();
}

/// Where the committed table is.
pub(crate) fn committed() -> PathBuf {
    root().join("docs/ops.md")
}

fn made() -> PathBuf {
    target().join("wootz-ops.md")
}
