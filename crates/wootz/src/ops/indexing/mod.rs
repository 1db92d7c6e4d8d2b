//! Reading and updating elements by index.

mod add_windows;
pub(super) mod along_axis;
mod cache;
mod gather;
mod index;
mod mask;
pub(super) mod offsets;
pub(super) mod raw;
mod scatter;
mod slice_update;
#[cfg(test)]
mod tests;
mod update;

pub use along_axis::{
    TakeAlongAxis, TakeAlongAxisBackward, put_along_axis, take_along_axis, take_along_axis_backward,
};
pub use cache::{cache_append, cache_ring, quantized_cache_append, quantized_cache_ring};
pub(crate) use gather::add_taken;
pub use gather::{gather, slice_dynamic, take};
pub use index::{Ellipsis, Index, IndexStep, IntoIndices, NewAxis, Slice};
pub use scatter::{Reduce, scatter, slice_update_dynamic};
pub use slice_update::slice_update;
pub(crate) use slice_update::{IndexRange, update_ranges};
pub use update::At;

use crate::op::Entry;

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    let families = [
        slice_update::entries(),
        gather::entries(),
        scatter::entries(),
        along_axis::entries(),
        index::entries(),
        update::entries(),
    ];
    families.into_iter().flatten().collect()
}
