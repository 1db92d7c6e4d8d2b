//! Dropout.

use super::Module;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::ops::multiply;
use crate::random;
use crate::tree::Mode;

/// Zeros each element with probability `p` while training, and divides the others by `1 - p`.
///
/// ```
/// use wootz::{Array, nn::{Dropout, Module}};
/// let mut layer = Dropout::new(0.5)?;
/// let x = Array::new([1.0f32, 1.0, 1.0])?;
/// assert!(layer.forward(&x)?.to_vec::<f32>()?.iter().all(|&y| y == 0.0 || y == 2.0));
/// layer.eval()?;
/// assert_eq!(layer.forward(&x)?.to_vec::<f32>()?, [1.0, 1.0, 1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct Dropout {
    keep: f64,
    shared_axes: usize,
    mode: Mode,
}

impl Dropout {
    /// MLX's default `p` is 0.5.
    pub fn new(p: f64) -> Result<Dropout> {
        Dropout::sharing(p, 0)
    }

    /// Zeros whole features of images, `[batch, height, width, features]`: MLX's `Dropout2d`.
    pub fn new_2d(p: f64) -> Result<Dropout> {
        Dropout::sharing(p, 2)
    }

    /// Zeros whole features of volumes, `[batch, depth, height, width, features]`: MLX's
    /// `Dropout3d`.
    pub fn new_3d(p: f64) -> Result<Dropout> {
        Dropout::sharing(p, 3)
    }

    /// One draw for all elements along the `shared_axes` axes before the last.
    fn sharing(p: f64, shared_axes: usize) -> Result<Dropout> {
        if !(0.0..1.0).contains(&p) {
            return Err(Error::argument("Dropout", "p", "a number of [0, 1)", p));
        }
        Ok(Dropout { keep: 1.0 - p, shared_axes, mode: Mode::default() })
    }
}

impl Module for Dropout {
    fn forward(&self, x: &Array) -> Result<Array> {
        let shared = self.shared_axes;
        if shared > 0 && !(shared + 1..=shared + 2).contains(&x.rank()) {
            let expected = format!("{} or {} axes", shared + 1, shared + 2);
            return Err(Error::shape("Dropout", "x", expected, x.shape()));
        }
        if self.keep == 1.0 || !self.mode.is_training() {
            return Ok(x.clone());
        }
        let mut shape = x.shape().to_vec();
        let last = shape.len().saturating_sub(1);
        shape[last - shared..last].fill(1);
        let kept = crate::with_device(x.device(), || random::bernoulli(self.keep, &shape, None))?;
        multiply(multiply(kept, x)?, 1.0 / self.keep)
    }
}
