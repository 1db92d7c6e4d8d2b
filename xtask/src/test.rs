//! `cargo xtask test`: all tests, GPU cases included wherever a driver can be had.

use anyhow::{Result, bail};

use crate::docs;
use crate::driver::Driver;
use crate::run::{cargo, ci, show};

/// Everything.
pub(crate) fn run() -> Result<()> {
    workspace()?;
    vector()
}

/// The harness's CPU part with vectorised kernels: development builds compile them for one
/// instruction set, which is not the one that users run.
pub(crate) fn vector() -> Result<()> {
    let arguments = ["test", "-p", "wootz", "--no-default-features", "--test", "every_op"];
    show(cargo(&arguments).args(["--profile", "vector"]))
}

/// Prepares the driver, runs the tests of the workspace, and compares the table of ops.
pub(crate) fn workspace() -> Result<()> {
    let driver = Driver::prepare()?;
    if let Driver::Missing(reason) = &driver
        && ci()
    {
        bail!("GPU tests must run in CI: {reason}");
    }
    docs::discard();
    let mut tests = cargo(&["test", "--workspace"]);
    driver.apply(&mut tests);
    show(&mut tests)?;
    match driver {
        Driver::Missing(reason) => {
            // Without GPU cases the table lacks that column.
            docs::discard();
            println!("SKIPPED: GPU tests: {reason}");
        }
        _ => docs::compare()?,
    }
    Ok(())
}
