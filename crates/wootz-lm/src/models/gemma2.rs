//! Gemma 2. As in mlx-lm, every layer of a folder sees all tokens; those of a GGUF file have its windows.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use wootz::{Array, DType, Result as ArrayResult, Tree};

use super::decoder::{Common, Decoder, Layer, Sizes, Style};
use super::{Build, parse};
use crate::cache::{LayerKind, Pass};
use crate::checkpoint::{Bias, Loader};
use crate::layers::{Activation, Attention, AttentionConfig, GatedMlp, Residual, RmsNorm};
use crate::{Error, Result};

#[derive(Debug, Deserialize)]
struct Config {
    #[serde(flatten)]
    common: Common,
    #[serde(default = "scores")]
    attn_logit_softcapping: f64,
    #[serde(default = "logits")]
    final_logit_softcapping: f64,
    #[serde(default = "scalar")]
    query_pre_attn_scalar: f64,
    sliding_window: Option<usize>,
    sliding_window_pattern: Option<usize>,
}

fn scores() -> f64 {
    50.0
}

fn logits() -> f64 {
    30.0
}

fn scalar() -> f64 {
    144.0
}

/// A layer with norms before and behind attention and network.
#[derive(Tree)]
pub(super) struct GemmaLayer {
    self_attn: Attention,
    mlp: GatedMlp,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
    pre_feedforward_layernorm: RmsNorm,
    post_feedforward_layernorm: RmsNorm,
    /// Whether sums stay within what `float16` holds.
    clips: bool,
}

impl GemmaLayer {
    /// With sums that stay within what `float16` holds.
    pub(super) fn clipped(self) -> GemmaLayer {
        GemmaLayer { clips: true, ..self }
    }

    fn add(&self, stream: &mut Residual, x: Array, norm: &RmsNorm) -> ArrayResult<()> {
        match self.clips {
            true => stream.add_normed_clipped(x, norm),
            false => stream.add_normed(x, norm),
        }
    }

    /// Around attention; a GGUF file's norms already have 1 added.
    pub(super) fn load(
        loader: &mut Loader<'_>,
        at: &str,
        [hidden, inner]: [usize; 2],
        eps: f64,
        self_attn: Attention,
    ) -> Result<GemmaLayer> {
        let activation = Activation::GeluTanh;
        let mlp = GatedMlp::load(loader, &format!("{at}.mlp"), hidden, inner, false, activation)?;
        let offset = !loader.is_gguf();
        let mut norm = |name: &str| -> Result<RmsNorm> {
            Ok(loader.norm(&format!("{at}.{name}"), hidden, eps)?.with_offset(offset)?)
        };
        Ok(GemmaLayer {
            self_attn,
            mlp,
            input_layernorm: norm("input_layernorm")?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            pre_feedforward_layernorm: norm("pre_feedforward_layernorm")?,
            post_feedforward_layernorm: norm("post_feedforward_layernorm")?,
            clips: false,
        })
    }
}

impl Layer for GemmaLayer {
    fn kind(&self) -> LayerKind {
        self.self_attn.config().kind()
    }

    fn forward(&self, stream: &mut Residual, pass: &mut Pass, layer: usize) -> ArrayResult<()> {
        let x = stream.norm(&self.input_layernorm)?;
        let y = self.self_attn.forward(&x, pass, layer)?;
        self.add(stream, y, &self.post_attention_layernorm)?;
        let x = stream.norm(&self.pre_feedforward_layernorm)?;
        self.add(stream, self.mlp.forward(&x)?, &self.post_feedforward_layernorm)
    }
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let config: Config = parse(config)?;
    let (hidden, heads, head_dim) =
        (config.common.hidden_size, config.common.num_attention_heads, config.common.head_dim());
    let rope = config.common.rope.unstretched(head_dim, 10000.0, loader.device())?;
    let sizes = Sizes { tied: true, offset: !loader.is_gguf(), ..config.common.sizes(true) };
    let style = Style {
        embedding_scale: Some((hidden as f64).sqrt()),
        logits_divisor: None,
        logits_softcap: Some(config.final_logit_softcapping),
    };
    let window = config.sliding_window.filter(|_| loader.is_gguf());
    let pattern = config.sliding_window_pattern.unwrap_or(2);
    if window.is_some() && pattern == 0 {
        return Err(Error::argument("sliding_window_pattern", "at least 1", 0));
    }
    let layer = |loader: &mut Loader<'_>, number: usize, at: &str, dtype: DType| {
        let attention = AttentionConfig {
            rope: Some(rope.clone()),
            window: window.filter(|_| !(number + 1).is_multiple_of(pattern)),
            scale: 1.0 / config.query_pre_attn_scalar.sqrt(),
            softcap: Some(config.attn_logit_softcapping),
            ..AttentionConfig::new(hidden, [heads, config.common.heads()[1]], head_dim, dtype)
        };
        let path = format!("{at}.self_attn");
        let attention = Attention::load(loader, &path, attention, [Bias::No; 2])?;
        let sizes = [hidden, config.common.intermediate_size];
        GemmaLayer::load(loader, at, sizes, config.common.rms_norm_eps, attention)
    };
    Ok(Arc::new(Decoder::load(loader, "", sizes, style, layer)?))
}
