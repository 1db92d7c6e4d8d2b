//! Linear attention by the gated delta rule, behind a short convolution.

use wootz::{
    Array, DType, Ellipsis, Parameter, Result, Tree, add, astype, causal_conv1d, concatenate, exp,
    gated_delta, multiply, negative, nn, reshape, rms_norm, sigmoid,
};

use super::{Linear, RmsNorm};
use crate::Error;
use crate::cache::{LayerKind, Pass};
use crate::checkpoint::Loader;

/// Sizes of a [`GatedDeltaNet`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaConfig {
    /// Features of a token.
    pub hidden: usize,
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
    /// Added to the mean of the result's norm.
    pub eps: f64,
    /// Of activations.
    pub dtype: DType,
}

impl DeltaConfig {
    fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dims + self.value_heads * self.value_dims
    }

    /// What the layer remembers.
    pub fn kind(&self) -> LayerKind {
        let conv = vec![self.taps - 1, self.channels()];
        let state = vec![self.value_heads, self.value_dims, self.key_dims];
        LayerKind::Recurrent(vec![(conv, self.dtype), (state, DType::F32)])
    }
}

/// The weight of a convolution that sees each channel by itself.
#[derive(Clone, Debug, Tree)]
pub struct ChannelConv {
    /// `[channels, taps, 1]`.
    pub weight: Parameter,
}

/// Linear attention. Projections are joined, key head by key head, or apart.
#[derive(Clone, Debug, Tree)]
pub struct GatedDeltaNet {
    /// To queries, keys, values and the gate, side by side for each key head.
    pub in_proj_qkvz: Option<Linear>,
    /// To rates of learning and of forgetting, side by side for each key head.
    pub in_proj_ba: Option<Linear>,
    /// To queries, keys and values.
    pub in_proj_qkv: Option<Linear>,
    /// To the gate.
    pub in_proj_z: Option<Linear>,
    /// To rates of learning.
    pub in_proj_b: Option<Linear>,
    /// To rates of forgetting.
    pub in_proj_a: Option<Linear>,
    /// Over queries, keys and values.
    pub conv1d: ChannelConv,
    /// `[value_heads]`.
    pub dt_bias: Parameter,
    /// `[value_heads]`.
    #[wootz(rename = "A_log")]
    pub a_log: Parameter,
    /// Of the result's heads.
    pub norm: RmsNorm,
    /// Of the result.
    pub out_proj: Linear,
    #[wootz(skip)]
    config: DeltaConfig,
}

/// What the projections give: queries, keys and values side by side, the gate, and the rates.
struct Projected {
    qkv: Array,
    z: Array,
    b: Array,
    a: Array,
}

impl GatedDeltaNet {
    /// With projections that are `joined`, as Qwen3-Next has them, or apart, as Qwen3.5.
    pub fn load(
        loader: &mut Loader<'_>,
        path: &str,
        config: DeltaConfig,
        joined: bool,
    ) -> crate::Result<GatedDeltaNet> {
        let DeltaConfig { hidden, key_heads, value_heads, key_dims, value_dims, taps, .. } = config;
        if key_heads == 0 || !value_heads.is_multiple_of(key_heads) {
            let expected = format!("a multiple of {key_heads} key heads");
            return Err(Error::argument("linear_num_value_heads", expected, value_heads));
        }
        if taps == 0 {
            return Err(Error::argument("linear_conv_kernel_dim", "at least 1", taps));
        }
        let (keys, values) = (key_heads * key_dims, value_heads * value_dims);
        let mut linear = |name: &str, outputs: usize, wanted: bool| {
            let at = format!("{path}.{name}");
            wanted.then(|| loader.linear(&at, hidden, outputs, false)).transpose()
        };
        let in_proj_qkvz = linear("in_proj_qkvz", 2 * keys + 2 * values, joined)?;
        let in_proj_ba = linear("in_proj_ba", 2 * value_heads, joined)?;
        let in_proj_qkv = linear("in_proj_qkv", 2 * keys + values, !joined)?;
        let in_proj_z = linear("in_proj_z", values, !joined)?;
        let in_proj_b = linear("in_proj_b", value_heads, !joined)?;
        let in_proj_a = linear("in_proj_a", value_heads, !joined)?;
        let conv = [config.channels(), taps, 1];
        Ok(GatedDeltaNet {
            in_proj_qkvz,
            in_proj_ba,
            in_proj_qkv,
            in_proj_z,
            in_proj_b,
            in_proj_a,
            conv1d: ChannelConv {
                weight: loader.parameter(&format!("{path}.conv1d.weight"), &conv)?,
            },
            dt_bias: loader.parameter(&format!("{path}.dt_bias"), &[value_heads])?,
            a_log: loader.parameter(&format!("{path}.A_log"), &[value_heads])?,
            norm: loader.norm(&format!("{path}.norm"), value_dims, config.eps)?,
            out_proj: loader.linear(&format!("{path}.out_proj"), values, hidden, false)?,
            config,
        })
    }

