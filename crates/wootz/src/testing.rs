//! What unit tests share.

use crate::device::Device;

/// The CPU, and the best GPU. A missing GPU is said, and a failure in CI.
pub(crate) fn devices() -> Vec<Device> {
    [Some(Device::cpu()), gpu()].into_iter().flatten().collect()
}

#[cfg(feature = "gpu")]
fn gpu() -> Option<Device> {
    match Device::gpu() {
        Ok(gpu) => Some(gpu),
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[cfg(not(feature = "gpu"))]
fn gpu() -> Option<Device> {
    None
}
