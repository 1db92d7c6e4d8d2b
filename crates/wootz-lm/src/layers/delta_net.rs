//! Linear attention by the gated delta rule, behind a short convolution.

use std::hash::{Hash, Hasher};

use wootz::nn::{ChannelConv, DeltaDims, DeltaInputs, DeltaState, DeltaWeights};
use wootz::{Array, DType, Parameter, Result, Tree};

use super::{Linear, RmsNorm};
use crate::cache::{LayerKind, Pass};
use crate::checkpoint::Loader;

/// What a [`GatedDeltaNet`] is made for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaConfig {
    /// Its sizes.
    pub dims: DeltaDims,
    /// Added to the mean of the result's norm.
    pub eps: f64,
    /// Of activations.
    pub dtype: DType,
}

/// Numbers count by their bits.
impl Hash for DeltaConfig {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let DeltaConfig { dims, eps, dtype } = self;
        (dims, eps.to_bits(), dtype).hash(state);
    }
}

impl DeltaConfig {
    /// What the layer remembers.
    pub fn kind(&self) -> LayerKind {
        let DeltaDims { value_heads, key_dims, value_dims, taps, .. } = self.dims;
        let conv = vec![taps - 1, self.dims.channels()];
        let state = vec![value_heads, value_dims, key_dims];
        LayerKind::Recurrent(vec![(conv, self.dtype), (state, DType::F32)])
    }
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
    #[wootz(value)]
    config: DeltaConfig,
}

impl GatedDeltaNet {
    /// With projections that are `joined`, as Qwen3-Next has them, or apart, as Qwen3.5.
    pub fn load(
        loader: &mut Loader<'_>,
        path: &str,
        config: DeltaConfig,
        joined: bool,
    ) -> crate::Result<GatedDeltaNet> {
        config.dims.check()?;
        let DeltaDims { dims: hidden, key_heads, value_heads, key_dims, value_dims, taps } =
            config.dims;
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
        let conv = [config.dims.channels(), taps, 1];
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
        let inputs = self.project(x)?;
        let mut states = pass.states(layer)?.into_iter();
        let state = match (states.next(), states.next()) {
            (Some(conv), Some(delta)) => Some(DeltaState { conv, delta }),
            _ => None,
        };
        let weights = DeltaWeights {
            conv: &self.conv1d.weight,
            dt_bias: &self.dt_bias,
            a_log: &self.a_log,
            norm: &|y| self.norm.forward(y),
        };
        let (y, state) = self.config.dims.attend(&inputs, &weights, state.as_ref())?;
        pass.set_states(layer, vec![state.conv, state.delta])?;
        self.out_proj.forward(&y)
    }

    fn project(&self, x: &Array) -> Result<DeltaInputs> {
        if let (Some(qkv), Some(z), Some(b), Some(a)) =
            (&self.in_proj_qkv, &self.in_proj_z, &self.in_proj_b, &self.in_proj_a)
        {
            let [qkv, z, b, a] = Linear::forward_each([qkv, z, b, a], x)?;
            return Ok(DeltaInputs { qkv, z, b, a });
        }
        let (Some(qkvz), Some(ba)) = (&self.in_proj_qkvz, &self.in_proj_ba) else {
            return Err(wootz::Error::argument("GatedDeltaNet", "in_proj", "projections", "none"));
        };
        let [qkvz, ba] = Linear::forward_each([qkvz, ba], x)?;
        self.config.dims.apart(&qkvz, &ba)
    }
}
