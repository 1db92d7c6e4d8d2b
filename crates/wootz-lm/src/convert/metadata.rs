//! GGUF's metadata of a model, from its configuration and its tokenizer's files.

use serde_json::Value as Json;
use wootz::io::gguf::Value;

use super::model::Model;
use super::{rotation, vocabulary};
use crate::{Error, Result};

/// Keys and values, in llama.cpp's order.
pub(super) fn of(
    model: &Model<'_>,
    architecture: &str,
    file_type: u32,
) -> Result<Vec<(String, Value)>> {
    expect_expressible(model, architecture)?;
    let heads = model.require("num_attention_heads")?;
    let head_dim = head_dim(model, architecture)?;
    let mut all: Vec<(String, Value)> = vec![
        ("general.architecture".into(), architecture.into()),
        ("general.type".into(), "model".into()),
        ("general.name".into(), name(model).into()),
        ("general.file_type".into(), file_type.into()),
        ("general.quantization_version".into(), 2u32.into()),
    ];
    let mut put = |key: &str, value: Value| all.push((format!("{architecture}.{key}"), value));
    let number = |key: &str| Ok::<_, Error>(Value::U32(model.require(key)? as u32));
    put("block_count", number("num_hidden_layers")?);
    put("context_length", number("max_position_embeddings")?);
    put("embedding_length", number("hidden_size")?);
    put("feed_forward_length", number("intermediate_size")?);
    put("attention.head_count", number("num_attention_heads")?);
    let key_heads = model.number("num_key_value_heads").unwrap_or(heads);
    put("attention.head_count_kv", (key_heads as u32).into());
    let rope = rotation::rope(model, architecture);
    put("rope.freq_base", (rotation::theta(&rope, architecture) as f32).into());
    let eps = model.float("rms_norm_eps").unwrap_or(1e-6) as f32;
    put("attention.layer_norm_rms_epsilon", eps.into());
    put("attention.key_length", (head_dim as u32).into());
    put("attention.value_length", (head_dim as u32).into());
    put("vocab_size", number("vocab_size")?);
    let dims = rotation::dims(model, architecture, head_dim);
    put("rope.dimension_count", (dims as u32).into());
    rotation::keys(model, architecture, &mut put)?;
    if architecture == "gemma3" {
        let local = model.float("rope_local_base_freq").unwrap_or(10000.0);
        put("rope.freq_base_swa", (local as f32).into());
    }
    if architecture.starts_with("gemma") || architecture == "phi3" {
        // Without one, what those who read it take, and mlx-lm.
        let (usual, pattern) = match architecture {
            "gemma2" => (Some(4096), 2),
            "gemma3" => (Some(512), 6),
            _ => (None, 1),
        };
        let pattern = match model.number("sliding_window_pattern") {
            Some(given) if architecture == "gemma3" => given,
            _ => pattern,
        };
        // Where all layers see all tokens, Gemma 3 has no window.
        let all = architecture == "gemma3" && pattern == 1;
        if let Some(window) = model.number("sliding_window").or(usual).filter(|_| !all) {
            put("attention.sliding_window", (window as u32).into());
            if architecture == "gemma3" {
                put("attention.sliding_window_pattern", (pattern as u32).into());
            }
        }
        for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
            if let Some(cap) = model.float(key) {
                put(key, (cap as f32).into());
            }
        }
    }
    all.extend(vocabulary::of(model.path(), model.require("vocab_size")?)?);
    Ok(all)
}

/// The model's name: that of its folder.
fn name(model: &Model<'_>) -> String {
    let path = model.path().canonicalize().unwrap_or_else(|_| model.path().to_path_buf());
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_else(|| "model".into())
}

/// Features of a head, as the architecture's models take them.
pub(super) fn head_dim(model: &Model<'_>, architecture: &str) -> Result<usize> {
    let divided =
        || Ok(model.require("hidden_size")? / model.require("num_attention_heads")?.max(1));
    match (architecture, model.number("head_dim")) {
        ("qwen2" | "phi3", _) => divided(),
        (_, Some(given)) => Ok(given),
        ("gemma3", None) => Ok(256),
        (_, None) => divided(),
    }
}

/// An error if a model does what GGUF has no key for, or what those who read it take for granted to be otherwise.
fn expect_expressible(model: &Model<'_>, architecture: &str) -> Result<()> {
    let refuse = |key: &str| {
        let got = model.get(key).map_or("none".to_string(), Json::to_string);
        Err(Error::invalid(model.path(), format!("GGUF cannot say that {key} is {got}")))
    };
    let slides = |kind: &Json| kind.as_str() != Some("full_attention");
    let kinds = model.get("layer_types").and_then(Json::as_array);
    let is_gemma = architecture.starts_with("gemma");
    if !is_gemma && kinds.is_some_and(|kinds| kinds.iter().any(slides)) {
        return refuse("layer_types");
    }
    if model.get("rope_traditional") == Some(&Json::Bool(true)) {
        return refuse("rope_traditional");
    }
    if is_gemma {
        let (layers, dims) = (model.require("num_hidden_layers")?, head_dim(model, architecture)?);
        let [largest, usual] = if architecture == "gemma2" { [46, 144] } else { [62, 256] };
        let divided = model.require("hidden_size")? / model.require("num_attention_heads")?.max(1);
        let assumed = if layers == largest { divided } else { dims };
        if model.float("query_pre_attn_scalar").unwrap_or(usual as f64) != assumed as f64 {
            return refuse("query_pre_attn_scalar");
        }
    }
    Ok(())
}
