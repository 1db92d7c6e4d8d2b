//! Qwen2 and Qwen2.5.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::decoder::{Block, Common, Decoder, Style};
use super::{Build, parse};
use crate::Result;
use crate::checkpoint::{Bias, Loader};
use crate::layers::{Activation, Attention, AttentionConfig, FeedForward, GatedMlp};

#[derive(Debug, Deserialize)]
struct Config {
    #[serde(flatten)]
    common: Common,
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let mut config: Config = parse(config)?;
    let (hidden, heads) = (config.common.hidden_size, config.common.num_attention_heads);
    let head_dim = hidden / heads.max(1);
    let sizes = config.common.sizes(true);
    config.common.rope.max_position_embeddings.get_or_insert(32768);
    let rope = config.common.rope.rope(head_dim, 1e6, loader.device())?;
    let decoder = Decoder::load(loader, "", sizes, Style::default(), |loader, _, at, dtype| {
        let attention = AttentionConfig {
            rope: Some(rope.clone()),
            ..AttentionConfig::new(hidden, [heads, config.common.heads()[1]], head_dim, dtype)
        };
        let path = format!("{at}.self_attn");
        let attention = Attention::load(loader, &path, attention, [Bias::Yes, Bias::No])?;
        let (path, inner) = (format!("{at}.mlp"), config.common.intermediate_size);
        let mlp = GatedMlp::load(loader, &path, hidden, inner, false, Activation::Silu)?;
        let sizes = [hidden as f64, config.common.rms_norm_eps];
        Block::load(loader, at, sizes, attention, FeedForward::Dense(Box::new(mlp)))
    })?;
    Ok(Arc::new(decoder))
}