    /// Its sizes.
    pub fn config(&self) -> &DeltaConfig {
        &self.config
    }

    /// For `x` of `[batch, length, hidden]`.
    pub fn forward(&self, x: &Array, pass: &mut Pass, layer: usize) -> Result<Array> {
        let DeltaConfig { key_heads, value_heads, key_dims, value_dims, .. } = self.config;
        let (batch, length) = (x.shape()[0], x.shape()[1]);
        let Projected { qkv, z, b, a } = self.project(x)?;
        let states = pass.states(layer)?;
        let (conv, state) = (states.first(), states.get(1));
        let (mixed, conv) = causal_conv1d(&qkv, &self.conv1d.weight, None, conv, true)?;
        let keys = key_heads * key_dims;
        let heads = |from: usize, heads: usize, dims: usize| {
            reshape(&part(&mixed, from, heads * dims)?, &[batch, length, heads, dims])
        };
        let scale = 1.0 / (key_dims as f64).sqrt();
        // Rows of length 1, and queries scaled as in attention. The norm adds to the mean of squares.
        let eps = (1e-6 * scale * scale) as f32;
        let normal = |x: Array, by: f64| multiply(rms_norm(&x, None, eps)?, by);
        let q = normal(heads(0, key_heads, key_dims)?, scale * scale)?;
        let k = normal(heads(keys, key_heads, key_dims)?, scale)?;
        let v = heads(2 * keys, value_heads, value_dims)?;
        let rate = exp(astype(&self.a_log, DType::F32)?)?;
        let forgetting = multiply(rate, nn::softplus(&add(a, &self.dt_bias)?)?)?;
        let g = exp(negative(forgetting)?)?;
        let (y, state) = gated_delta(&q, &k, &v, &g, &sigmoid(b)?, state, None)?;
        pass.set_states(layer, vec![conv, state])?;

        let dtype = y.dtype();
        let wide = |x: &Array| astype(x, DType::promote(dtype, DType::F32));
        let y = nn::swiglu(&wide(&z)?, &wide(&self.norm.forward(&y)?)?)?;
        let y = reshape(&astype(&y, dtype)?, &[batch, length, value_heads * value_dims])?;
        self.out_proj.forward(&y)
    }

    fn project(&self, x: &Array) -> Result<Projected> {
        let DeltaConfig { key_heads, value_heads, key_dims, value_dims, .. } = self.config;
        let (batch, length) = (x.shape()[0], x.shape()[1]);
        let gate = |z: &Array| reshape(z, &[batch, length, value_heads, value_dims]);
        if let (Some(qkv), Some(z), Some(b), Some(a)) =
            (&self.in_proj_qkv, &self.in_proj_z, &self.in_proj_b, &self.in_proj_a)
        {
            let z = gate(&z.forward(x)?)?;
            return Ok(Projected { qkv: qkv.forward(x)?, z, b: b.forward(x)?, a: a.forward(x)? });
        }
        let (Some(qkvz), Some(ba)) = (&self.in_proj_qkvz, &self.in_proj_ba) else {
            return Err(wootz::Error::argument("GatedDeltaNet", "in_proj", "projections", "none"));
        };
        // Each key head with its value heads.
        let shared = value_heads / key_heads;
        let of_key_heads =
            |x: Array| reshape(&x, &[batch, length, key_heads, x.shape()[2] / key_heads]);
        let (qkvz, ba) = (of_key_heads(qkvz.forward(x)?)?, of_key_heads(ba.forward(x)?)?);
        let flat = |x: Array| reshape(&x, &[batch, length, x.size() / (batch * length).max(1)]);
        let values = shared * value_dims;
        let q = flat(part(&qkvz, 0, key_dims)?)?;
        let k = flat(part(&qkvz, key_dims, key_dims)?)?;
        let v = flat(part(&qkvz, 2 * key_dims, values)?)?;
        let z = gate(&part(&qkvz, 2 * key_dims + values, values)?)?;
        let (b, a) = (flat(part(&ba, 0, shared)?)?, flat(part(&ba, shared, shared)?)?);
        Ok(Projected { qkv: concatenate(&[q, k, v], -1)?, z, b, a })
    }
}

/// `count` features from `from` on.
fn part(x: &Array, from: usize, count: usize) -> Result<Array> {
    x.index((Ellipsis, from as i64..(from + count) as i64))
}
