//! Rotary positions, with all the ways in which models stretch them.

use std::hash::{Hash, Hasher};

use serde::Deserialize;
use serde_json::Value;
use wootz::{
    Array, DType, Device, Error, Positions, Result, RopeScaling, RopeType, add, divide, exp, log,
    maximum, multiply, power, reciprocal, reshape, subtract,
};

use crate::checkpoint::{WHOLE, count, said, truth, whole};

/// What a configuration says of rotary positions, as one of its parts.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RopeConfig {
    /// The base of the wavelengths.
    pub rope_theta: Option<f64>,
    /// Whether neighbours are rotated together.
    #[serde(default, deserialize_with = "truth")]
    pub rope_traditional: bool,
    /// How positions are stretched.
    pub rope_scaling: Option<Value>,
    /// The same in newer configurations, with the base.
    pub rope_parameters: Option<Value>,
    /// Positions that the model was made for.
    #[serde(default, deserialize_with = "count")]
    pub max_position_embeddings: Option<usize>,
}

impl RopeConfig {
    /// `rope_parameters`, where no older key says anything. Most of mlx-lm's models do not know them: older keys beside them are
    /// all there is, and where these are left out altogether `models::load` takes the newer ones out.
    pub fn newer(&self) -> Option<&Value> {
        let is_older = self.rope_theta.is_some() || self.older().is_some();
        self.rope_parameters.as_ref().filter(|given| !is_older && given.is_object())
    }

    /// With what older keys do not say taken from `rope_parameters`, one by one, as in mlx-lm's Qwen3.
    pub fn merged(&self) -> RopeConfig {
        let nested = self.rope_parameters.as_ref().filter(|given| given.is_object());
        let theta = || nested?.get("rope_theta")?.as_f64();
        RopeConfig {
            rope_theta: self.rope_theta.or_else(theta),
            rope_scaling: self.older().or(nested).cloned(),
            rope_parameters: None,
            ..self.clone()
        }
    }

    fn older(&self) -> Option<&Value> {
        self.rope_scaling.as_ref().filter(|given| !given.is_null())
    }

    /// What is said of stretching, in either way.
    pub(crate) fn stretch(&self) -> Option<&Value> {
        self.older().or_else(|| self.newer())
    }

    /// The base, or what it is without one.
    pub fn theta(&self, usual: f64) -> f64 {
        let nested = || self.newer()?.get("rope_theta")?.as_f64();
        self.rope_theta.or_else(nested).unwrap_or(usual)
    }

    /// An error if the base that newer keys give is no number.
    fn check_theta(&self) -> crate::Result<()> {
        let nested = || self.newer()?.get("rope_theta").filter(|given| !given.is_null());
        match nested().filter(|given| self.rope_theta.is_none() && given.as_f64().is_none()) {
            Some(given) => {
                let key = "rope_parameters.rope_theta";
                Err(crate::Error::argument(key, "a finite number", said(given)))
            }
            None => Ok(()),
        }
    }

    /// How positions are stretched.
    pub fn scaling(&self) -> crate::Result<RopeScaling> {
        match self.stretch() {
            Some(given) => scaling(given),
            None => Ok(RopeScaling::new(RopeType::Default)),
        }
    }

    /// Tokens that a text may have: as many as the model was made for, or as stretching makes of those it was
    /// trained with first.
    pub fn context(&self) -> Option<usize> {
        let told = self.max_position_embeddings?;
        let stretched = || {
            let scaling = self.scaling().ok()?;
            let stretches = match scaling.rope_type {
                RopeType::Linear | RopeType::Llama3 | RopeType::Yarn | RopeType::Longrope => true,
                RopeType::Default | RopeType::Dynamic | RopeType::Proportional => false,
            };
            let original = scaling.original_max_position_embeddings.filter(|_| stretches)?;
            Some((original as f64 * scaling.factor) as usize)
        };
        Some(stretched().unwrap_or(0).max(told))
    }

    /// For the first `dims` features of heads, whatever is said of stretching.
    pub fn unstretched(&self, dims: usize, usual: f64, device: &Device) -> crate::Result<Rope> {
        self.check_theta()?;
        let (theta, scaling) = (self.theta(usual), RopeScaling::new(RopeType::Default));
        Ok(Rope::new(dims, theta, self.rope_traditional, &scaling, 0, device)?)
    }

    /// For the first `dims` features of heads.
    pub fn rope(&self, dims: usize, usual: f64, device: &Device) -> crate::Result<Rope> {
        let positions = self.max_position_embeddings.unwrap_or(2048);
        self.check_theta()?;
        let (theta, scaling) = (self.theta(usual), self.scaling()?);
        Ok(Rope::new(dims, theta, self.rope_traditional, &scaling, positions, device)?)
    }
}

