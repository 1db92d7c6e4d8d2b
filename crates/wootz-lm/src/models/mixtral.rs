//! Mixtral.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use wootz::{Result as ArrayResult, Tree};

use super::decoder::{Decoder, Layer, Sizes, Style};
use super::{Build, parse};
use crate::Result;
use crate::cache::{LayerKind, Pass};
use crate::checkpoint::{Bias, Loader, truth};
use crate::layers::{
    Attention, AttentionConfig, MoeConfig, Residual, RmsNorm, RopeConfig, SparseMoe,
};

#[derive(Debug, Deserialize)]
#[serde(default)]
struct Config {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_experts_per_tok: usize,
    num_key_value_heads: Option<usize>,
    num_local_experts: usize,
    rms_norm_eps: f64,
    #[serde(deserialize_with = "truth")]
    tie_word_embeddings: bool,
    #[serde(flatten)]
    rope: RopeConfig,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            vocab_size: 32000,
            hidden_size: 4096,
            intermediate_size: 14336,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_experts_per_tok: 2,
            num_key_value_heads: Some(8),
            num_local_experts: 8,
            rms_norm_eps: 1e-5,
            tie_word_embeddings: false,
            rope: RopeConfig::default(),
        }
    }
}

#[derive(Tree)]
struct MixtralLayer {
    self_attn: Attention,
    block_sparse_moe: SparseMoe,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
}

impl Layer for MixtralLayer {
    fn kind(&self) -> LayerKind {
        self.self_attn.config().kind()
    }

    fn forward(&self, stream: &mut Residual, pass: &mut Pass, layer: usize) -> ArrayResult<()> {
        let x = stream.norm(&self.input_layernorm)?;
        stream.add(self.self_attn.forward(&x, pass, layer)?)?;
        let x = stream.norm(&self.post_attention_layernorm)?;
        stream.add(self.block_sparse_moe.forward(&x)?)
    }
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let config: Config = parse(config)?;
    let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
    let kv_heads = config.num_key_value_heads.unwrap_or(heads);
    let (head_dim, eps) = (hidden / heads.max(1), config.rms_norm_eps);
    // As in mlx-lm, positions are not stretched.
    let rope = config.rope.unstretched(head_dim, 1e6, loader.device())?;
    let sizes = Sizes {
        layers: config.num_hidden_layers,
        hidden,
        vocabulary: config.vocab_size,
        context: config.rope.max_position_embeddings,
        eps,
        tied: config.tie_word_embeddings,
        offset: false,
    };
    let (experts, k) = (config.num_local_experts, config.num_experts_per_tok);
    let moe = MoeConfig { experts, k, chosen_only: true, renormalise: false, first_wins: true };
    let decoder = Decoder::load(loader, "", sizes, Style::default(), |loader, _, at, dtype| {
        let attention = AttentionConfig {
            rope: Some(rope.clone()),
            ..AttentionConfig::new(hidden, [heads, kv_heads], head_dim, dtype)
        };
        let path = format!("{at}.self_attn");
        let self_attn = Attention::load(loader, &path, attention, [Bias::No; 2])?;
        let path = format!("{at}.block_sparse_moe");
        let names = [("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")];
        loader.join_experts(&path, experts, &names)?;
        let sizes = [hidden, config.intermediate_size, 0];
        Ok(MixtralLayer {
            self_attn,
            block_sparse_moe: SparseMoe::load(loader, &path, moe, sizes)?,
            input_layernorm: loader.norm(&format!("{at}.input_layernorm"), hidden, eps)?,
            post_attention_layernorm: loader.norm(
                &format!("{at}.post_attention_layernorm"),
                hidden,
                eps,
            )?,
        })
    })?;
    Ok(Arc::new(decoder))
}
