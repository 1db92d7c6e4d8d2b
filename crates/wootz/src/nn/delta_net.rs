//! Linear attention by the gated delta rule.

use super::linear::{filled, uniform};
use super::{Linear, Module, RMSNorm, softplus, swiglu};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::*;
use crate::tree::Parameter;

/// Sizes of a [`GatedDeltaNet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    #[wootz(skip)]
    dims: DeltaDims,
}

impl GatedDeltaNet {
    /// Without biases, and with 1e-6 in the norm.
    pub fn new(dims: DeltaDims) -> Result<GatedDeltaNet> {
        let DeltaDims { dims: width, key_heads, value_heads, key_dims, value_dims, taps } = dims;
        if key_heads == 0 || !value_heads.is_multiple_of(key_heads) {
            let expected = format!("a multiple of {key_heads} key heads");
            return Err(Error::argument("GatedDeltaNet", "value_heads", expected, value_heads));
        }
        if taps == 0 {
            return Err(Error::argument("GatedDeltaNet", "taps", "at least 1", taps));
        }
        let (keys, values) = (key_heads * key_dims, value_heads * value_dims);
        let rates = super::init::uniform(&[value_heads], 1e-3, 16.0, DType::F32, None)?;
        Ok(GatedDeltaNet {
            in_proj_qkvz: Linear::new(width, 2 * keys + 2 * values, false)?,
            in_proj_ba: Linear::new(width, 2 * value_heads, false)?,
            conv1d: ChannelConv {
                weight: uniform(&[2 * keys + values, taps, 1], (1.0 / taps as f64).sqrt())?,
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
        let DeltaDims { key_heads, value_heads, key_dims, value_dims, .. } = self.dims;
        let &[batch, steps, _] = x.shape() else {
            return Err(Error::shape("GatedDeltaNet", "x", "[batch, steps, dims]", x.shape()));
        };
        let shared = value_heads / key_heads;
        // Each key head with its value heads.
        let of_key_heads =
            |x: Array| reshape(&x, &[batch, steps, key_heads, x.shape()[2] / key_heads]);
        let qkvz = of_key_heads(self.in_proj_qkvz.forward(x)?)?;
        let ba = of_key_heads(self.in_proj_ba.forward(x)?)?;
        let part = |x: &Array, from: usize, count: usize| {
            x.index((Ellipsis, from as i64..(from + count) as i64))
        };
        let flat = |x: Array| reshape(&x, &[batch, steps, x.size() / (batch * steps).max(1)]);
        let values = shared * value_dims;
        let q = flat(part(&qkvz, 0, key_dims)?)?;
        let k = flat(part(&qkvz, key_dims, key_dims)?)?;
        let v = flat(part(&qkvz, 2 * key_dims, values)?)?;
        let z = part(&qkvz, 2 * key_dims + values, values)?;
        let z = reshape(&z, &[batch, steps, value_heads, value_dims])?;
        let (b, a) = (flat(part(&ba, 0, shared)?)?, flat(part(&ba, shared, shared)?)?);

        let mixed = concatenate(&[q, k, v], -1)?;
        let before = state.map(|state| &state.conv);
        let (mixed, conv) = causal_conv1d(&mixed, &self.conv1d.weight, None, before, true)?;
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
        let rate = exp(astype(&self.a_log, DType::promote(x.dtype(), DType::F32))?)?;
        let forgetting = multiply(rate, softplus(&add(a, &self.dt_bias)?)?)?;
        let g = exp(negative(forgetting)?)?;
        let before = state.map(|state| &state.delta);
        let (y, delta) = gated_delta(&q, &k, &v, &g, &sigmoid(b)?, before, None)?;

        let dtype = y.dtype();
        let wide = |x: &Array| astype(x, DType::promote(dtype, DType::F32));
        let y = swiglu(&wide(&z)?, &wide(&self.norm.forward(&y)?)?)?;
        let y = flat(astype(&y, dtype)?)?;
        Ok((self.out_proj.forward(&y)?, DeltaState { conv, delta }))
    }
}

impl Module for GatedDeltaNet {
    fn forward(&self, x: &Array) -> Result<Array> {
        Ok(self.forward_from(x, None)?.0)
    }
}
