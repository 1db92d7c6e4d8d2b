//! Linear attention by the gated delta rule.

use super::linear::{filled, uniform};
use super::{Linear, Module, RMSNorm, softplus, swiglu};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::*;
use crate::tree::Parameter;

/// Sizes of a [`GatedDeltaNet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeltaDims {
    /// Features of a token.
    pub dims: usize,
    /// Heads of keys and queries.
    pub key_heads: usize,
    /// Heads of values, a multiple of those of keys.
    pub value_heads: usize,
    /// Features of a key.
    pub key_dims: usize,
    /// Features of a value.
    pub value_dims: usize,
    /// Steps that the convolution sees.
    pub taps: usize,
}

/// What projections make of tokens for the [gated delta rule](gated_delta), each of `[batch, steps, …]`.
pub struct DeltaInputs {
    /// Queries, keys and values, side by side.
    pub qkv: Array,
    /// The gate of the result.
    pub z: Array,
    /// Rates of learning, for each head of values.
    pub b: Array,
    /// Rates of forgetting.
    pub a: Array,
}

/// What else the rule is made of.
pub struct DeltaWeights<'a> {
    /// Of the convolution over queries, keys and values: `[channels, taps, 1]`.
    pub conv: &'a Array,
    /// `[value_heads]`.
    pub dt_bias: &'a Array,
    /// `[value_heads]`.
    pub a_log: &'a Array,
    /// The norm of the result's heads.
    pub norm: &'a dyn Fn(&Array) -> Result<Array>,
}

impl DeltaDims {
    /// Checks that heads of values are shared out among those of keys.
    pub fn check(&self) -> Result<()> {
        let (key_heads, value_heads) = (self.key_heads, self.value_heads);
        if key_heads == 0 || !value_heads.is_multiple_of(key_heads) {
            let expected = format!("a multiple of {key_heads} key heads");
            return Err(Error::argument("GatedDeltaNet", "value_heads", expected, value_heads));
        }
        if self.taps == 0 {
            return Err(Error::argument("GatedDeltaNet", "taps", "at least 1", self.taps));
        }
        Ok(())
    }

    /// Channels of the convolution.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dims + self.value_heads * self.value_dims
    }

    /// The inputs from two projections that have, side by side for each key head, queries, keys, values and the gate;
    /// and the two rates.
    pub fn apart(&self, qkvz: &Array, ba: &Array) -> Result<DeltaInputs> {
        let DeltaDims { key_heads, value_heads, key_dims, value_dims, .. } = *self;
        let [batch, steps] = of_tokens(qkvz)?;
        let shared = value_heads / key_heads;
        let of_key_heads =
            |x: &Array| reshape(x, &[batch, steps, key_heads, x.shape()[2] / key_heads]);
        let (qkvz, ba) = (of_key_heads(qkvz)?, of_key_heads(ba)?);
        let flat = |x: Array| reshape(&x, &[batch, steps, x.size() / (batch * steps).max(1)]);
        let values = shared * value_dims;
        let q = flat(part(&qkvz, 0, key_dims)?)?;
        let k = flat(part(&qkvz, key_dims, key_dims)?)?;
        let v = flat(part(&qkvz, 2 * key_dims, values)?)?;
        Ok(DeltaInputs {
            qkv: concatenate(&[q, k, v], -1)?,
            z: flat(part(&qkvz, 2 * key_dims + values, values)?)?,
            b: flat(part(&ba, 0, shared)?)?,
            a: flat(part(&ba, shared, shared)?)?,
        })
    }

    /// The rule behind its convolution, normalised and gated, `[batch, steps, value_heads · value_dims]`; and the next
    /// state, from one or from the beginning.
    pub fn attend(
        &self,
        inputs: &DeltaInputs,
        weights: &DeltaWeights<'_>,
        state: Option<&DeltaState>,
    ) -> Result<(Array, DeltaState)> {
        let DeltaDims { key_heads, value_heads, key_dims, value_dims, .. } = *self;
        let DeltaInputs { qkv, z, b, a } = inputs;
        let [batch, steps] = of_tokens(qkv)?;
        let before = state.map(|state| &state.conv);
        let (mixed, conv) = causal_conv1d(qkv, weights.conv, None, before, true)?;
        let keys = key_heads * key_dims;
        let heads = |from: usize, heads: usize, dims: usize| {
            reshape(&part(&mixed, from, heads * dims)?, &[batch, steps, heads, dims])
        };
        let scale = 1.0 / (key_dims as f64).sqrt();
        // Rows of length 1, and queries scaled as in attention. The norm adds to the mean of the
        // squares.
        let eps = (1e-6 * scale * scale) as f32;
        let normal = |x: Array, by: f64| multiply(rms_norm(&x, None, eps)?, by);
        let q = normal(heads(0, key_heads, key_dims)?, scale * scale)?;
        let k = normal(heads(keys, key_heads, key_dims)?, scale)?;
        let v = heads(2 * keys, value_heads, value_dims)?;
        let rate = exp(astype(weights.a_log, DType::promote(qkv.dtype(), DType::F32))?)?;
        let forgetting = multiply(rate, softplus(&add(a, weights.dt_bias)?)?)?;
        let g = exp(negative(forgetting)?)?;
        let before = state.map(|state| &state.delta);
        let (y, delta) = gated_delta(&q, &k, &v, &g, &sigmoid(b)?, before, None)?;

        let dtype = y.dtype();
        let wide = |x: &Array| astype(x, DType::promote(dtype, DType::F32));
        let z = reshape(z, &[batch, steps, value_heads, value_dims])?;
        let y = astype(&swiglu(&wide(&z)?, &wide(&(weights.norm)(&y)?)?)?, dtype)?;
        let y = reshape(&y, &[batch, steps, value_heads * value_dims])?;
        Ok((y, DeltaState { conv, delta }))
    }
}

