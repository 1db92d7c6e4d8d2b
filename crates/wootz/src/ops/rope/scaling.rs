//! Frequencies of rotary encodings that were stretched to longer texts, as mlx-lm computes them, and
//! of encodings with several axes of positions.

use std::f64::consts::PI;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::error::{Error, Result};

const NAME: &str = "rope_scaling";

/// How a model stretches its rotary encoding. The fields have the names of `rope_scaling` in
/// Hugging Face's configurations; the defaults are mlx-lm's. What a type does not use is ignored.
///
/// ```
/// use wootz::{RopeScaling, RopeType};
/// let scaling = RopeScaling { factor: 4.0, ..RopeScaling::new(RopeType::Linear) };
/// let found = scaling.frequencies(4, 100.0, 2048, None)?;
/// assert_eq!((found.frequencies, found.attention_factor), (vec![0.25, 0.025], 1.0));
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RopeScaling {
    /// Which of the ways.
    pub rope_type: RopeType,
    /// How many times as long texts may be.
    pub factor: f64,
    /// `llama3`: turns in the original length below which a frequency is divided by the factor.
    pub low_freq_factor: f64,
    /// `llama3`: turns in the original length above which a frequency stays.
    pub high_freq_factor: f64,
    /// Positions that the model was trained with first. By default 8192 for `llama3`, else 4096.
    pub original_max_position_embeddings: Option<usize>,
    /// `yarn`: turns in the original length above which a frequency stays.
    pub beta_fast: f64,
    /// `yarn`: turns in the original length below which a frequency is divided by the factor.
    pub beta_slow: f64,
    /// `yarn`: weight of the factor in the rotated features' size.
    pub mscale: f64,
    /// `yarn`: the same for all features; see [`attention_scale`](RopeScaling::attention_scale).
    pub mscale_all_dim: f64,
    /// `yarn` and `longrope`: the size of rotated features, if not computed.
    pub attention_factor: Option<f64>,
    /// `longrope`: what wavelengths are multiplied by up to the original length.
    pub short_factor: Vec<f64>,
    /// `longrope`: the same beyond.
    pub long_factor: Vec<f64>,
    /// `proportional`: the part of the features that turns.
    pub partial_rotary_factor: f64,
}

/// Numbers count by their bits.
impl Hash for RopeScaling {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let RopeScaling {
            rope_type,
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
            beta_fast,
            beta_slow,
            mscale,
            mscale_all_dim,
            attention_factor,
            short_factor,
            long_factor,
            partial_rotary_factor,
        } = self;
        (rope_type, original_max_position_embeddings).hash(state);
        [factor, low_freq_factor, high_freq_factor, beta_fast, beta_slow].map(bits).hash(state);
        [mscale, mscale_all_dim, partial_rotary_factor].map(bits).hash(state);
        attention_factor.as_ref().map(bits).hash(state);
        for factors in [short_factor, long_factor] {
            factors.iter().map(bits).collect::<Vec<_>>().hash(state);
        }
    }
}

fn bits(number: &f64) -> u64 {
    number.to_bits()
}

/// The ways of [`RopeScaling`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeType {
    /// None.
    Default,
    /// Positions are divided by the factor.
    Linear,
    /// The base grows with the length, beyond that of the training.
    Dynamic,
    /// Low frequencies are divided by the factor, high ones stay.
    Llama3,
    /// As `Llama3` with a ramp over the features, and a size of the rotated features.
    Yarn,
    /// A factor for each pair, and a size of the rotated features.
    Longrope,
    /// Only the first pairs turn, with frequencies as if all did.
    Proportional,
}

impl FromStr for RopeType {
    type Err = Error;

