//! GGUF's metadata of a model, from its configuration and its tokenizer's files.

use serde_json::Value as Json;
use wootz::Array;
use wootz::io::gguf::Value;

use super::model::{Model, llama3_factors};
use super::vocabulary;
use crate::layers::RopeConfig;
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
    let rope = rope(model, architecture);
    put("rope.freq_base", (theta(&rope, architecture) as f32).into());
    let eps = model.float("rms_norm_eps").unwrap_or(1e-6) as f32;
    put("attention.layer_norm_rms_epsilon", eps.into());
    put("attention.key_length", (head_dim as u32).into());
    put("attention.value_length", (head_dim as u32).into());
    put("vocab_size", number("vocab_size")?);
    let part =
        model.float("partial_rotary_factor").filter(|_| architecture == "phi3").unwrap_or(1.0);
    put("rope.dimension_count", ((head_dim as f64 * part) as u32).into());
    scaling(model, &rope, &mut put)?;
    if architecture.starts_with("gemma") || architecture == "phi3" {
        if let Some(window) = model.number("sliding_window") {
            put("attention.sliding_window", (window as u32).into());
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

/// The base of rotation; without one, what the architecture's models take.
fn theta(rope: &RopeConfig, architecture: &str) -> f64 {
    rope.theta(match architecture {
        "qwen2" | "qwen3" | "gemma3" => 1e6,
        _ => 1e4,
    })
}

/// What the configuration says of rotation, as the architecture's models read it.
fn rope(model: &Model<'_>, architecture: &str) -> RopeConfig {
    let of = |key: &str| model.get(key).cloned();
    let rope = RopeConfig {
        rope_theta: model.float("rope_theta"),
        rope_scaling: of("rope_scaling"),
        rope_parameters: of("rope_parameters"),
        ..RopeConfig::default()
    };
    if architecture == "qwen3" { rope.merged() } else { rope }
}

/// Features of a head, as the architecture's models take them.
fn head_dim(model: &Model<'_>, architecture: &str) -> Result<usize> {
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
    if architecture == "gemma3" {
        if model.number("sliding_window_pattern").unwrap_or(6) != 6 {
            return refuse("sliding_window_pattern");
        }
        if model.float("rope_local_base_freq").unwrap_or(1e4) != 1e4 {
            return refuse("rope_local_base_freq");
        }
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

/// How positions are scaled.
fn scaling(model: &Model<'_>, rope: &RopeConfig, put: &mut impl FnMut(&str, Value)) -> Result<()> {
    let Some(scaling) = rope.stretch() else { return Ok(()) };
    let float = |key: &str| scaling.get(key).and_then(Json::as_f64);
    match kind(scaling) {
        // Llama 3's are factors in a tensor.
        None | Some("default" | "llama3") => Ok(()),
        Some(kind @ ("linear" | "yarn")) => {
            put("rope.scaling.type", kind.into());
            put("rope.scaling.factor", (float("factor").unwrap_or(1.0) as f32).into());
            if kind == "linear" {
                return Ok(());
            }
            // Sizes of rotated features are llama.cpp's own.
            let computed = 0.1 * float("factor").unwrap_or(1.0).max(1.0).ln() + 1.0;
            let usual = [("mscale", 1.0), ("mscale_all_dim", 0.0), ("attention_factor", computed)];
            for (key, usual) in usual {
                if let Some(got) = float(key).filter(|got| (got - usual).abs() > 1e-6) {
                    let what = format!("GGUF cannot say that rope_scaling.{key} is {got}");
                    return Err(Error::invalid(model.path(), what));
                }
            }
            let length = float("original_max_position_embeddings").unwrap_or(4096.0);
            put("rope.scaling.original_context_length", (length as u32).into());
            for (key, usual) in [("beta_fast", 32.0), ("beta_slow", 1.0)] {
                if let Some(beta) = float(key).filter(|beta| *beta != usual) {
                    put(&format!("rope.scaling.yarn_{key}"), (beta as f32).into());
                }
            }
            Ok(())
        }
        Some(other) => {
            let what = format!("rope_scaling of type {other:?} is not known to be GGUF's, too");
            Err(Error::invalid(model.path(), what))
        }
    }
}

fn kind(scaling: &Json) -> Option<&str> {
    let word = |key: &str| scaling.get(key).and_then(Json::as_str).filter(|word| !word.is_empty());
    word("type").or_else(|| word("rope_type"))
}

/// The factors of Llama 3's rotation, which GGUF has as a tensor.
pub(super) fn rope_factors(model: &Model<'_>, architecture: &str) -> Result<Option<Array>> {
    let rope = rope(model, architecture);
    let scaling = rope.stretch().filter(|scaling| kind(scaling) == Some("llama3"));
    let Some(scaling) = scaling else { return Ok(None) };
    let float = |key: &str| scaling.get(key).and_then(Json::as_f64);
    let usual = [
        ("low_freq_factor", 1.0),
        ("high_freq_factor", 4.0),
        ("original_max_position_embeddings", 8192.0),
    ];
    if let Some((key, value)) = usual.into_iter().find(|(key, value)| float(key) != Some(*value)) {
        let what = format!("rope_scaling.{key}: expected {value}, got {:?}", float(key));
        return Err(Error::invalid(model.path(), what));
    }
    let (theta, pairs) = (theta(&rope, architecture), head_dim(model, architecture)? / 2);
    let factors = llama3_factors(theta, pairs, float("factor").unwrap_or(1.0));
    let factors: Vec<f32> = factors.into_iter().map(|factor| factor as f32).collect();
    Ok(Some(Array::from_slice_on(&factors, &[factors.len()], &wootz::Device::cpu())?))
}
