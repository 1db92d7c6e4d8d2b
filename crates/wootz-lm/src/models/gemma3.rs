//! Gemma 3: text, also within a model that sees images.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use wootz::{Array, DType};

use super::decoder::{Decoder, Nested, Sizes, Style};
use super::gemma2::GemmaLayer;
use super::{Build, parse};
use crate::checkpoint::{Bias, Loader};
use crate::layers::{Attention, AttentionConfig, RopeConfig};
use crate::{Error, Result};

#[derive(Debug, Deserialize)]
#[serde(default)]
struct Config {
    hidden_size: usize,
    num_hidden_layers: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    head_dim: usize,
    rms_norm_eps: f64,
    vocab_size: usize,
    num_key_value_heads: usize,
    rope_local_base_freq: f64,
    query_pre_attn_scalar: f64,
    sliding_window: usize,
    sliding_window_pattern: usize,
    final_logit_softcapping: Option<f64>,
    #[serde(flatten)]
    rope: RopeConfig,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            hidden_size: 1152,
            num_hidden_layers: 26,
            intermediate_size: 6912,
            num_attention_heads: 4,
            head_dim: 256,
            rms_norm_eps: 1e-6,
            vocab_size: 262144,
            num_key_value_heads: 1,
            rope_local_base_freq: 10000.0,
            query_pre_attn_scalar: 256.0,
            sliding_window: 512,
            sliding_window_pattern: 6,
            final_logit_softcapping: None,
            rope: RopeConfig::default(),
        }
    }
}

/// The text part of a model that also sees images.
pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let mut text = config.get("text_config").cloned().unwrap_or_else(|| json!({}));
    let Some(fields) = text.as_object_mut() else {
        return Err(Error::argument("text_config", "an object", text));
    };
    let vocabulary = config.get("vocab_size").cloned().unwrap_or(json!(262208));
    fields.insert("vocab_size".to_string(), vocabulary);
    fields.entry("num_attention_heads").or_insert(json!(8));
    fields.entry("num_key_value_heads").or_insert(json!(4));
    loader.rename(|name| {
        let rest = name.strip_prefix("model.language_model.")?;
        Some(format!("language_model.model.{rest}"))
    });
    let other = ["vision_tower.", "multi_modal_projector.", "model.vision_tower."];
    loader.remove(|name| other.iter().any(|part| name.starts_with(part)));
    loader.remove(|name| name.starts_with("model.multi_modal_projector."));
    let language_model = decoder(&parse(&text)?, loader, "language_model.")?;
    Ok(Arc::new(Nested { language_model }))
}

pub(super) fn load_text(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    Ok(Arc::new(decoder(&parse(config)?, loader, "")?))
}

fn decoder(config: &Config, loader: &mut Loader<'_>, path: &str) -> Result<Decoder<GemmaLayer>> {
    let (hidden, heads, head_dim) =
        (config.hidden_size, config.num_attention_heads, config.head_dim);
    if config.sliding_window_pattern == 0 {
        return Err(Error::argument("sliding_window_pattern", "at least 1", 0));
    }
    let local = RopeConfig { rope_theta: Some(config.rope_local_base_freq), ..Default::default() };
    let local = local.rope(head_dim, config.rope_local_base_freq, loader.device())?;
    let mut neighbours = RopeConfig { rope_traditional: false, ..config.rope.clone() };
    neighbours.max_position_embeddings.get_or_insert(32768);
    let global = neighbours.rope(head_dim, 1e6, loader.device())?;
    let sizes = Sizes {
        layers: config.num_hidden_layers,
        hidden,
        vocabulary: config.vocab_size,
        context: config.rope.max_position_embeddings,
        eps: config.rms_norm_eps,
        tied: !loader.contains(&format!("{path}lm_head.weight")),
        offset: !loader.is_gguf(),
    };
    // In single precision too, embeddings are multiplied with a rounded number.
    let rounded = Array::scalar((hidden as f64).sqrt(), DType::BF16)?.astype(DType::F32)?;
    let scale = f64::from(rounded.item::<f32>()?);
    // mlx-lm's model has no cap, whatever a folder says; that of a GGUF file is obeyed.
    let cap = config.final_logit_softcapping.filter(|&cap| loader.is_gguf() && cap != 0.0);
    let style = Style { embedding_scale: Some(scale), logits_softcap: cap, ..Style::default() };
    let layer = |loader: &mut Loader<'_>, number: usize, at: &str, dtype: DType| {
        let is_global = (number + 1).is_multiple_of(config.sliding_window_pattern);
        let attention = AttentionConfig {
            rope: Some(if is_global { global.clone() } else { local.clone() }),
            window: (!is_global).then_some(config.sliding_window),
            scale: 1.0 / config.query_pre_attn_scalar.sqrt(),
            ..AttentionConfig::new(hidden, [heads, config.num_key_value_heads], head_dim, dtype)
        };
        let (at_attention, eps) = (format!("{at}.self_attn"), config.rms_norm_eps);
        let offset = !loader.is_gguf();
        let attention = Attention::load(loader, &at_attention, attention, [Bias::No; 2])?
            .with_head_norms(loader, &at_attention, eps, offset)?;
        let sizes = [hidden, config.intermediate_size];
        Ok(GemmaLayer::load(loader, at, sizes, eps, attention)?.clipped())
    };
    Decoder::load(loader, path, sizes, style, layer)
}
