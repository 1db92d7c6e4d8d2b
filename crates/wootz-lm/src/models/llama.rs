//! Llama, and what is built like it: mistral, smollm, smollm3.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use wootz::DType;

use super::decoder::{Block, Decoder, Sizes, Style};
use super::{Build, parse};
use crate::checkpoint::{Bias, Loader};
use crate::layers::{
    Activation, Attention, AttentionConfig, FeedForward, GatedMlp, Rope, RopeConfig,
};
use crate::{Error, Result};

/// The configuration.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Config {
    hidden_size: usize,
    pub(super) num_hidden_layers: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    rms_norm_eps: f64,
    vocab_size: usize,
    head_dim: Option<usize>,
    num_key_value_heads: Option<usize>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    layer_types: Option<Vec<String>>,
    sliding_window: Option<usize>,
    #[serde(flatten)]
    rope: RopeConfig,
}

fn yes() -> bool {
    true
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
    let heads = config.num_attention_heads;
    let head_dim = config.head_dim.unwrap_or(config.hidden_size / heads.max(1));
    let mut rope = config.rope.rope(head_dim, 10000.0, loader.device())?;
    if let Some(factors) = loader.optional("rope_freqs.weight", &[head_dim / 2])? {
        rope = rope.stretched(&factors)?;
    }
    let sizes = Sizes {
        layers: config.num_hidden_layers,
        hidden: config.hidden_size,
        vocabulary: config.vocab_size,
        context: config.rope.max_position_embeddings.unwrap_or(2048),
        eps: config.rms_norm_eps,
        tied: config.tie_word_embeddings,
        offset: false,
    };
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
    let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
    let kv_heads = config.num_key_value_heads.unwrap_or(heads);
    let window = match config.layer_types.as_ref().map(|types| types.get(number)) {
        None => None,
        Some(Some(kind)) if kind == "full_attention" => None,
        Some(Some(kind)) if kind == "sliding_attention" => {
            let missing = || Error::argument("sliding_window", "a number", "none");
            Some(config.sliding_window.ok_or_else(missing)?)
        }
        Some(other) => {
            let expected = "full_attention or sliding_attention for each layer";
            return Err(Error::argument("layer_types", expected, format!("{other:?}")));
        }
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
    let (path, inner) = (format!("{at}.mlp"), config.intermediate_size);
    let mlp = GatedMlp::load(loader, &path, hidden, inner, of_mlp, Activation::Silu)?;
    let sizes = [hidden as f64, config.rms_norm_eps];
    Block::load(loader, at, sizes, attention, FeedForward::Dense(Box::new(mlp)))
}
