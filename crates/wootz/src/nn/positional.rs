//! Encodings of positions.

use super::Module;
use crate::array::{Arg, Array, DType};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fast::{self, RopeBase};
use crate::ops::*;
use crate::with_device;

/// Rotary positional encoding; positions are the axis before the last.
///
/// ```
/// use wootz::{Array, DType, nn::{Module, RoPE}};
/// let x = Array::ones(&[1, 2, 3, 8], DType::F32)?;
/// assert_eq!(RoPE::new(8).forward(&x)?.shape(), [1, 2, 3, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct RoPE {
    /// Features that are rotated.
    pub dims: usize,
    /// Whether neighbours form the pairs that are rotated.
    pub traditional: bool,
    /// Of the angles' geometric sequence.
    pub base: f64,
    /// Of positions.
    pub scale: f64,
}

impl RoPE {
    /// MLX's defaults: not traditional, base 10,000, scale 1. The fields can be changed.
    pub fn new(dims: usize) -> RoPE {
        RoPE { dims, traditional: false, base: 10000.0, scale: 1.0 }
    }

    /// The encoding of positions that count from `offset`.
    pub fn forward_from(&self, x: &Array, offset: impl Into<Arg>) -> Result<Array> {
        fast::rope(x, self.dims, self.traditional, RopeBase::Base(self.base), self.scale, offset)
    }
}

impl Module for RoPE {
    fn forward(&self, x: &Array) -> Result<Array> {
        self.forward_from(x, 0)
    }
}

/// Sines and cosines of positions at `dims / 2` frequencies.
///
/// ```
/// use wootz::{Array, nn::{Module, SinusoidalPositionalEncoding}};
/// let encoding = SinusoidalPositionalEncoding::new(8)?;
/// assert_eq!(encoding.forward(&Array::new([0.0f32, 1.0])?)?.shape(), [2, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct SinusoidalPositionalEncoding {
    /// What frequencies are made of.
    dims: usize,
    min_freq: f64,
    max_freq: f64,
    full_turns: bool,
    #[wootz(skip)]
    frequencies: Array,
    scale: f64,
    cos_first: bool,
}

impl SinusoidalPositionalEncoding {
    /// MLX's defaults: frequencies from 0.0001 to 1, scale `√(2 / dims)`, sines first.
    pub fn new(dims: usize) -> Result<SinusoidalPositionalEncoding> {
        SinusoidalPositionalEncoding::with(dims, 1e-4, 1.0, None, false, false)
    }

    /// `full_turns` multiplies frequencies by 2π.
    pub fn with(
        dims: usize,
        min_freq: f64,
        max_freq: f64,
        scale: Option<f64>,
        cos_first: bool,
        full_turns: bool,
    ) -> Result<SinusoidalPositionalEncoding> {
        if dims == 0 || !dims.is_multiple_of(2) {
            let expected = "a positive even number";
            return Err(Error::argument("SinusoidalPositionalEncoding", "dims", expected, dims));
        }
        let half = dims / 2;
        let falling = match half {
            1 => Array::new([1.0f32])?,
            _ => subtract(1, divide(arange(0, half, 1, DType::F32)?, half - 1)?)?,
        };
        let (low, high) = (min_freq.ln(), max_freq.ln());
        let mut frequencies = exp(add(multiply(falling, high - low)?, low)?)?;
        if full_turns {
            frequencies = multiply(frequencies, 2.0 * std::f64::consts::PI)?;
        }
        let scale = scale.unwrap_or((2.0 / dims as f64).sqrt());
        Ok(SinusoidalPositionalEncoding {
            dims,
            min_freq,
            max_freq,
            full_turns,
            frequencies,
            scale,
            cos_first,
        })
    }
}

impl Module for SinusoidalPositionalEncoding {
    fn forward(&self, x: &Array) -> Result<Array> {
        let frequencies = to_device(&self.frequencies, x.device())?;
        let angles = multiply(expand_dims(x, -1)?, frequencies)?;
        let mut parts = [sin(&angles)?, cos(&angles)?];
        if self.cos_first {
            parts.reverse();
        }
        let y = concatenate(&parts, -1)?;
        if self.scale == 1.0 { Ok(y) } else { multiply(y, self.scale) }
    }
}

/// Adds to attention scores, `[batch, heads, queries, keys]`, a penalty that grows with the
/// distance of key and query, at a slope of its own for each head.
///
/// ```
/// use wootz::{Array, DType, nn::{ALiBi, Module}};
/// let scores = Array::zeros(&[1, 2, 3, 3], DType::F32)?;
/// assert_eq!(ALiBi.forward(&scores)?.shape(), [1, 2, 3, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Copy, Debug, wootz_macros::Tree)]
pub struct ALiBi;

impl ALiBi {
    /// The scores with penalties, for queries that count from `offset`, and a mask added.
    pub fn forward_from(
        &self,
        scores: &Array,
        offset: usize,
        mask: Option<&Array>,
    ) -> Result<Array> {
        let &[_, heads, queries, keys] = scores.shape() else {
            let expected = "[batch, heads, queries, keys]";
            return Err(Error::shape("ALiBi", "scores", expected, scores.shape()));
        };
        let mut penalty = with_device(scores.device(), || {
            let rows = arange(offset, queries + offset, 1, None)?;
            let distance = abs(subtract(expand_dims(&rows, -1)?, arange(0, keys, 1, None)?)?)?;
            let slopes: Vec<f32> = slopes(heads).into_iter().map(|slope| slope as f32).collect();
            // They reach the device when they are needed there.
            let slopes = Array::from_slice_on(&slopes, &[heads], &Device::cpu())?;
            let slopes = to_device(&slopes, scores.device())?.astype(scores.dtype())?;
            let slopes = slopes.reshape(&[heads, 1, 1])?;
            multiply(negative(distance)?, slopes)?.astype(scores.dtype())
        })?;
        if let Some(mask) = mask {
            penalty = add(penalty, mask)?;
        }
        add(scores, penalty)
    }
}

impl Module for ALiBi {
    fn forward(&self, x: &Array) -> Result<Array> {
        self.forward_from(x, 0, None)
    }
}

/// A geometric sequence for a power of two; for other numbers that of the power below, and every
/// second one of the power above.
fn slopes(heads: usize) -> Vec<f64> {
    if heads == 0 {
        return Vec::new();
    }
    if heads.is_power_of_two() {
        let start = 2f64.powf(-(2f64.powf(3.0 - (heads as f64).log2())));
        return (0..heads).map(|i| start * start.powi(i as i32)).collect();
    }
    let below = 1 << heads.ilog2();
    let more = slopes(2 * below).into_iter().step_by(2).take(heads - below);
    slopes(below).into_iter().chain(more).collect()
}