    /// From `type` or `rope_type` of a configuration.
    fn from_str(name: &str) -> Result<RopeType> {
        Ok(match name {
            // Sections of several axes change no frequency.
            "default" | "mrope" => RopeType::Default,
            "linear" => RopeType::Linear,
            "dynamic" => RopeType::Dynamic,
            "llama3" => RopeType::Llama3,
            "yarn" | "deepseek_yarn" | "telechat3-yarn" => RopeType::Yarn,
            "longrope" | "su" => RopeType::Longrope,
            "proportional" => RopeType::Proportional,
            _ => {
                let expected = "default, linear, dynamic, llama3, yarn, longrope, proportional";
                return Err(Error::argument(NAME, "rope_type", expected, name));
            }
        })
    }
}

/// What [`RopeScaling`] comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeFrequencies {
    /// What pairs turn by at each position, one for each pair.
    pub frequencies: Vec<f64>,
    /// What rotated features are multiplied by.
    pub attention_factor: f64,
}

impl RopeScaling {
    /// Of a type, everything else at its default.
    pub fn new(rope_type: RopeType) -> RopeScaling {
        RopeScaling {
            rope_type,
            factor: 1.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: None,
            beta_fast: 32.0,
            beta_slow: 1.0,
            mscale: 1.0,
            mscale_all_dim: 0.0,
            attention_factor: None,
            short_factor: Vec::new(),
            long_factor: Vec::new(),
            partial_rotary_factor: 1.0,
        }
    }

    /// The frequencies of `dims / 2` pairs for a model of so many positions. For `length` positions
    /// if that is given, which only `dynamic` and `longrope` ask for; without it `longrope` has the
    /// long factors, as in mlx-lm.
    pub fn frequencies(
        &self,
        dims: usize,
        base: f64,
        max_position_embeddings: usize,
        length: Option<usize>,
    ) -> Result<RopeFrequencies> {
        if dims == 0 || !dims.is_multiple_of(2) {
            return Err(Error::argument(NAME, "dims", "an even number above 0", dims));
        }
        above_zero("base", base)?;
        above_zero("factor", self.factor)?;
        let plain = geometric(dims, base);
        let mut attention_factor = 1.0;
        let frequencies = match self.rope_type {
            RopeType::Default => plain,
            RopeType::Linear => plain.iter().map(|frequency| frequency / self.factor).collect(),
            RopeType::Dynamic => self.dynamic(dims, base, max_position_embeddings, length)?,
            RopeType::Llama3 => self.llama3(&plain)?,
            RopeType::Yarn => {
                self.check_yarn(base)?;
                let size = yarn_size(self.factor, self.mscale);
                let common = yarn_size(self.factor, self.mscale_all_dim);
                attention_factor = self.size_or(size / common)?;
                self.yarn(&plain, dims, base)?
            }
            RopeType::Longrope => {
                // The logarithm of the length is divided by.
                let original = self.original(4096, 2)?;
                let ratio = max_position_embeddings as f64 / original as f64;
                let computed =
                    if ratio <= 1.0 { 1.0 } else { (1.0 + ratio.log(original as f64)).sqrt() };
                attention_factor = self.size_or(computed)?;
                let short = length.is_some_and(|length| length <= original);
                self.longrope(&plain, short)?
            }
            RopeType::Proportional => {
                if !(0.0..=1.0).contains(&self.partial_rotary_factor) {
                    let (expected, got) = ("a number of [0, 1]", self.partial_rotary_factor);
                    return Err(Error::argument(NAME, "partial_rotary_factor", expected, got));
                }
                let rotated = (dims as f64 * self.partial_rotary_factor) as usize;
                let turning = rotated.div_ceil(2);
                let part = |(pair, frequency): (usize, f64)| {
                    if pair < turning { frequency / self.factor } else { 0.0 }
                };
                plain.into_iter().enumerate().map(part).collect()
            }
        };
        Ok(RopeFrequencies { frequencies, attention_factor })
    }