/// How many texts there are, and how many steps of each.
fn of_tokens(x: &Array) -> Result<[usize; 2]> {
    match *x.shape() {
        [batch, steps, _] => Ok([batch, steps]),
        _ => Err(Error::shape("GatedDeltaNet", "x", "[batch, steps, dims]", x.shape())),
    }
}

/// `count` features from `from` on.
fn part(x: &Array, from: usize, count: usize) -> Result<Array> {
    x.index((Ellipsis, from as i64..(from + count) as i64))
}

/// What a [`GatedDeltaNet`] carries from one call to the next.
#[derive(Clone, wootz_macros::Tree)]
pub struct DeltaState {
    /// The last inputs of the convolution: see [`causal_conv1d`].
    pub conv: Array,
    /// The state of the rule: see [`gated_delta`].
    pub delta: Array,
}

/// The weight of a convolution that sees each channel by itself.
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct ChannelConv {
    /// `[channels, taps, 1]`.
    pub weight: Parameter,
}

/// Linear attention by the [gated delta rule](gated_delta) behind a [short
/// convolution](causal_conv1d): the layer of Qwen3-Next, with mlx-lm's names.
///
/// ```
/// use wootz::{Array, DType, nn::{DeltaDims, GatedDeltaNet, Module}};
/// let dims = DeltaDims { dims: 8, key_heads: 1, value_heads: 2, key_dims: 4, value_dims: 4, taps: 4 };
/// let layer = GatedDeltaNet::new(dims)?;
/// assert_eq!(layer.forward(&Array::ones(&[2, 5, 8], DType::F32)?)?.shape(), [2, 5, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct GatedDeltaNet {
    /// To queries, keys, values and the gate of the result, side by side for each key head.
    pub in_proj_qkvz: Linear,
    /// To rates of learning and of forgetting, side by side for each key head.
    pub in_proj_ba: Linear,
    /// Over queries, keys and values.
    pub conv1d: ChannelConv,
    /// `[value_heads]`.
    pub dt_bias: Parameter,
    /// `[value_heads]`.
    #[wootz(rename = "A_log")]
    pub a_log: Parameter,
    /// Of the result's heads.
    pub norm: RMSNorm,
    /// Of the result.
    pub out_proj: Linear,
    #[wootz(value)]
    dims: DeltaDims,
}

impl GatedDeltaNet {
    /// Without biases, and with 1e-6 in the norm.
    pub fn new(dims: DeltaDims) -> Result<GatedDeltaNet> {
        dims.check()?;
        let DeltaDims { dims: width, key_heads, value_heads, key_dims, value_dims, taps } = dims;
        let (keys, values) = (key_heads * key_dims, value_heads * value_dims);
        let rates = super::init::uniform(&[value_heads], 1e-3, 16.0, DType::F32, None)?;
        Ok(GatedDeltaNet {
            in_proj_qkvz: Linear::new(width, 2 * keys + 2 * values, false)?,
            in_proj_ba: Linear::new(width, 2 * value_heads, false)?,
            conv1d: ChannelConv {
                weight: uniform(&[dims.channels(), taps, 1], (1.0 / taps as f64).sqrt())?,
            },
            dt_bias: filled(&[value_heads], 1)?,
            a_log: log(rates)?.into(),
            norm: RMSNorm::new(value_dims, 1e-6)?,
            out_proj: Linear::new(values, width, false)?,
            dims,
        })
    }

    /// The result and the next state, from one or from the beginning, for `x` of `[batch, steps,
    /// dims]`.
    pub fn forward_from(
        &self,
        x: &Array,
        state: Option<&DeltaState>,
    ) -> Result<(Array, DeltaState)> {
        of_tokens(x)?;
        let (qkvz, ba) = (self.in_proj_qkvz.forward(x)?, self.in_proj_ba.forward(x)?);
        let inputs = self.dims.apart(&qkvz, &ba)?;
        let weights = DeltaWeights {
            conv: &self.conv1d.weight,
            dt_bias: &self.dt_bias,
            a_log: &self.a_log,
            norm: &|y| self.norm.forward(y),
        };
        let (y, state) = self.dims.attend(&inputs, &weights, state)?;
        Ok((self.out_proj.forward(&y)?, state))
    }
}

impl Module for GatedDeltaNet {
    fn forward(&self, x: &Array) -> Result<Array> {
        Ok(self.forward_from(x, None)?.0)
    }
}
