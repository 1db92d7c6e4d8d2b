//! Spatial axes made longer or shorter: by the nearest element, or by linear or cubic interpolation.

use std::hash::{Hash, Hasher};

use super::Module;
use crate::array::Array;
use crate::device::with_device;
use crate::error::{Error, Result};
use crate::ops::{add, multiply, repeat, take};

/// How [`Upsample`] finds values between elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpsampleMode {
    /// The nearest element.
    Nearest,
    /// On the line between two elements.
    Linear,
    /// On a cubic through four elements.
    Cubic,
}

/// The multiplier of all spatial axes, or that of each.
#[derive(Clone, Debug, PartialEq)]
pub enum ScaleFactor {
    /// One for all.
    All(f64),
    /// One for each.
    Each(Vec<f64>),
}

impl Hash for ScaleFactor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            ScaleFactor::All(all) => all.to_bits().hash(state),
            ScaleFactor::Each(each) => {
                each.len().hash(state);
                each.iter().for_each(|one| one.to_bits().hash(state));
            }
        }
    }
}

impl From<f64> for ScaleFactor {
    fn from(all: f64) -> ScaleFactor {
        ScaleFactor::All(all)
    }
}

impl<const N: usize> From<[f64; N]> for ScaleFactor {
    fn from(each: [f64; N]) -> ScaleFactor {
        ScaleFactor::Each(each.to_vec())
    }
}

impl From<&[f64]> for ScaleFactor {
    fn from(each: &[f64]) -> ScaleFactor {
        ScaleFactor::Each(each.to_vec())
    }
}

/// Makes the spatial axes of `[batch, …, channels]` longer or shorter. In MLX:
/// `nn.Upsample(scale_factor=2, mode="linear")`.
///
/// ```
/// use wootz::{Array, nn::{Module, Upsample, UpsampleMode}};
/// let x = Array::new([[[1.0f32], [2.0]]])?;
/// let nearest = Upsample::new(2.0, UpsampleMode::Nearest, false, false)?;
/// assert_eq!(nearest.forward(&x)?.to_vec::<f32>()?, [1.0, 1.0, 2.0, 2.0]);
/// let linear = Upsample::new(2.0, UpsampleMode::Linear, false, false)?;
/// assert_eq!(linear.forward(&x)?.to_vec::<f32>()?, [1.0, 1.25, 1.75, 2.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct Upsample {
    #[wootz(value)]
    scale_factor: ScaleFactor,
    #[wootz(value)]
    mode: UpsampleMode,
    align_corners: bool,
    antialias: bool,
}

const NAME: &str = "Upsample";

impl Upsample {
    /// With `align_corners` the first and the last elements stay where they are; else the outer edges of the
    /// elements do. With `antialias`, what becomes shorter is smoothed. Neither means anything to the
    /// nearest element, and they exclude each other.
    pub fn new(
        scale_factor: impl Into<ScaleFactor>,
        mode: UpsampleMode,
        align_corners: bool,
        antialias: bool,
    ) -> Result<Upsample> {
        let scale_factor = scale_factor.into();
        let factors = match &scale_factor {
            ScaleFactor::All(all) => std::slice::from_ref(all),
            ScaleFactor::Each(each) => each,
        };
        if let Some(factor) = factors.iter().find(|factor| !(factor.is_finite() && **factor > 0.0))
        {
            return Err(Error::argument(NAME, "scale_factor", "positive numbers", factor));
        }
        if antialias && (align_corners || mode == UpsampleMode::Nearest) {
            let expected = "linear or cubic interpolation without aligned corners";
            let got = format!("{mode:?}, align_corners {align_corners}");
            return Err(Error::argument(NAME, "antialias", expected, got));
        }
        Ok(Upsample { scale_factor, mode, align_corners, antialias })
    }

    /// What the elements of the new axis are made of.
    fn taps(&self, length: usize, scale: f64) -> Vec<Tap> {
        let count = (scale * length as f64) as usize;
        let positions = positions(length, count, scale, self.align_corners);
        let last = length.saturating_sub(1) as f32;
        match self.mode {
            UpsampleMode::Nearest => vec![Tap { indices: nearest(length, count), weights: None }],
            _ if self.antialias => smoothed(&positions, length, scale, self.mode),
            UpsampleMode::Linear => {
                let inside: Vec<f32> = positions.iter().map(|at| at.clamp(0.0, last)).collect();
                let right: Vec<f32> = inside.iter().map(|at| at - at.floor()).collect();
                let left = right.iter().map(|weight| 1.0 - weight).collect();
                let at =
                    |round: fn(f32) -> f32| inside.iter().map(|&at| round(at) as u32).collect();
                vec![
                    Tap { indices: at(f32::floor), weights: Some(left) },
                    Tap { indices: at(f32::ceil), weights: Some(right) },
                ]
            }
            UpsampleMode::Cubic => [0.0, 1.0, -1.0, 2.0]
                .into_iter()
                .map(|by: f32| {
                    let place = |at: &f32| match by {
                        1.0 | 2.0 => (at + 1.0).floor() + (by - 1.0),
                        _ => at.floor() + by,
                    };
                    let weight = |at: &f32| cubic((at - place(at)).abs(), -0.75);
                    Tap {
                        indices: positions
                            .iter()
                            .map(|at| place(at).clamp(0.0, last) as u32)
                            .collect(),
                        weights: Some(positions.iter().map(weight).collect()),
                    }
                })
                .collect(),
        }
    }
}

