//! What unit tests share.

use crate::device::Device;

/// The CPU, and the best GPU. A missing GPU is said, and a failure in CI.
pub(crate) fn devices() -> Vec<Device> {
    let mut devices = vec![Device::cpu()];
    #[cfg(feature = "gpu")]
    match Device::gpu() {
        Ok(gpu) => devices.push(gpu),
        Err(error) if std::env::var_os("CI").is_none() => eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    }
    devices
}
