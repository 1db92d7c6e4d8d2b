//! Qwen3-Next: linear attention by the gated delta rule, and full attention in every fourth layer.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use wootz::nn::DeltaDims;
use wootz::{DType, Result as ArrayResult, Tree};

use super::decoder::{Common, Decoder, Layer, Style};
use super::qwen3_moe::{PROJECTIONS, is_sparse};
use super::{Build, parse};
use crate::cache::{LayerKind, Pass};
use crate::checkpoint::{Bias, Loader, truth};
use crate::layers::{
    Activation, Attention, AttentionConfig, DeltaConfig, FeedForward, GatedDeltaNet, GatedMlp,
    MoeConfig, Residual, RmsNorm, RopeConfig, SparseMoe,
};
use crate::{Error, Result};

/// The configuration, and what the layers of Qwen3.5 are made of too.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Config {
    #[serde(flatten)]
    pub(super) common: Common,
    pub(super) linear_num_value_heads: usize,
    pub(super) linear_num_key_heads: usize,
    pub(super) linear_key_head_dim: usize,
    pub(super) linear_value_head_dim: usize,
    pub(super) linear_conv_kernel_dim: usize,
    pub(super) num_experts: usize,
    pub(super) num_experts_per_tok: usize,
    pub(super) decoder_sparse_step: usize,
    pub(super) shared_expert_intermediate_size: usize,
    pub(super) mlp_only_layers: Vec<usize>,
    pub(super) moe_intermediate_size: usize,
    pub(super) partial_rotary_factor: f64,
    #[serde(default, deserialize_with = "truth")]
    pub(super) norm_topk_prob: bool,
    #[serde(default, deserialize_with = "truth")]
    pub(super) attention_bias: bool,
    #[serde(default = "four")]
    pub(super) full_attention_interval: usize,
}

fn four() -> usize {
    4
}

/// Norms whose weights have 1 added when a checkpoint becomes MLX's.
pub(super) const OFFSET_NORMS: [&str; 5] = [
    ".input_layernorm.weight",
    ".post_attention_layernorm.weight",
    "model.norm.weight",
    ".q_norm.weight",
    ".k_norm.weight",
];

/// A layer with one of the two kinds of attention.
#[derive(Tree)]
pub(super) struct HybridLayer {
    linear_attn: Option<GatedDeltaNet>,
    self_attn: Option<Attention>,
    mlp: FeedForward,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
}

impl Layer for HybridLayer {
    fn kind(&self) -> LayerKind {
        match (&self.linear_attn, &self.self_attn) {
            (Some(linear), _) => linear.config().kind(),
            (None, Some(attention)) => attention.config().kind(),
            (None, None) => LayerKind::Recurrent(Vec::new()),
        }
    }

    fn dynamic_from(&self) -> Option<usize> {
        self.self_attn.as_ref().and_then(|attention| attention.config().dynamic_from())
    }

    fn forward(&self, stream: &mut Residual, pass: &mut Pass, layer: usize) -> ArrayResult<()> {
        let x = stream.norm(&self.input_layernorm)?;
        if let Some(linear) = &self.linear_attn {
            stream.add(linear.forward(&x, pass, layer)?)?;
        }
        if let Some(attention) = &self.self_attn {
            stream.add(attention.forward(&x, pass, layer)?)?;
        }
        let x = stream.norm(&self.post_attention_layernorm)?;
        stream.add(self.mlp.forward(&x)?)
    }
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let config: Config = parse(config)?;
    let apart = |name: &String| name.ends_with(".mlp.experts.0.up_proj.weight");
    if loader.names().iter().any(apart) {
        loader.remove(|name| name.contains("mtp."));
        loader.move_channels()?;
        loader.add_one(&OFFSET_NORMS)?;
    }
    Ok(Arc::new(decoder(&config, loader, "", true)?))
}

/// With projections of linear attention that are `joined` or apart.
pub(super) fn decoder(
    config: &Config,
    loader: &mut Loader<'_>,
    path: &str,
    joined: bool,
) -> Result<Decoder<HybridLayer>> {
    if config.full_attention_interval == 0 {
        return Err(Error::argument("full_attention_interval", "at least 1", 0));
    }
    let sizes = config.common.sizes(false);
    let moe = MoeConfig {
        experts: config.num_experts,
        k: config.num_experts_per_tok,
        chosen_only: false,
        renormalise: config.norm_topk_prob,
        first_wins: false,
    };
    let (hidden, eps) = (config.common.hidden_size, config.common.rms_norm_eps);
    Decoder::load(loader, path, sizes, Style::default(), |loader, number, at, dtype| {
        let is_linear = !(number + 1).is_multiple_of(config.full_attention_interval);
        let (mut linear_attn, mut self_attn) = (None, None);
        if is_linear {
            let at = format!("{at}.linear_attn");
            linear_attn = Some(GatedDeltaNet::load(loader, &at, delta(config, dtype), joined)?);
        } else {
            self_attn = Some(attention(config, loader, &format!("{at}.self_attn"), dtype)?);
        }
        let mlp_path = format!("{at}.mlp");
        let (step, dense) = (config.decoder_sparse_step, &config.mlp_only_layers);
        let mlp = if is_sparse(number, moe.experts, step, dense) {
            loader.join_experts(&mlp_path, moe.experts, &PROJECTIONS)?;
            let shared = config.shared_expert_intermediate_size;
            let sizes = [hidden, config.moe_intermediate_size, shared];
            FeedForward::Sparse(Box::new(SparseMoe::load(loader, &mlp_path, moe, sizes)?))
        } else {
            let inner = config.common.intermediate_size;
            let silu = Activation::Silu;
            FeedForward::Dense(Box::new(GatedMlp::load(
                loader, &mlp_path, hidden, inner, false, silu,
            )?))
        };
        let mut norm = |name: &str| loader.norm(&format!("{at}.{name}"), hidden, eps);
        Ok(HybridLayer {
            linear_attn,
            self_attn,
            mlp,
            input_layernorm: norm("input_layernorm")?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
        })
    })
}

fn delta(config: &Config, dtype: DType) -> DeltaConfig {
    let dims = DeltaDims {
        dims: config.common.hidden_size,
        key_heads: config.linear_num_key_heads,
        value_heads: config.linear_num_value_heads,
        key_dims: config.linear_key_head_dim,
        value_dims: config.linear_value_head_dim,
        taps: config.linear_conv_kernel_dim,
    };
    DeltaConfig { dims, eps: config.common.rms_norm_eps, dtype }
}

fn attention(
    config: &Config,
    loader: &mut Loader<'_>,
    at: &str,
    dtype: DType,
) -> Result<Attention> {
    let heads = [config.common.num_attention_heads, config.common.heads()[1]];
    let dims = (config.common.head_dim() as f64 * config.partial_rotary_factor) as usize;
    let neighbours = RopeConfig { rope_traditional: false, ..config.common.rope.clone() };
    let of_heads = AttentionConfig {
        rope: Some(neighbours.rope(dims, 100000.0, loader.device())?),
        gated: true,
        ..AttentionConfig::new(config.common.hidden_size, heads, config.common.head_dim(), dtype)
    };
    let bias: Bias = config.attention_bias.into();
    Attention::load(loader, at, of_heads, [bias; 2])?.with_head_norms(
        loader,
        at,
        config.common.rms_norm_eps,
        false,
    )
}
