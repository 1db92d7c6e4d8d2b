//! What tests count and share. Not part of what the crate promises.

use std::cell::Cell;
use std::ffi::OsStr;

#[cfg(test)]
use crate::device::Device;

/// What this thread has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Shape inferences: nodes built and operations of the explicit level checked.
    pub inferences: u64,
    /// Pieces of memory asked for, whether new or from a cache.
    pub allocations: u64,
    /// Bytes of arrays that operations wrote; an operation in place, in the memory of an input,
    /// does not count.
    pub written_bytes: u64,
    /// Bytes of mapped files that were copied for a kernel that wants them aligned.
    pub copied_bytes: u64,
}

impl Counters {
    /// What was done since `earlier`.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            inferences: self.inferences - earlier.inferences,
            allocations: self.allocations - earlier.allocations,
            written_bytes: self.written_bytes - earlier.written_bytes,
            copied_bytes: self.copied_bytes - earlier.copied_bytes,
        }
    }
}

/// The counters of this thread.
pub fn counters() -> Counters {
    Counters {
        inferences: INFERENCES.get(),
        allocations: ALLOCATIONS.get(),
        written_bytes: WRITTEN_BYTES.get(),
        copied_bytes: COPIED_BYTES.get(),
    }
}

// One cell each: a count costs an addition.
thread_local! {
    static INFERENCES: Cell<u64> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static WRITTEN_BYTES: Cell<u64> = const { Cell::new(0) };
    static COPIED_BYTES: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn count_inference() {
    INFERENCES.set(INFERENCES.get() + 1);
}

pub(crate) fn count_allocation() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

pub(crate) fn count_written(bytes: usize) {
    WRITTEN_BYTES.set(WRITTEN_BYTES.get() + bytes as u64);
}

pub(crate) fn count_copied(bytes: usize) {
    COPIED_BYTES.set(COPIED_BYTES.get() + bytes as u64);
}

/// Whether this is a CI run, where nothing may be skipped: the rule of `cargo xtask`.
pub fn ci() -> bool {
    is_ci(std::env::var_os("CI").as_deref())
}

fn is_ci(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "false")
}

/// The largest of some errors, or 0. NaN is larger than any and stays, where `max` passes over it.
pub fn worst(errors: impl IntoIterator<Item = f64>) -> f64 {
    let larger = |worst: f64, error: f64| match worst.is_nan() || error <= worst {
        true => worst,
        false => error,
    };
    errors.into_iter().fold(0.0, larger)
}

/// The CPU, and the best GPU. A missing GPU is said, and a failure in CI.
#[cfg(test)]
pub(crate) fn devices() -> Vec<Device> {
    [Some(Device::cpu()), gpu()].into_iter().flatten().collect()
}

#[cfg(all(test, feature = "gpu"))]
fn gpu() -> Option<Device> {
    match Device::gpu() {
        Ok(gpu) => Some(gpu),
        Err(error) if !ci() => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[cfg(all(test, not(feature = "gpu")))]
fn gpu() -> Option<Device> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_nan_stays_the_worst() {
        assert!(worst([5.0, f64::NAN, 0.0]).is_nan());
        assert!(worst([f64::NAN, f64::INFINITY]).is_nan());
        assert_eq!((worst([1.0, 3.0, 2.0]), worst([])), (3.0, 0.0));
    }

    #[test]
    fn an_empty_variable_and_false_are_no_ci() {
        let values = [None, Some(""), Some("false"), Some("true"), Some("1")];
        let expected = [false, false, false, true, true];
        assert_eq!(values.map(|value| is_ci(value.map(OsStr::new))), expected);
    }
}
