//! Granite: llama with multipliers of embeddings, scores and results.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::decoder::{Block, Decoder, Sizes, Style};
use super::{Build, parse};
use crate::Result;
use crate::checkpoint::Loader;
use crate::layers::{Activation, Attention, AttentionConfig, FeedForward, GatedMlp, RopeConfig};

#[derive(Debug, Deserialize)]
struct Config {
    hidden_size: usize,
    num_hidden_layers: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    rms_norm_eps: f64,
    vocab_size: usize,
    logits_scaling: f64,
    attention_multiplier: f64,
    embedding_multiplier: f64,
    residual_multiplier: f64,
    num_key_value_heads: usize,
    attention_bias: bool,
    mlp_bias: bool,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    #[serde(flatten)]
    rope: RopeConfig,
}

fn yes() -> bool {
    true
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let config: Config = parse(config)?;
    let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
    let (head_dim, eps) = (hidden / heads.max(1), config.rms_norm_eps);
    let neighbours = RopeConfig { rope_traditional: false, ..config.rope.clone() };
    let rope = neighbours.rope(head_dim, 10000.0, loader.device())?;
    let sizes = Sizes {
        layers: config.num_hidden_layers,
        hidden,
        vocabulary: config.vocab_size,
        context: config.rope.max_position_embeddings.unwrap_or(2048),
        eps,
        tied: config.tie_word_embeddings,
        offset: false,
    };
    let style = Style {
        embedding_scale: Some(config.embedding_multiplier),
        logits_divisor: Some(config.logits_scaling),
        logits_softcap: None,
    };
    let decoder = Decoder::load(loader, "", sizes, style, |loader, _, at, dtype| {
        let attention = AttentionConfig {
            rope: Some(rope.clone()),
            scale: config.attention_multiplier,
            ..AttentionConfig::new(hidden, [heads, config.num_key_value_heads], head_dim, dtype)
        };
        let (path, bias) = (format!("{at}.self_attn"), config.attention_bias.into());
        let attention = Attention::load(loader, &path, attention, [bias, bias])?;
        let (path, inner, bias) = (format!("{at}.mlp"), config.intermediate_size, config.mlp_bias);
        let mlp = GatedMlp::load(loader, &path, hidden, inner, bias, Activation::Silu)?;
        let mlp = FeedForward::Dense(Box::new(mlp));
        let block = Block::load(loader, at, [hidden as f64, eps], attention, mlp)?;
        Ok(Block { residual_multiplier: Some(config.residual_multiplier), ..block })
    })?;
    Ok(Arc::new(decoder))
}
