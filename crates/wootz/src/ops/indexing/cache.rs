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
    // In 32 bits, which every GPU has; positions within the ring come before sums, which might not fit.
    let wide = if capacity > 1 << 30 { DType::I64 } else { DType::I32 };
    let steps = with_device(cache.device(), || arange(0, length, 1, wide))?;
    let first = match position.dtype() {
        DType::U32 | DType::I64 | DType::U64 => position.clone(),
        _ => position.astype(wide)?,
    };
    let first = remainder(first.reshape(&[])?, capacity as i64)?.astype(wide)?;
    let rows = remainder(add(first, steps)?, capacity as i64)?;
    let mut everything = vec![Index::from(..); axis];
    everything.push(Index::from(&rows));
    cache.at(everything).set(update)
}

/// [`cache_append`] for a cache of quantized rows: the rows of `update` (`[..., length, features]`)
/// are quantized as the cache is, and appended to its codes, scales and biases.
///
/// ```
/// use wootz::quant::Scheme;
/// use wootz::{Array, DType, dequantize, quantize, quantized_cache_append};
/// let scheme = Scheme::new("affine", Some(32), Some(8))?;
/// let cache = quantize(&Array::zeros(&[1, 4, 32], DType::F32)?, scheme)?;
/// let row = Array::ones(&[1, 1, 32], DType::F32)?;
/// let cache = quantized_cache_append(&cache, &row, &Array::new(2)?)?;
/// assert_eq!(cache.shape(), [1, 4, 32]);
/// assert_eq!(dequantize(&cache, None)?.sum(())?.item::<f32>()?, 32.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn quantized_cache_append(
    cache: &Quantized,
    update: &Array,
    position: &Array,
) -> Result<Quantized> {
    quantized_rows("quantized_cache_append", cache, update, position, cache_append)
}

/// [`cache_ring`] for a cache of quantized rows, as [`quantized_cache_append`].
///
/// ```
/// use wootz::quant::Scheme;
/// use wootz::{Array, DType, dequantize, quantize, quantized_cache_ring};
/// let scheme = Scheme::new("affine", Some(32), Some(8))?;
/// let cache = quantize(&Array::zeros(&[1, 2, 32], DType::F32)?, scheme)?;
/// let row = Array::ones(&[1, 1, 32], DType::F32)?;
/// let cache = quantized_cache_ring(&cache, &row, &Array::new(3)?)?;
/// assert_eq!(dequantize(&cache, None)?.to_vec::<f32>()?[31..33], [0.0, 1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn quantized_cache_ring(
    cache: &Quantized,
    update: &Array,
    position: &Array,
) -> Result<Quantized> {
    quantized_rows("quantized_cache_ring", cache, update, position, cache_ring)
}

/// Quantizes rows as a cache is, and writes them to each of its arrays.
fn quantized_rows(
    op: &'static str,
    cache: &Quantized,
    update: &Array,
    position: &Array,
    write: fn(&Array, &Array, &Array) -> Result<Array>,
) -> Result<Quantized> {
    if !update.dtype().is_float() {
        return Err(Error::dtype(op, "update", "a floating-point type", update.dtype()));
    }
    let shape = cache.shape();
    if update.shape().last() != shape.last() {
        let expected = format!("rows of a cache of {shape:?}");
        return Err(Error::shape(op, "update", expected, update.shape()));
    }
    // Affine scales have the dtype of what they are made of.
    let update = match cache.biases() {
        Some(biases) => update.astype(biases.dtype())?,
        None => update.clone(),
    };
    let rows = quantize(&update, cache.scheme())?;
    let arrays = (cache.arrays().iter().zip(rows.arrays()))
        .map(|(cache, rows)| write(cache, rows, position))
        .collect::<Result<Vec<_>>>()?;
    Quantized::new(cache.scheme(), &arrays[0], arrays.get(1), arrays.get(2))
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
