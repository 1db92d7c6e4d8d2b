//! OLMo 2: norms behind attention and network instead of before them, and norms of all queries and keys.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use wootz::{Result as ArrayResult, Tree};

use super::decoder::{Common, Decoder, Layer, Style};
use super::{Build, parse};
use crate::Result;
use crate::cache::{LayerKind, Pass};
use crate::checkpoint::{Loader, truth};
use crate::layers::{Activation, Attention, AttentionConfig, GatedMlp, Residual, RmsNorm};

#[derive(Debug, Deserialize)]
struct Config {
    #[serde(flatten)]
    common: Common,
    #[serde(default, deserialize_with = "truth")]
    attention_bias: bool,
    #[serde(default, deserialize_with = "truth")]
    mlp_bias: bool,
}

#[derive(Tree)]
struct OlmoLayer {
    self_attn: Attention,
    mlp: GatedMlp,
    post_attention_layernorm: RmsNorm,
    post_feedforward_layernorm: RmsNorm,
}

impl Layer for OlmoLayer {
    fn kind(&self) -> LayerKind {
        self.self_attn.config().kind()
    }

    fn dynamic_from(&self) -> Option<usize> {
        self.self_attn.config().dynamic_from()
    }

    fn forward(&self, stream: &mut Residual, pass: &mut Pass, layer: usize) -> ArrayResult<()> {
        let y = self.self_attn.forward(&stream.value()?, pass, layer)?;
        stream.add_normed(y, &self.post_attention_layernorm)?;
        let y = self.mlp.forward(&stream.value()?)?;
        stream.add_normed(y, &self.post_feedforward_layernorm)
    }
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let config: Config = parse(config)?;
    let (hidden, heads) = (config.common.hidden_size, config.common.num_attention_heads);
    let kv_heads = config.common.heads()[1];
    let head_dim = config.common.head_dim();
    let eps = config.common.rms_norm_eps;
    let rope = config.common.rope.rope(head_dim, 10000.0, loader.device())?;
    let sizes = config.common.sizes(true);
    let decoder = Decoder::load(loader, "", sizes, Style::default(), |loader, _, at, dtype| {
        let attention = AttentionConfig {
            rope: Some(rope.clone()),
            ..AttentionConfig::new(hidden, [heads, kv_heads], head_dim, dtype)
        };
        let path = format!("{at}.self_attn");
        let bias = [config.attention_bias.into(); 2];
        let self_attn = Attention {
            q_norm: Some(loader.norm(&format!("{path}.q_norm"), heads * head_dim, eps)?),
            k_norm: Some(loader.norm(&format!("{path}.k_norm"), kv_heads * head_dim, eps)?),
            ..Attention::load(loader, &path, attention, bias)?
        };
        let (path, inner, bias) =
            (format!("{at}.mlp"), config.common.intermediate_size, config.mlp_bias);
        let mlp = GatedMlp::load(loader, &path, hidden, inner, bias, Activation::Silu)?;
        let mut norm = |name: &str| loader.norm(&format!("{at}.{name}"), hidden, eps);
        Ok(OlmoLayer {
            self_attn,
            mlp,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            post_feedforward_layernorm: norm("post_feedforward_layernorm")?,
        })
    })?;
    Ok(Arc::new(decoder))
}
