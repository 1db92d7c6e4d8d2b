//! The Vulkan driver that GPU tests run on: Mesa's software driver (lavapipe) on Linux.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::run::install;

/// What GPU tests will find.
pub(crate) enum Driver {
    /// The manifest of lavapipe: tests see this driver only, so that all machines test the same.
    Software(PathBuf),
    /// The system's own GPU interface (Metal).
    System,
    /// No driver, and why none could be had.
    Missing(String),
}

impl Driver {
    /// Looks for the driver and installs it where that is possible.
    pub(crate) fn prepare() -> Result<Driver> {
        if cfg!(target_os = "macos") {
            return Ok(Driver::System);
        }
        if let Some(manifest) = lavapipe() {
            return Ok(Driver::Software(manifest));
        }
        if let Err(e) = install(&["mesa-vulkan-drivers", "libvulkan1"]) {
            return Ok(Driver::Missing(format!("no lavapipe Vulkan driver: {e:#}")));
        }
        Ok(lavapipe().map_or_else(
            || Driver::Missing("mesa-vulkan-drivers has no lavapipe on this machine".into()),
            Driver::Software,
        ))
    }

    /// Tells a test process which driver to use, and whether GPU cases must run.
    pub(crate) fn apply(&self, command: &mut Command) {
        // Mesa prints an error about this one, though nothing here opens a window.
        if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
            command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
        }
        match self {
            Driver::Software(manifest) => {
                command.env("VK_DRIVER_FILES", manifest).env("VK_ICD_FILENAMES", manifest);
                command.env("WOOTZ_TEST_GPU", "required");
            }
            Driver::System => {
                command.env("WOOTZ_TEST_GPU", "required");
            }
            Driver::Missing(_) => {
                command.env("WOOTZ_TEST_GPU", "skip");
            }
        }
    }
}

/// The manifest of the installed lavapipe, if any.
fn lavapipe() -> Option<PathBuf> {
    let folders = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"];
    let mut found: Vec<PathBuf> = folders
        .iter()
        .filter_map(|f| std::fs::read_dir(f).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("lvp_icd")))
        .collect();
    found.sort();
    // Of several architectures' manifests, take this machine's.
    let own = found.iter().position(|p| p.to_string_lossy().contains(std::env::consts::ARCH));
    found.into_iter().nth(own.unwrap_or(0))
}
