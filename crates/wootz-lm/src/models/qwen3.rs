//! Qwen3.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::decoder::{Block, Common, Decoder, Sizes, Style};
use super::{Build, parse};
use crate::checkpoint::{Bias, Loader};
use crate::layers::{Activation, Attention, AttentionConfig, FeedForward, GatedMlp, RopeConfig};
use crate::{Error, Result};

#[derive(Debug, Deserialize)]
struct Config {
    #[serde(flatten)]
    common: Common,
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let config: Config = parse(config)?;
    let rope = RopeConfig { rope_traditional: false, ..config.common.rope.merged() };
    let Some(theta) = rope.rope_theta else {
        return Err(Error::argument("rope_theta", "a number", "none"));
    };
    let (hidden, heads, head_dim) =
        (config.common.hidden_size, config.common.num_attention_heads, config.common.head_dim());
    let context = rope.context();
    let rope = rope.rope(head_dim, theta, loader.device())?;
    let sizes = Sizes { context, ..config.common.sizes(false) };
    let decoder = Decoder::load(loader, "", sizes, Style::default(), |loader, _, at, dtype| {
        let attention = AttentionConfig {
            rope: Some(rope.clone()),
            ..AttentionConfig::new(hidden, [heads, config.common.heads()[1]], head_dim, dtype)
        };
        let (path, eps) = (format!("{at}.self_attn"), config.common.rms_norm_eps);
        let attention = Attention::load(loader, &path, attention, [Bias::No; 2])?
            .with_head_norms(loader, &path, eps, false)?;
        let (path, inner) = (format!("{at}.mlp"), config.common.intermediate_size);
        let mlp = GatedMlp::load(loader, &path, hidden, inner, false, Activation::Silu)?;
        Block::load(loader, at, [hidden as f64, eps], attention, FeedForward::Dense(Box::new(mlp)))
    })?;
    Ok(Arc::new(decoder))
}
