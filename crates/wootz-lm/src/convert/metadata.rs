//! GGUF's metadata of a model, from its configuration and its tokenizer's files.

use serde_json::Value as Json;
use wootz::Array;
use wootz::io::gguf::Value;

use super::model::{Model, llama3_factors};
use super::vocabulary;
use crate::{Error, Result};

/// Keys and values, in llama.cpp's order.
pub(super) fn of(
    model: &Model<'_>,
    architecture: &str,
    file_type: u32,
) -> Result<Vec<(String, Value)>> {
    let heads = model.require("num_attention_heads")?;
    let width = model.require("hidden_size")?;
    let head_dim = model.number("head_dim").unwrap_or(width / heads.max(1));
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
    let theta = model.float("rope_theta").or_else(|| rope_parameter(model, "rope_theta"));
    put("rope.freq_base", (theta.unwrap_or(10000.0) as f32).into());
    let eps = model.float("rms_norm_eps").unwrap_or(1e-6) as f32;
    put("attention.layer_norm_rms_epsilon", eps.into());
    put("attention.key_length", (head_dim as u32).into());
    put("attention.value_length", (head_dim as u32).into());
    put("vocab_size", number("vocab_size")?);
    let part = model.float("partial_rotary_factor").unwrap_or(1.0);
    put("rope.dimension_count", ((head_dim as f64 * part) as u32).into());
    scaling(model, &mut put)?;
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

fn rope_parameter(model: &Model<'_>, key: &str) -> Option<f64> {
    model.get("rope_parameters")?.get(key)?.as_f64()
}

/// How positions are scaled.
fn scaling(model: &Model<'_>, put: &mut impl FnMut(&str, Value)) -> Result<()> {
    let Some(scaling) = model.get("rope_scaling").or_else(|| model.get("rope_parameters")) else {
        return Ok(());
    };
    let float = |key: &str| scaling.get(key).and_then(Json::as_f64);
    match kind(scaling) {
        // Llama 3's are factors in a tensor.
        None | Some("default" | "llama3") => Ok(()),
        Some(kind @ ("linear" | "yarn")) => {
            put("rope.scaling.type", kind.into());
            put("rope.scaling.factor", (float("factor").unwrap_or(1.0) as f32).into());
            if let Some(length) = float("original_max_position_embeddings") {
                put("rope.scaling.original_context_length", (length as u32).into());
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
    scaling.get("rope_type").or_else(|| scaling.get("type")).and_then(Json::as_str)
}

/// The factors of Llama 3's rotation, which GGUF has as a tensor.
pub(super) fn rope_factors(model: &Model<'_>) -> Result<Option<Array>> {
    let Some(scaling) = model.get("rope_scaling").filter(|scaling| kind(scaling) == Some("llama3"))
    else {
        return Ok(None);
    };
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
    let heads = model.require("num_attention_heads")?;
    let head_dim = model.number("head_dim").unwrap_or(model.require("hidden_size")? / heads.max(1));
    let theta = model.float("rope_theta").unwrap_or(10000.0);
    let factors = llama3_factors(theta, head_dim / 2, float("factor").unwrap_or(1.0));
    let factors: Vec<f32> = factors.into_iter().map(|factor| factor as f32).collect();
    Ok(Some(Array::from_slice_on(&factors, &[factors.len()], &wootz::Device::cpu())?))
}