    /// The scale of attention's scores that `yarn` makes of `scale`: the sizes of queries and keys,
    /// as far as `mscale_all_dim` says them.
    pub fn attention_scale(&self, scale: f64) -> f64 {
        if self.rope_type == RopeType::Default || self.mscale_all_dim == 0.0 {
            return scale;
        }
        scale * yarn_size(self.factor, self.mscale_all_dim).powi(2)
    }

    /// The length that the model was trained with first, which is of so many positions at least.
    pub(super) fn original(&self, otherwise: usize, least: usize) -> Result<usize> {
        let original = self.original_max_position_embeddings.unwrap_or(otherwise);
        if original < least {
            let expected = format!("at least {least}");
            return Err(Error::argument(
                NAME,
                "original_max_position_embeddings",
                expected,
                original,
            ));
        }
        Ok(original)
    }

    /// The size of rotated features that is given, or a computed one.
    fn size_or(&self, computed: f64) -> Result<f64> {
        let size = self.attention_factor.unwrap_or(computed);
        above_zero("attention_factor", size)?;
        Ok(size)
    }

    /// What `yarn` takes logarithms of, and divides by.
    fn check_yarn(&self, base: f64) -> Result<()> {
        if base <= 1.0 {
            return Err(Error::argument(NAME, "base", "a finite number above 1 for yarn", base));
        }
        above_zero("beta_fast", self.beta_fast)?;
        above_zero("beta_slow", self.beta_slow)?;
        for (name, weight) in [("mscale", self.mscale), ("mscale_all_dim", self.mscale_all_dim)] {
            if !weight.is_finite() {
                return Err(Error::argument(NAME, name, "a finite number", weight));
            }
        }
        Ok(())
    }

    fn dynamic(
        &self,
        dims: usize,
        base: f64,
        max_position_embeddings: usize,
        length: Option<usize>,
    ) -> Result<Vec<f64>> {
        if dims == 2 || max_position_embeddings == 0 {
            let expected = "more than 2 dims and more than 0 positions";
            let got = format!("{dims} and {max_position_embeddings}");
            return Err(Error::argument(NAME, "dims", expected, got));
        }
        let length = length.unwrap_or(0).max(max_position_embeddings) as f64;
        let stretched = self.factor * length / max_position_embeddings as f64 - (self.factor - 1.0);
        let power = dims as f64 / (dims as f64 - 2.0);
        Ok(geometric(dims, base * stretched.powf(power)))
    }

    fn llama3(&self, plain: &[f64]) -> Result<Vec<f64>> {
        let (low, high) = (self.low_freq_factor, self.high_freq_factor);
        if !(low <= high && low.is_finite() && high.is_finite()) {
            let expected = format!("a number of at most high_freq_factor, {high}");
            return Err(Error::argument(NAME, "low_freq_factor", expected, low));
        }
        let original = self.original(8192, 1)? as f64;
        let stretch = |&frequency: &f64| {
            let turns = original * frequency / (2.0 * PI);
            let range = self.high_freq_factor - self.low_freq_factor;
            // Between equal factors there is nothing: each frequency is divided, or stays.
            let kept = match range > 0.0 {
                true => ((turns - self.low_freq_factor) / range).clamp(0.0, 1.0),
                false => f64::from(u8::from(turns >= self.low_freq_factor)),
            };
            frequency * ((1.0 - kept) / self.factor + kept)
        };
        Ok(plain.iter().map(stretch).collect())
    }

    fn yarn(&self, plain: &[f64], dims: usize, base: f64) -> Result<Vec<f64>> {
        let (low, high) = self.ramp(dims, base)?;
        let stretch = |(pair, frequency): (usize, &f64)| {
            let divided = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
            frequency * (divided / self.factor + (1.0 - divided))
        };
        Ok(plain.iter().enumerate().map(stretch).collect())
    }