/// One element that every new one is made of, and how much of it; all of it without weights.
struct Tap {
    indices: Vec<u32>,
    weights: Option<Vec<f32>>,
}

/// Where the new elements lie between the old ones. In single precision, as MLX computes them.
fn positions(length: usize, count: usize, scale: f64, align_corners: bool) -> Vec<f32> {
    let (n, m) = (length as f64, count as f64);
    let (step, start) = match align_corners {
        true => ((n - 1.0) / (m - 1.0).max(1.0), 0.0),
        false => (1.0 / scale, ((m - 1.0) * (1.0 / scale) - n + 1.0) / 2.0),
    };
    (0..count).map(|i| i as f32 * step as f32 - start as f32).collect()
}

fn nearest(length: usize, count: usize) -> Vec<u32> {
    let step = (length as f64 / count as f64) as f32;
    let index = |i: usize| match count > length {
        true => ((i as f32 + 0.5) * step - 0.5).round_ties_even(),
        false => i as f32 * step,
    };
    (0..count).map(|i| (index(i) as usize).min(length.saturating_sub(1)) as u32).collect()
}

/// Of a cubic whose slope at distance 1 is `a`: the weight of an element at a distance below 2.
fn cubic(x: f32, a: f32) -> f32 {
    match x <= 1.0 {
        true => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        false => (((x - 5.0) * x + 8.0) * x - 4.0) * a,
    }
}

/// A filter as wide as an element of the result, if those are wider than the old ones.
fn smoothed(positions: &[f32], length: usize, scale: f64, mode: UpsampleMode) -> Vec<Tap> {
    let (width, radius) =
        ((1.0 / scale).max(1.0), if mode == UpsampleMode::Linear { 1.0 } else { 2.0 });
    let reach = (radius * width).ceil() as i64;
    let weight = |distance: f32| match mode {
        UpsampleMode::Linear => (1.0 - distance).max(0.0),
        _ if distance <= 2.0 => cubic(distance, -0.5),
        _ => 0.0,
    };
    let mut taps: Vec<(Vec<u32>, Vec<f32>)> = Vec::new();
    let mut sums = vec![0.0f32; positions.len()];
    for by in -reach..=reach {
        let (mut indices, mut weights) = (Vec::new(), Vec::new());
        for (&at, sum) in positions.iter().zip(&mut sums) {
            let place = at.floor() + by as f32;
            let inside = place >= 0.0 && place < length as f32;
            let weight = if inside { weight((at - place).abs() / width as f32) } else { 0.0 };
            *sum += weight;
            indices.push(place.clamp(0.0, length.saturating_sub(1) as f32) as u32);
            weights.push(weight);
        }
        taps.push((indices, weights));
    }
    let whole = |(weight, sum): (f32, &f32)| if *sum > 0.0 { weight / sum } else { weight };
    taps.into_iter()
        .map(|(indices, weights)| Tap {
            indices,
            weights: Some(weights.into_iter().zip(&sums).map(whole).collect()),
        })
        .collect()
}

impl Module for Upsample {
    fn forward(&self, x: &Array) -> Result<Array> {
        if x.rank() < 3 {
            let expected = "[batch, …, channels] with at least one spatial axis";
            return Err(Error::shape(NAME, "x", expected, x.shape()));
        }
        let rank = x.rank() - 2;
        let factors = match &self.scale_factor {
            ScaleFactor::All(all) => vec![*all; rank],
            ScaleFactor::Each(each) if each.len() == rank => each.clone(),
            ScaleFactor::Each(each) => {
                let expected = format!("{rank} numbers, one for each spatial axis");
                return Err(Error::argument(NAME, "scale_factor", expected, format!("{each:?}")));
            }
        };
        let repeated = self.mode == UpsampleMode::Nearest
            && factors.iter().all(|factor| factor.fract() == 0.0);
        let mut y = x.clone();
        for (axis, factor) in factors.into_iter().enumerate() {
            y = match repeated {
                true => repeat(&y, factor as usize, axis as i64 + 1)?,
                false => along(&y, axis + 1, &self.taps(x.shape()[axis + 1], factor))?,
            };
        }
        Ok(y)
    }
}

/// The sums of the elements that taps name along an axis.
fn along(x: &Array, axis: usize, taps: &[Tap]) -> Result<Array> {
    let mut sum: Option<Array> = None;
    for Tap { indices, weights } in taps {
        let count = indices.len();
        let indices = with_device(x.device(), || Array::from_slice(indices, &[count]))?;
        let mut term = take(x, &indices, Some(axis as i64))?;
        if let Some(weights) = weights {
            let mut shape = vec![1; x.rank()];
            shape[axis] = count;
            let weights = with_device(x.device(), || Array::from_slice(weights, &shape))?;
            term = multiply(term, weights)?;
        }
        sum = Some(match sum {
            Some(sum) => add(sum, term)?,
            None => term,
        });
    }
    sum.ok_or_else(|| Error::argument(NAME, "mode", "at least one tap", 0))
}