/// `rope_scaling` of a configuration. An `attention_factor` is not read, as in mlx-lm: `mscale` and
/// `mscale_all_dim` say how large rotated features are.
fn scaling(given: &Value) -> crate::Result<RopeScaling> {
    let wrong = |key: &str, expected: &str, got: &Value| {
        crate::Error::argument(format!("rope_scaling.{key}"), expected, said(got))
    };
    if !given.is_object() || given.get("__float__").is_some() {
        return Err(crate::Error::argument("rope_scaling", "an object", said(given)));
    }
    let find = |key: &str| given.get(key).filter(|value| !value.is_null());
    let word = |key: &str| find(key).filter(|value| value.as_str() != Some(""));
    let kind = match word("type").or_else(|| word("rope_type")) {
        Some(kind) => kind.as_str().ok_or_else(|| wrong("type", "a word", kind))?,
        None => "default",
    };
    let mut scaling = RopeScaling::new(kind.parse()?);
    let number = |key: &str, place: &mut f64| match find(key) {
        Some(value) => {
            *place = value.as_f64().ok_or_else(|| wrong(key, "a finite number", value))?;
            Ok(())
        }
        None => Ok::<(), crate::Error>(()),
    };
    number("factor", &mut scaling.factor)?;
    number("low_freq_factor", &mut scaling.low_freq_factor)?;
    number("high_freq_factor", &mut scaling.high_freq_factor)?;
    number("beta_fast", &mut scaling.beta_fast)?;
    number("beta_slow", &mut scaling.beta_slow)?;
    number("mscale", &mut scaling.mscale)?;
    number("mscale_all_dim", &mut scaling.mscale_all_dim)?;
    number("partial_rotary_factor", &mut scaling.partial_rotary_factor)?;
    if let Some(value) = find("original_max_position_embeddings") {
        let key = "original_max_position_embeddings";
        let original = value.as_f64().and_then(whole).ok_or_else(|| wrong(key, WHOLE, value))?;
        scaling.original_max_position_embeddings = Some(original);
    }
    let numbers = |key: &str| match find(key) {
        Some(Value::Array(values)) => {
            let number = |value: &Value| value.as_f64().ok_or_else(|| wrong(key, "numbers", value));
            values.iter().map(number).collect()
        }
        Some(value) => Err(wrong(key, "an array of numbers", value)),
        None => Ok(Vec::new()),
    };
    scaling.short_factor = numbers("short_factor")?;
    scaling.long_factor = numbers("long_factor")?;
    Ok(scaling)
}

/// Rotary positions of the first features of heads.
#[derive(Clone, Debug)]
pub struct Rope {
    op: wootz::Rope,
    /// `[1, dims / 2]`.
    frequencies: Array,
    /// The same as numbers.
    numbers: Vec<f32>,
    /// What frequencies depend on, if that is the length of the text.
    dynamic: Option<Dynamic>,
}

/// Frequencies whose base grows with the text.
#[derive(Clone, Copy, Debug)]
struct Dynamic {
    base: f64,
    factor: f64,
    positions: usize,
}

/// Numbers count by their bits.
impl Hash for Rope {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let wootz::Rope { dims, traditional, scale, amplitude, inverse, .. } = self.op;
        (dims, traditional, scale.to_bits(), amplitude.to_bits(), inverse).hash(state);
        self.numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>().hash(state);
        let Some(Dynamic { base, factor, positions }) = self.dynamic else { return };
        (base.to_bits(), factor.to_bits(), positions).hash(state);
    }
}

impl Rope {
    /// For the first `dims` features, with so many positions in the model.
    pub fn new(
        dims: usize,
        base: f64,
        traditional: bool,
        scaling: &RopeScaling,
        positions: usize,
        device: &Device,
    ) -> Result<Rope> {
        let amplitude = scaling.frequencies(dims, base, positions, None)?.attention_factor;
        // As in mlx-lm, this way knows no neighbours.
        let traditional = traditional && scaling.rope_type != RopeType::Longrope;
        let factor = scaling.factor;
        // As in MLX: positions are divided, and not frequencies.
        let scale = if scaling.rope_type == RopeType::Linear { 1.0 / factor } else { 1.0 };
        let op = wootz::Rope { traditional, scale, amplitude, ..wootz::Rope::new(dims) };
        let dynamic =
            (scaling.rope_type == RopeType::Dynamic).then_some(Dynamic { base, factor, positions });
        let numbers = scaling.frequencies_of_mlx(dims, base, positions)?;
        Ok(Rope { op, frequencies: table(&numbers, device)?, numbers, dynamic })
    }

    /// Tokens beyond which the rotation of all depends on how many there are, if it does.
    pub(crate) fn dynamic_from(&self) -> Option<usize> {
        self.dynamic.map(|dynamic| dynamic.positions)
    }

    /// With wavelengths multiplied by `factors`, one for each pair.
    pub fn stretched(self, factors: &Array) -> Result<Rope> {
        let factors = reshape(&factors.astype(DType::F32)?, self.frequencies.shape())?;
        let frequencies = divide(&self.frequencies, factors)?;
        let numbers = frequencies.to_vec()?;
        Ok(Rope { frequencies, numbers, ..self })
    }

