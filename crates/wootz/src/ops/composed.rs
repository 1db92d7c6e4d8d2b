//! Operations made only of operations; no kernels, gradients for free.

use crate::op::Entry;

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    Vec::new()
}
