//! Llama, and what is built like it: mistral, smollm, smollm3.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use wootz::DType;

use super::decoder::{Block, Common, Decoder, Style};
use super::{Build, parse};
use crate::checkpoint::{Bias, Loader, truth};
use crate::layers::{Activation, Attention, AttentionConfig, FeedForward, GatedMlp, Rope};
use crate::{Error, Result};

/// The configuration.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Config {
    #[serde(flatten)]
    pub(super) common: Common,
    #[serde(default, deserialize_with = "truth")]
    attention_bias: bool,
    #[serde(default, deserialize_with = "truth")]
    mlp_bias: bool,
    layer_types: Option<Vec<String>>,
    sliding_window: Option<usize>,
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let config: Config = parse(config)?;
    load_with(&config, loader, |_| true)
}

/// With rotary positions in the layers that `rotated` says.
pub(super) fn load_with(
    config: &Config,
    loader: &mut Loader<'_>,
    rotated: impl Fn(usize) -> bool,
) -> Result<Arc<dyn Build>> {
    let head_dim = config.common.head_dim();
    let mut rope = config.common.rope.rope(head_dim, 10000.0, loader.device())?;
    if let Some(factors) = loader.optional("rope_freqs.weight", &[head_dim / 2])? {
        rope = rope.stretched(&factors)?;
    }
    let mut sizes = config.common.sizes(true);
    // As in mlx-lm, there are as many layers as have types.
    if let Some(types) = &config.layer_types {
        if types.is_empty() {
            return Err(Error::argument("layer_types", "at least one", "none"));
        }
        sizes.layers = types.len();
    }
    let decoder =
        Decoder::load(loader, "", sizes, Style::default(), |loader, number, at, dtype| {
            let rope = rotated(number).then(|| rope.clone());
            layer(config, loader, [head_dim, number], at, rope, dtype)
        })?;
    Ok(Arc::new(decoder))
}

fn layer(
    config: &Config,
    loader: &mut Loader<'_>,
    [head_dim, number]: [usize; 2],
    at: &str,
    rope: Option<Rope>,
    dtype: DType,
) -> Result<Block> {
    let (hidden, heads) = (config.common.hidden_size, config.common.num_attention_heads);
    let kv_heads = config.common.heads()[1];
    let kind = config.layer_types.as_ref().and_then(|types| types.get(number));
    let window = match kind.is_some_and(|kind| kind == "sliding_attention") {
        true => {
            let missing = || Error::argument("sliding_window", "a number", "none");
            Some(config.sliding_window.ok_or_else(missing)?)
        }
        false => None,
    };
    let attention = AttentionConfig {
        rope,
        window,
        ..AttentionConfig::new(hidden, [heads, kv_heads], head_dim, dtype)
    };
    let biased: Bias =
        if loader.is_gguf() { Bias::IfPresent } else { config.attention_bias.into() };
    let of_mlp: Bias = if loader.is_gguf() { Bias::IfPresent } else { config.mlp_bias.into() };
    let path = format!("{at}.self_attn");
    let attention = Attention::load(loader, &path, attention, [biased, biased])?;
    let (path, inner) = (format!("{at}.mlp"), config.common.intermediate_size);
    let mlp = GatedMlp::load(loader, &path, hidden, inner, of_mlp, Activation::Silu)?;
    let sizes = [hidden as f64, config.common.rms_norm_eps];
    Block::load(loader, at, sizes, attention, FeedForward::Dense(Box::new(mlp)))
}
