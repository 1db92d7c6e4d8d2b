//! Random bits by threefry2x32.

use crate::op::Entry;

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    Vec::new()
}
