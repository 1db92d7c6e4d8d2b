//! Storing values where a mask of truth values is true.

use super::gather::broadcast_argument;
use crate::array::{Array, Shape};
use crate::error::{Error, Result};
use crate::ops::{cumsum, maximum, reshape, subtract, take, where_};

/// `x` with `value` where `mask` is true; the mask has the first axes of `x`. A value of no more axes than
/// are left is the same everywhere; one of one axis more has a row for each that is true, in their order,
/// and rows that are left over do not count.
pub(super) fn masked(x: &Array, mask: &Array, value: &Array) -> Result<Array> {
    const OP: &str = "at.set";
    if !x.shape().starts_with(mask.shape()) {
        let expected = format!("the first axes of {:?}", x.shape());
        return Err(Error::shape(OP, "mask", expected, mask.shape()));
    }
    let inner = &x.shape()[mask.rank()..];
    if value.rank() > inner.len() + 1 {
        let expected = format!("at most {} axes beside a mask of {}", inner.len() + 1, mask.rank());
        return Err(Error::shape(OP, "value", expected, value.shape()));
    }
    let ones = std::iter::repeat_n(1, inner.len());
    let chosen = reshape(mask, &mask.shape().iter().copied().chain(ones).collect::<Shape>())?;
    if value.rank() <= inner.len() {
        return where_(chosen, broadcast_argument(OP, "value", value, inner)?, x);
    }
    let rows: Shape = value.shape().iter().take(1).chain(inner).copied().collect();
    let value = broadcast_argument(OP, "value", value, &rows)?;
    if x.size() == 0 {
        return Ok(x.clone());
    }
    // How many before it are true: a row that is not there is an index out of range.
    let count = cumsum(&reshape(mask, &[mask.size()])?, 0, false, true)?;
    let spread = take(&value, maximum(subtract(count, 1)?, 0)?, Some(0))?;
    where_(chosen, reshape(&spread, x.shape())?, x)
}
