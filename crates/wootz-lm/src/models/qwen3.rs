//! Qwen3.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::decoder::{Block, Decoder, Sizes, Style};
use super::{Build, parse};
use crate::checkpoint::{Bias, Loader};
use crate::layers::{Activation, Attention, AttentionConfig, FeedForward, GatedMlp, RopeConfig};
use crate::{Error, Result};

#[derive(Debug, Deserialize)]
struct Config {
    hidden_size: usize,
    num_hidden_layers: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    rms_norm_eps: f64,
    vocab_size: usize,
    num_key_value_heads: usize,
    head_dim: usize,
    tie_word_embeddings: bool,
    #[serde(flatten)]
    rope: RopeConfig,
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let config: Config = parse(config)?;
    let theta = config.rope.theta(f64::NAN);
    if theta.is_nan() {
        return Err(Error::argument("rope_theta", "a number", "none"));
    }
    let (hidden, heads, head_dim) =
        (config.hidden_size, config.num_attention_heads, config.head_dim);
    let rope = config.rope.rope(head_dim, theta, loader.device())?;
    let sizes = Sizes {
        layers: config.num_hidden_layers,
        hidden,
        vocabulary: config.vocab_size,
        context: config.rope.max_position_embeddings.unwrap_or(32768),
        eps: config.rms_norm_eps,
        tied: config.tie_word_embeddings,
        offset: false,
    };
    let decoder = Decoder::load(loader, "", sizes, Style::default(), |loader, _, at, dtype| {
        let attention = AttentionConfig {
            rope: Some(rope.clone()),
            ..AttentionConfig::new(hidden, [heads, config.num_key_value_heads], head_dim, dtype)
        };
        let (path, eps) = (format!("{at}.self_attn"), config.rms_norm_eps);
        let attention = Attention::load(loader, &path, attention, [Bias::No; 2])?
            .with_head_norms(loader, &path, eps, false)?;
        let (path, inner) = (format!("{at}.mlp"), config.intermediate_size);
        let mlp = GatedMlp::load(loader, &path, hidden, inner, false, Activation::Silu)?;
        Block::load(loader, at, [hidden as f64, eps], attention, FeedForward::Dense(Box::new(mlp)))
    })?;
    Ok(Arc::new(decoder))
}
