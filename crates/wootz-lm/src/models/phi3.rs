//! Phi-3 and Phi-4-mini: queries, keys and values in one projection, gate and what it lets through in another.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use wootz::{Result as ArrayResult, RopeScaling, RopeType, Tree, nn, split};

use super::decoder::{Decoder, Layer, Sizes, Style};
use super::{Build, parse};
use crate::cache::{LayerKind, Pass};
use crate::checkpoint::{Loader, truth};
use crate::layers::{AttentionConfig, Linear, Residual, RmsNorm, Rope, RopeConfig};
use crate::{Error, Result};

#[derive(Debug, Deserialize)]
struct Config {
    hidden_size: usize,
    num_hidden_layers: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    rms_norm_eps: f64,
    vocab_size: usize,
    num_key_value_heads: Option<usize>,
    partial_rotary_factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    #[serde(default, deserialize_with = "truth")]
    tie_word_embeddings: bool,
    #[serde(flatten)]
    rope: RopeConfig,
}

#[derive(Tree)]
struct FusedAttention {
    qkv_proj: Linear,
    o_proj: Linear,
    #[wootz(value)]
    config: AttentionConfig,
}

#[derive(Tree)]
struct FusedMlp {
    gate_up_proj: Linear,
    down_proj: Linear,
}

#[derive(Tree)]
struct PhiLayer {
    self_attn: FusedAttention,
    mlp: FusedMlp,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
}

impl Layer for PhiLayer {
    fn kind(&self) -> LayerKind {
        self.self_attn.config.kind()
    }

    fn forward(&self, stream: &mut Residual, pass: &mut Pass, layer: usize) -> ArrayResult<()> {
        let FusedAttention { qkv_proj, o_proj, config } = &self.self_attn;
        let x = stream.norm(&self.input_layernorm)?;
        let queries = config.heads * config.head_dim;
        let places = [queries, queries + config.kv_heads * config.head_dim];
        let parts = split(&qkv_proj.forward(&x)?, places, -1)?;
        let [q, k, v] = &parts[..] else {
            return Err(wootz::Error::argument("phi3", "qkv_proj", "three parts", parts.len()));
        };
        let y = config.attend([q, k, v], [None; 2], None, pass, layer)?;
        stream.add(o_proj.forward(&y)?)?;
        let x = stream.norm(&self.post_attention_layernorm)?;
        let halves = split(&self.mlp.gate_up_proj.forward(&x)?, 2, -1)?;
        stream.add(self.mlp.down_proj.forward(&nn::swiglu(&halves[0], &halves[1])?)?)
    }
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let mut config: Config = parse(config)?;
    let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
    let kv_heads = config.num_key_value_heads.unwrap_or(heads);
    let (head_dim, eps) = (hidden / heads.max(1), config.rms_norm_eps);
    let nested = || config.rope.newer()?.get("partial_rotary_factor")?.as_f64();
    let part = config.partial_rotary_factor.or_else(nested).unwrap_or(1.0);
    let dims = (head_dim as f64 * part) as usize;
    let context = config.rope.max_position_embeddings;
    config.rope.max_position_embeddings.get_or_insert(131072);
    let rope = match of_tensors(&config, loader, dims)? {
        Some(rope) => rope,
        None => {
            config.rope = RopeConfig {
                rope_theta: Some(config.rope.theta(10000.0)),
                rope_scaling: scaling(&config)?,
                rope_parameters: None,
                ..config.rope
            };
            config.rope.rope(dims, 10000.0, loader.device())?
        }
    };
    let sizes = Sizes {
        layers: config.num_hidden_layers,
        hidden,
        vocabulary: config.vocab_size,
        context,
        eps,
        tied: config.tie_word_embeddings,
        offset: false,
    };
    let decoder = Decoder::load(loader, "", sizes, Style::default(), |loader, _, at, dtype| {
        let attention = AttentionConfig {
            rope: Some(rope.clone()),
            ..AttentionConfig::new(hidden, [heads, kv_heads], head_dim, dtype)
        };
        let (wide, inner) = ((heads + 2 * kv_heads) * head_dim, config.intermediate_size);
        let mut linear = |name: &str, inputs: usize, outputs: usize| {
            loader.linear(&format!("{at}.{name}"), inputs, outputs, false)
        };
        Ok(PhiLayer {
            self_attn: FusedAttention {
                qkv_proj: linear("self_attn.qkv_proj", hidden, wide)?,
                o_proj: linear("self_attn.o_proj", heads * head_dim, hidden)?,
                config: attention,
            },
            mlp: FusedMlp {
                gate_up_proj: linear("mlp.gate_up_proj", hidden, 2 * inner)?,
                down_proj: linear("mlp.down_proj", inner, hidden)?,
            },
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

/// Rotation by the factors that a GGUF file has as tensors: the long ones if the model was made for more tokens
/// than it first was, else the short ones. So does llama.cpp for a context as long as the model's own; that
/// of a session grows, and all of its keys have to be rotated alike.
fn of_tensors(config: &Config, loader: &mut Loader<'_>, dims: usize) -> Result<Option<Rope>> {
    let mut factors = |name: &str| -> Result<Option<Vec<f64>>> {
        let Some(found) = loader.optional(name, &[dims / 2])? else { return Ok(None) };
        Ok(Some(found.to_vec::<f32>()?.into_iter().map(f64::from).collect()))
    };
    let long = factors("rope_factors_long.weight")?;
    let short = factors("rope_factors_short.weight")?;
    let Some(long) = long else { return Ok(None) };
    let (positions, original) =
        (config.rope.max_position_embeddings.unwrap_or(0), original(config));
    let mut scaling = RopeScaling::new(RopeType::Longrope);
    scaling.original_max_position_embeddings = Some(original as usize);
    let given = config.rope.rope_scaling.as_ref();
    scaling.attention_factor = given.and_then(|given| given.get("attention_factor")?.as_f64());
    scaling.long_factor = match short {
        Some(short) if positions as u64 <= original => short,
        _ => long,
    };
    let theta = config.rope.theta(10000.0);
    Ok(Some(Rope::new(dims, theta, false, &scaling, positions, loader.device())?))
}

/// Tokens that the model was made for at first.
fn original(config: &Config) -> u64 {
    let nested = || config.rope.newer()?.get("original_max_position_embeddings")?.as_u64();
    let original = config.original_max_position_embeddings.map(|length| length as u64);
    original.or_else(nested).unwrap_or(4096)
}

/// `rope_scaling`, with what is written elsewhere.
fn scaling(config: &Config) -> Result<Option<Value>> {
    let (newer, original) = (config.rope.newer(), original(config));
    let given = config.rope.rope_scaling.as_ref().filter(|given| !given.is_null());
    let Some(Value::Object(given)) = given.or(newer) else { return Ok(None) };
    let kind = given.get("type").or_else(|| given.get("rope_type")).and_then(Value::as_str);
    let mut given = given.clone();
    match kind {
        Some("longrope" | "su") => {
            given.insert("original_max_position_embeddings".to_string(), json!(original));
            Ok(Some(Value::Object(given)))
        }
        Some("linear" | "default") => Ok(Some(Value::Object(given))),
        // As in mlx-lm, which does not stretch by other ways that come with these factors.
        Some(_) if given.contains_key("type") && given.contains_key("long_factor") => Ok(None),
        None if given.is_empty() || newer.is_some() => Ok(None),
        other => {
            let expected = "longrope, su or linear";
            Err(Error::argument("rope_scaling.type", expected, format!("{other:?}")))
        }
    }
}
