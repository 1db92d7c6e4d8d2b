//! Writing keys and values of new tokens into a cache of fixed capacity. Within a compiled function
//! whose caller gives the cache away, only the new rows are written.

use super::slice_update_dynamic;
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::*;
use crate::with_device;

/// A copy of `cache` (`[..., capacity, features]`) with the rows of `update` (`[..., length,
/// features]`) written from `position` on, an integer array of one element. Rows that would not
/// fit are an error.
///
/// ```
/// use wootz::{Array, DType, cache_append};
/// let cache = Array::zeros(&[1, 3, 1], DType::F32)?;
/// let row = Array::new([[[7.0f32]]])?;
/// let cache = cache_append(&cache, &row, &Array::new(1)?)?;
/// assert_eq!(cache.to_vec::<f32>()?, [0.0, 7.0, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn cache_append(cache: &Array, update: &Array, position: &Array) -> Result<Array> {
    let axis = check("cache_append", cache, update, position)?;
    slice_update_dynamic(cache, update, &position.reshape(&[1])?, &[axis as i64])
}

/// As [`cache_append`], for a cache that is a ring: row `i` of the update is written to row
/// `(position + i) mod capacity`, over the oldest ones.
///
/// ```
/// use wootz::{Array, DType, cache_ring};
/// let cache = Array::zeros(&[1, 3, 1], DType::F32)?;
/// let rows = Array::new([[[7.0f32], [8.0]]])?;
/// let cache = cache_ring(&cache, &rows, &Array::new(5)?)?;
/// assert_eq!(cache.to_vec::<f32>()?, [8.0, 0.0, 7.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn cache_ring(cache: &Array, update: &Array, position: &Array) -> Result<Array> {
    let axis = check("cache_ring", cache, update, position)?;
    let (capacity, length) = (cache.shape()[axis], update.shape()[axis]);
    if update.size() == 0 {
        return Ok(cache.clone());
    }
    let steps = with_device(cache.device(), || arange(0, length, 1, DType::I64))?;
    let first = position.reshape(&[])?.astype(DType::I64)?;
    let rows = remainder(add(first, steps)?, capacity as i64)?;
    let mut everything = vec![Index::from(..); axis];
    everything.push(Index::from(&rows));
    cache.at(everything).set(update)
}

/// The axis of rows, after a look at the shapes.
fn check(op: &'static str, cache: &Array, update: &Array, position: &Array) -> Result<usize> {
    let rank = cache.rank();
    if rank < 2 {
        return Err(Error::shape(op, "cache", "at least two axes", cache.shape()));
    }
    let axis = rank - 2;
    let mut expected = cache.shape().to_vec();
    let length = update.shape().get(axis).copied().unwrap_or(0);
    expected[axis] = length.min(cache.shape()[axis]);
    if update.shape() != expected {
        let most = cache.shape()[axis];
        let expected = format!("{:?} with up to {most} rows", cache.shape());
        return Err(Error::shape(op, "update", expected, update.shape()));
    }
    if position.size() != 1 {
        return Err(Error::shape(op, "position", "one element", position.shape()));
    }
    if !position.dtype().is_integer() {
        return Err(Error::dtype(op, "position", "an integer type", position.dtype()));
    }
    Ok(axis)
}
