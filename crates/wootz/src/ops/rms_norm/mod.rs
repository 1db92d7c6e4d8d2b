//! Root-mean-square normalisation and its backward kernels.

use crate::op::Entry;

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    Vec::new()
}
