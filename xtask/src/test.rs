//! `cargo xtask test`: all tests, GPU cases included wherever a driver can be had.

use anyhow::{Result, bail};

use crate::docs;
use crate::driver::Driver;
use crate::run::{cargo, ci, show};

/// Prepares the driver, runs the tests of the workspace, and compares the table of ops.
pub(crate) fn run() -> Result<()> {
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