    /// Of `[batch, heads, length, features]`, at positions that count from `offsets`, one for all or one
    /// for each of the batch.
    pub fn forward(&self, x: &Array, offsets: &Array) -> Result<Array> {
        let (op, frequencies) = self.parts(x, offsets)?;
        let x = if x.strides().last() == Some(&1) { x.clone() } else { x.contiguous()? };
        Array::apply(op, &[&x, &frequencies, offsets])
    }

    /// The operation and its frequencies, for `x` at such positions.
    pub(crate) fn parts(&self, x: &Array, offsets: &Array) -> Result<(wootz::Rope, Array)> {
        let frequencies = match self.dynamic {
            Some(dynamic) => self.stretched_to(dynamic, x, offsets)?,
            None => self.frequencies.clone(),
        };
        Ok((wootz::Rope { positions: Positions::Offset, ..self.op }, frequencies))
    }

    /// Frequencies for a text up to the last position of `x`.
    fn stretched_to(&self, dynamic: Dynamic, x: &Array, offsets: &Array) -> Result<Array> {
        if offsets.size() != 1 {
            let expected = "one text at a time, for dynamic scaling";
            return Err(Error::argument("rope", "offsets", expected, offsets.size()));
        }
        let Dynamic { base, factor, positions } = dynamic;
        let dims = self.op.dims as f64;
        let length = x.shape().get(2).copied().unwrap_or(0);
        let end = add(offsets.reshape(&[1])?.astype(DType::F32)?, length as f64)?;
        let ratio = divide(maximum(end, positions as f64)?, positions as f64)?;
        let stretch = subtract(multiply(ratio, factor)?, factor - 1.0)?;
        let base = multiply(power(stretch, dims / (dims - 2.0))?, base)?;
        let pairs: Vec<f64> = (0..self.op.dims / 2).map(|pair| 2.0 * pair as f64 / dims).collect();
        let wavelengths = exp(multiply(log(base)?, table(&single(&pairs), x.device())?)?)?;
        reciprocal(wavelengths)
    }
}

fn single(numbers: &[f64]) -> Vec<f32> {
    numbers.iter().map(|&number| number as f32).collect()
}

fn table(numbers: &[f32], device: &Device) -> Result<Array> {
    Array::from_slice_on(numbers, &[1, numbers.len()], device)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Bits of what mlx-lm 0.32.2 divides positions by: `mx.reciprocal` of its frequencies, for 16 features and base 50000.
    #[test]
    fn frequencies_are_those_of_mlx_lm_to_the_bit() {
        let long: Vec<f64> = (0..8).map(|pair| 1.1 + 0.5 * f64::from(pair)).collect();
        let cases = [
            (
                json!({ "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0,
                    "original_max_position_embeddings": 256 }),
                [
                    0x3f800000, 0x3e84673d, 0x3d75a30d, 0x3b8dab61, 0x3a928aff, 0x39979588,
                    0x389ccc77, 0x37a23151,
                ],
            ),
            (
                json!({ "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 96, "beta_fast": 16,
                    "beta_slow": 2 }),
                [
                    0x3f800000, 0x3e14f424, 0x3c08f541, 0x3b0dab61, 0x3a128aff, 0x39179589,
                    0x381ccc77, 0x37223151,
                ],
            ),
            (
                json!({ "type": "longrope", "original_max_position_embeddings": 128, "long_factor": long }),
                [
                    0x3f68ba2e, 0x3e25810c, 0x3d026fac, 0x3bd9f3f7, 0x3abd1673, 0x39a86d43,
                    0x3898f96e, 0x378d097e,
                ],
            ),
            (
                json!({ "rope_type": "proportional", "factor": 2.0, "partial_rotary_factor": 0.75 }),
                [0x3f000000, 0x3e04673d, 0x3d08f541, 0x3c0dab61, 0x3b128aff, 0x3a179588, 0, 0],
            ),
        ];
        for (given, expected) in cases {
            let scaling = scaling(&given).unwrap();
            let rope = Rope::new(16, 50000.0, false, &scaling, 4096, &Device::cpu()).unwrap();
            let bits: Vec<u32> = rope.numbers.iter().map(|number| number.to_bits()).collect();
            assert_eq!(bits, expected, "{given}");
        }
        // Positions are divided, and frequencies stay.
        let linear = scaling(&json!({ "type": "linear", "factor": 2.5 })).unwrap();
        let linear = Rope::new(16, 50000.0, false, &linear, 4096, &Device::cpu()).unwrap();
        let plain = RopeScaling::new(RopeType::Default);
        let plain = Rope::new(16, 50000.0, false, &plain, 4096, &Device::cpu()).unwrap();
        assert_eq!((linear.op.scale, plain.op.scale), (0.4, 1.0));
        assert_eq!(linear.numbers, plain.numbers);
    }
}
