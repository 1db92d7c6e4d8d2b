//! Granite: llama with multipliers of embeddings, scores and results.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::decoder::{Block, Common, Decoder, Style};
use super::{Build, parse};
use crate::Result;
use crate::checkpoint::{Loader, truth};
use crate::layers::{Activation, Attention, AttentionConfig, FeedForward, GatedMlp, RopeConfig};

#[derive(Debug, Deserialize)]
struct Config {
    #[serde(flatten)]
    common: Common,
    logits_scaling: f64,
    attention_multiplier: f64,
    embedding_multiplier: f64,
    residual_multiplier: f64,
    #[serde(deserialize_with = "truth")]
    attention_bias: bool,
    #[serde(deserialize_with = "truth")]
    mlp_bias: bool,
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let config: Config = parse(config)?;
    let (hidden, heads) = (config.common.hidden_size, config.common.num_attention_heads);
    let (head_dim, eps) = (hidden / heads.max(1), config.common.rms_norm_eps);
    let neighbours = RopeConfig { rope_traditional: false, ..config.common.rope.clone() };
    let rope = neighbours.rope(head_dim, 10000.0, loader.device())?;
    let sizes = config.common.sizes(true);
    let style = Style {
        embedding_scale: Some(config.embedding_multiplier),
        logits_divisor: Some(config.logits_scaling),
        logits_softcap: None,
    };
    let decoder = Decoder::load(loader, "", sizes, style, |loader, _, at, dtype| {
        let attention = AttentionConfig {
            rope: Some(rope.clone()),
            scale: config.attention_multiplier,
            ..AttentionConfig::new(hidden, [heads, config.common.heads()[1]], head_dim, dtype)
        };
        let (path, bias) = (format!("{at}.self_attn"), config.attention_bias.into());
        let attention = Attention::load(loader, &path, attention, [bias, bias])?;
        let (path, inner, bias) =
            (format!("{at}.mlp"), config.common.intermediate_size, config.mlp_bias);
        let mlp = GatedMlp::load(loader, &path, hidden, inner, bias, Activation::Silu)?;
        let mlp = FeedForward::Dense(Box::new(mlp));
        let block = Block::load(loader, at, [hidden as f64, eps], attention, mlp)?;
        Ok(Block { residual_multiplier: Some(config.residual_multiplier), ..block })
    })?;
    Ok(Arc::new(decoder))
}