    /// The pairs, counted from 0, between which `yarn` goes over from frequencies that stay to divided ones.
    pub(super) fn ramp(&self, dims: usize, base: f64) -> Result<(f64, f64)> {
        let length = self.original(4096, 1)? as f64;
        // The pair that makes so many turns in the original length.
        let pair_of =
            |turns: f64| dims as f64 * (length / (turns * 2.0 * PI)).ln() / (2.0 * base.ln());
        let low = pair_of(self.beta_fast).floor().max(0.0);
        let high = pair_of(self.beta_slow).ceil().min(dims as f64 - 1.0);
        Ok((low, if low == high { high + 0.001 } else { high }))
    }

    fn longrope(&self, plain: &[f64], short: bool) -> Result<Vec<f64>> {
        let (name, factors) = match short {
            true => ("short_factor", &self.short_factor),
            false => ("long_factor", &self.long_factor),
        };
        if factors.len() != plain.len() {
            return Err(Error::shape(NAME, name, format!("[{}]", plain.len()), &[factors.len()]));
        }
        factors.iter().try_for_each(|&factor| above_zero(name, factor))?;
        Ok(plain.iter().zip(factors).map(|(frequency, factor)| frequency / factor).collect())
    }
}

/// How pairs are divided among several axes of positions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RopeAxes {
    /// One after the other: so many pairs for each axis (`mrope_section`).
    Sections(Vec<usize>),
    /// In turns: axis `a` has the pairs `a`, `a + axes`, … up to so many of them, and the first
    /// axis the rest (`mrope_section` with `mrope_interleaved`).
    Interleaved(Vec<usize>),
    /// Equal parts, each with a sequence of frequencies of its own, as rows and columns of images
    /// have it.
    Spatial(usize),
}

impl RopeAxes {
    /// How many axes there are.
    pub fn count(&self) -> usize {
        match self {
            RopeAxes::Sections(sections) | RopeAxes::Interleaved(sections) => sections.len(),
            RopeAxes::Spatial(axes) => *axes,
        }
    }

    /// The axis of each of `pairs` pairs.
    pub(crate) fn of_pairs(&self, pairs: usize) -> Result<Vec<usize>> {
        let misfit = |got: String| {
            let expected = format!("axes that share {pairs} pairs");
            Err(Error::argument(NAME, "mrope_section", expected, got))
        };
        let total =
            |sections: &[usize]| sections.iter().try_fold(0, |sum: usize, &n| sum.checked_add(n));
        match self {
            RopeAxes::Sections(sections) | RopeAxes::Interleaved(sections)
                if sections.is_empty() || total(sections) != Some(pairs) =>
            {
                misfit(format!("{sections:?}"))
            }
            RopeAxes::Sections(sections) => {
                let repeated = |(axis, &count): (usize, &usize)| std::iter::repeat_n(axis, count);
                Ok(sections.iter().enumerate().flat_map(repeated).collect())
            }
            RopeAxes::Interleaved(sections) => {
                let axis_of = |pair: usize| {
                    let axis = pair % sections.len();
                    if pair < sections[axis] * sections.len() { axis } else { 0 }
                };
                Ok((0..pairs).map(axis_of).collect())
            }
            &RopeAxes::Spatial(axes) if axes == 0 || !pairs.is_multiple_of(axes) => {
                misfit(format!("{axes}"))
            }
            &RopeAxes::Spatial(axes) => Ok((0..pairs).map(|pair| pair / (pairs / axes)).collect()),
        }
    }
}

/// `base^(-2i / dims)`, in double precision: a far position multiplies the error.
pub(crate) fn geometric(dims: usize, base: f64) -> Vec<f64> {
    let half = dims / 2;
    (0..half).map(|i| base.powf(-(i as f64) / half as f64)).collect()
}

fn above_zero(name: &str, value: f64) -> Result<()> {
    match value > 0.0 && value.is_finite() {
        true => Ok(()),
        false => Err(Error::argument(NAME, name, "a finite number above 0", value)),
    }
}

fn yarn_size(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}
