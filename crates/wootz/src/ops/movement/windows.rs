//! Windows of signal processing: numbers that fade out on both sides.

use std::f64::consts::PI;

use super::arange_on;
use crate::array::{Array, DType};
use crate::device::Device;
use crate::error::Result;
use crate::ops::{add, divide, full, minimum, multiply, sin, square, subtract};

/// The Bartlett window of `m` points: a triangle from 0 to 1 and back.
///
/// ```
/// // mx.bartlett(5)
/// assert_eq!(wootz::bartlett(5)?.to_vec::<f32>()?, [0.0, 0.5, 1.0, 0.5, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn bartlett(m: usize) -> Result<Array> {
    window(m, |edge| multiply(edge, 2.0))
}

/// The Blackman window of `m` points: `0.42 - 0.5 cos x + 0.08 cos 2x`.
///
/// ```
/// // mx.blackman(3)
/// assert_eq!(wootz::blackman(3)?.to_vec::<f32>()?, [0.0, 1.0, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn blackman(m: usize) -> Result<Array> {
    window(m, |edge| {
        let hill = hill(edge)?;
        multiply(&hill, add(multiply(&hill, 0.64)?, 0.36)?)
    })
}

/// The Hamming window of `m` points: `0.54 - 0.46 cos x`.
///
/// ```
/// // mx.hamming(3)
/// assert_eq!(wootz::hamming(3)?.to_vec::<f32>()?, [0.08, 1.0, 0.08]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn hamming(m: usize) -> Result<Array> {
    window(m, |edge| add(multiply(hill(edge)?, 0.92)?, 0.08))
}

/// The Hann window of `m` points: `0.5 - 0.5 cos x`.
///
/// ```
/// // mx.hanning(3)
/// assert_eq!(wootz::hanning(3)?.to_vec::<f32>()?, [0.0, 1.0, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn hanning(m: usize) -> Result<Array> {
    window(m, hill)
}

/// `(1 - cos x) / 2` without cancellation, where `x` is 2π times the distance from the edge.
fn hill(edge: &Array) -> Result<Array> {
    square(sin(multiply(edge, PI)?)?)
}

/// The function of the distances of `m` points from the nearer edge, from 0 to a half of the whole. A
/// single point is 1.
fn window(m: usize, at: impl FnOnce(&Array) -> Result<Array>) -> Result<Array> {
    if m < 2 {
        return full(&[m], 1, DType::F32);
    }
    let last = (m - 1) as f64;
    let points = arange_on(0.0, m as f64, 1.0, DType::F32, &Device::default_device())?;
    at(&divide(minimum(&points, subtract(last, &points)?)?, last)?)
}
