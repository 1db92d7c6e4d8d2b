//! Frequencies in single precision, rounded where MLX and mlx-lm round them. What those are off by is seen at positions of
//! some hundreds: angles there differ by more than a step of `float32`.

use super::scaling::{RopeScaling, RopeType};
use crate::error::Result;

impl RopeScaling {
    /// The [`frequencies`](Self::frequencies) that mlx-lm's models have, to the bit, for as many positions as it was made
    /// for. Those of `linear` are the plain ones, because there positions are divided ([`Rope::scale`](super::Rope)).
    pub fn frequencies_of_mlx(
        &self,
        dims: usize,
        base: f64,
        max_position_embeddings: usize,
    ) -> Result<Vec<f32>> {
        let exact = self.frequencies(dims, base, max_position_embeddings, None)?.frequencies;
        let wavelengths = || wavelengths(dims, base);
        let factor = self.factor as f32;
        let stretched: Vec<f32> = match self.rope_type {
            RopeType::Default | RopeType::Linear => return Ok(geometric(dims, base)),
            // These depend on the length.
            RopeType::Dynamic => return Ok(exact.iter().map(|&number| number as f32).collect()),
            RopeType::Llama3 => {
                let original = self.original(8192, 1)?;
                wavelengths().map(|length| self.llama3_of_mlx(length, original)).collect()
            }
            RopeType::Yarn => {
                let (low, high) = self.ramp(dims, base)?;
                let stretch = |(pair, length): (usize, f32)| {
                    let divided = (pair as f32 - low as f32) / (high - low) as f32;
                    let kept = 1.0 - divided.clamp(0.0, 1.0);
                    let longer = factor * length;
                    longer * length / (longer * kept + length * (1.0 - kept))
                };
                wavelengths().enumerate().map(stretch).collect()
            }
            RopeType::Longrope => {
                let stretch = |(length, &factor): (f32, &f64)| factor as f32 * length;
                wavelengths().zip(&self.long_factor).map(stretch).collect()
            }
            RopeType::Proportional => {
                let stretch = |(length, &exact): (f32, &f64)| match exact > 0.0 {
                    true => factor * length,
                    false => f32::INFINITY,
                };
                wavelengths().zip(&exact).map(stretch).collect()
            }
        };
        Ok(stretched.into_iter().map(|length| 1.0 / length).collect())
    }

    fn llama3_of_mlx(&self, length: f32, original: usize) -> f32 {
        let (low, high, factor) = (self.low_freq_factor, self.high_freq_factor, self.factor as f32);
        let of_turn = std::f32::consts::TAU * length;
        let limit = |turns: f64| (original as f64 / turns) as f32;
        if of_turn > limit(low) {
            return length * factor;
        }
        if of_turn <= limit(high) || of_turn == limit(low) {
            return length;
        }
        let kept = (original as f32 / of_turn - low as f32) / (high - low) as f32;
        length / ((1.0 - kept) / factor + kept)
    }
}

/// `base^(2i / dims)`.
fn wavelengths(dims: usize, base: f64) -> impl Iterator<Item = f32> {
    let base = f64::from(base as f32);
    (0..dims / 2).map(move |pair| {
        let exponent = (2 * pair) as f32 / dims as f32;
        base.powf(f64::from(exponent)) as f32
    })
}

/// `base^(-2i / dims)`; MLX's exponential is a polynomial.
pub(super) fn geometric(dims: usize, base: f64) -> Vec<f32> {
    const POWERS: [f32; 7] =
        [1.5353362e-4, 1.3398874e-3, 9.618437e-3, 5.5503324e-2, 0.24022648, 0.6931472, 1.0];
    let half = dims / 2;
    let step = (base.ln() / half as f64) as f32;
    let frequency = |i: usize| {
        let exponent = -(i as f32) * step * 1.442695;
        let whole = (exponent + 0.5).floor();
        let part = POWERS.into_iter().reduce(|p, c| p.mul_add(exponent - whole, c));
        part.unwrap_or(1.0) * whole.exp2()
    };
    (0..half).map(frequency).collect()
}
