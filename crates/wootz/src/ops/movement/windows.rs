//! Windows of signal processing: numbers that fade out on both sides. Computed in double precision.

use std::f64::consts::TAU;

use crate::array::Array;
use crate::error::Result;

/// The Bartlett window of `m` points: a triangle from 0 to 1 and back.
///
/// ```
/// // mx.bartlett(5)
/// assert_eq!(wootz::bartlett(5)?.to_vec::<f32>()?, [0.0, 0.5, 1.0, 0.5, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn bartlett(m: usize) -> Result<Array> {
    window(m, |t| 1.0 - (2.0 * t - 1.0).abs())
}

/// The Blackman window of `m` points: three terms of cosines.
///
/// ```
/// // mx.blackman(3)
/// assert_eq!(wootz::blackman(3)?.to_vec::<f32>()?, [0.0, 1.0, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn blackman(m: usize) -> Result<Array> {
    window(m, |t| 0.42 - 0.5 * (TAU * t).cos() + 0.08 * (2.0 * TAU * t).cos())
}

/// The Hamming window of `m` points: a raised cosine from 0.08 to 1 and back.
///
/// ```
/// // mx.hamming(3)
/// assert_eq!(wootz::hamming(3)?.to_vec::<f32>()?, [0.08, 1.0, 0.08]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn hamming(m: usize) -> Result<Array> {
    window(m, |t| 0.54 - 0.46 * (TAU * t).cos())
}

/// The Hann window of `m` points: a raised cosine from 0 to 1 and back.
///
/// ```
/// // mx.hanning(5)
/// assert_eq!(wootz::hanning(5)?.to_vec::<f32>()?, [0.0, 0.5, 1.0, 0.5, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn hanning(m: usize) -> Result<Array> {
    window(m, |t| 0.5 - 0.5 * (TAU * t).cos())
}

/// The function at `m` numbers from 0 to 1; a single point is 1. Windows are symmetric and not
/// negative, so that rounding is taken back.
fn window(m: usize, at: impl Fn(f64) -> f64) -> Result<Array> {
    let value = |i: usize| {
        let from_edge = i.min(m - 1 - i);
        at(from_edge as f64 / (m - 1) as f64).max(0.0) as f32
    };
    let values: Vec<f32> = if m == 1 { vec![1.0] } else { (0..m).map(value).collect() };
    Array::from_slice(&values, &[m])
}
