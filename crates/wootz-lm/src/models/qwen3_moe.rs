//! Qwen3 with sparse experts.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::decoder::{Block, Common, Decoder, Sizes, Style};
use super::{Build, parse};
use crate::Result;
use crate::checkpoint::{Bias, Loader, truth};
use crate::layers::{
    Activation, Attention, AttentionConfig, FeedForward, GatedMlp, MoeConfig, RopeConfig, SparseMoe,
};

#[derive(Debug, Deserialize)]
struct Config {
    #[serde(flatten)]
    common: Common,
    num_experts: usize,
    num_experts_per_tok: usize,
    decoder_sparse_step: usize,
    mlp_only_layers: Vec<usize>,
    moe_intermediate_size: usize,
    #[serde(deserialize_with = "truth")]
    norm_topk_prob: bool,
}

/// The names of experts' projections, apart and joined.
pub(super) const PROJECTIONS: [(&str, &str); 3] =
    [("gate_proj", "gate_proj"), ("up_proj", "up_proj"), ("down_proj", "down_proj")];

/// Whether a layer has experts.
pub(super) fn is_sparse(layer: usize, experts: usize, step: usize, dense: &[usize]) -> bool {
    experts > 0 && step > 0 && (layer + 1).is_multiple_of(step) && !dense.contains(&layer)
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let config: Config = parse(config)?;
    let (hidden, heads, head_dim) =
        (config.common.hidden_size, config.common.num_attention_heads, config.common.head_dim());
    // As in mlx-lm, positions are not stretched.
    let rope = RopeConfig { rope_traditional: false, ..config.common.rope.clone() };
    let rope = rope.unstretched(head_dim, 1e6, loader.device())?;
    // Nothing of it is stretched.
    let context = config.common.rope.max_position_embeddings;
    let sizes = Sizes { context, ..config.common.sizes(false) };
    let moe = MoeConfig {
        experts: config.num_experts,
        k: config.num_experts_per_tok,
        chosen_only: false,
        renormalise: config.norm_topk_prob,
        first_wins: false,
    };
    let decoder =
        Decoder::load(loader, "", sizes, Style::default(), |loader, layer, at, dtype| {
            let attention = AttentionConfig {
                rope: Some(rope.clone()),
                ..AttentionConfig::new(hidden, [heads, config.common.heads()[1]], head_dim, dtype)
            };
            let (path, eps) = (format!("{at}.self_attn"), config.common.rms_norm_eps);
            let attention = Attention::load(loader, &path, attention, [Bias::No; 2])?
                .with_head_norms(loader, &path, eps, false)?;
            let path = format!("{at}.mlp");
            let (step, dense) = (config.decoder_sparse_step, &config.mlp_only_layers);
            let mlp = if is_sparse(layer, moe.experts, step, dense) {
                loader.join_experts(&path, moe.experts, &PROJECTIONS)?;
                let sizes = [hidden, config.moe_intermediate_size, 0];
                FeedForward::Sparse(Box::new(SparseMoe::load(loader, &path, moe, sizes)?))
            } else {
                let inner = config.common.intermediate_size;
                let mlp = GatedMlp::load(loader, &path, hidden, inner, false, Activation::Silu)?;
                FeedForward::Dense(Box::new(mlp))
            };
            Block::load(loader, at, [hidden as f64, eps], attention, mlp)
        })?;
    Ok(Arc::new(decoder))
}
