//! Clipping of gradients.

use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::{add, divide, minimum, multiply, sqrt, square, sum};
use crate::tree::{Path, Tree};

/// The gradients scaled down so that the norm of all of them together is at most `max_norm`, and
/// the norm they had. What is frozen does not count.
///
/// ```
/// use wootz::{Array, optim::clip_grad_norm};
/// let gradients = vec![Array::new([3.0f32])?, Array::new([4.0f32])?];
/// let (clipped, norm) = clip_grad_norm(&gradients, 1.0)?;
/// assert_eq!(norm.item::<f32>()?, 5.0);
/// assert!((clipped[1].item::<f32>()? - 0.8).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn clip_grad_norm<T: Tree + Clone>(gradients: &T, max_norm: f64) -> Result<(T, Array)> {
    if max_norm < 0.0 || max_norm.is_nan() {
        let expected = "a number that is not negative";
        return Err(Error::argument("clip_grad_norm", "max_norm", expected, max_norm));
    }
    let mut total = None;
    for gradient in gradients.trainable_parameters().into_values() {
        // Squares of float16 overflow early.
        let wide = match gradient.dtype() {
            DType::F16 => gradient.astype(DType::F32)?,
            _ => gradient,
        };
        let squares = sum(&square(&wide)?, (), false)?;
        total = Some(match total {
            None => squares,
            Some(total) => add(total, squares)?,
        });
    }
    let norm = sqrt(total.map_or_else(|| Array::scalar(0.0, DType::F32), Ok)?)?;
    let factor = minimum(divide(max_norm, add(&norm, 1e-6)?)?, 1.0)?;
    let mut clipped = gradients.clone();
    clipped.visit_mut(&mut Path::default(), &mut |_, mut slot| {
        if let Some(leaf) = slot.leaf().filter(|leaf| leaf.is_trainable()) {
            let gradient = leaf.array();
            let scaled = multiply(&gradient, &factor)?;
            slot.set(if gradient.dtype().is_float() {
                scaled.astype(gradient.dtype())?
            } else {
                scaled
            });
        }
        Ok(())
    })?;
    Ok((clipped, norm))
}
