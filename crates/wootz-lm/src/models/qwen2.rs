//! Qwen2 and Qwen2.5.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::decoder::{Block, Decoder, Sizes, Style};
use super::{Build, parse};
use crate::Result;
use crate::checkpoint::{Bias, Loader};
use crate::layers::{Activation, Attention, AttentionConfig, FeedForward, GatedMlp, RopeConfig};

#[derive(Debug, Deserialize)]
struct Config {
    hidden_size: usize,
    num_hidden_layers: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    rms_norm_eps: f64,
    vocab_size: usize,
    num_key_value_heads: usize,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    #[serde(flatten)]
    rope: RopeConfig,
}

fn yes() -> bool {
    true
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let mut config: Config = parse(config)?;
    config.rope.max_position_embeddings.get_or_insert(32768);
    let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
    let head_dim = hidden / heads.max(1);
    let rope = config.rope.rope(head_dim, 1e6, loader.device())?;
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
        let path = format!("{at}.self_attn");
        let attention = Attention::load(loader, &path, attention, [Bias::Yes, Bias::No])?;
        let (path, inner) = (format!("{at}.mlp"), config.intermediate_size);
        let mlp = GatedMlp::load(loader, &path, hidden, inner, false, Activation::Silu)?;
        let sizes = [hidden as f64, config.rms_norm_eps];
        Block::load(loader, at, sizes, attention, FeedForward::Dense(Box::new(mlp)))
    })?;
    Ok(Arc::new(decoder))
}
