//! Operations that rearrange elements. Where strides can express the result it is a view of the
//! same memory; otherwise elements are copied.

mod views;

pub use views::*;

use crate::op::Entry;

/// Cases of the movement operations.
pub(crate) fn entries() -> Vec<Entry> {
    views::entries()
}
