//! Qwen3.5, dense and with experts: as Qwen3-Next, with projections of linear attention apart.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use wootz::split;

use super::decoder::Nested;
use super::qwen3_next::{self, OFFSET_NORMS};
use super::{Build, parse};
use crate::checkpoint::Loader;
use crate::{Error, Result};

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let text = config.get("text_config").unwrap_or(config);
    let Value::Object(text) = text else {
        return Err(Error::argument("text_config", "an object", text));
    };
    let config: qwen3_next::Config = parse(&completed(text.clone()))?;
    adopt(loader, config.common.num_hidden_layers)?;
    let language_model = qwen3_next::decoder(&config, loader, "language_model.", false)?;
    Ok(Arc::new(Nested { language_model }))
}

/// With mlx-lm's values for what is not given.
fn completed(mut text: Map<String, Value>) -> Value {
    // Older keys count only beside `rope_parameters` that are there and empty.
    let rope = text.remove("rope_parameters").unwrap_or_else(|| json!({ "type": "default" }));
    if rope.as_object().is_some_and(|fields| !fields.is_empty()) {
        for key in ["partial_rotary_factor", "rope_theta"] {
            text.insert(key.to_string(), rope.get(key).cloned().unwrap_or_default());
        }
        text.insert("rope_scaling".to_string(), rope);
    }
    let number = |text: &Map<String, Value>, key: &str, usual: u64| {
        text.get(key).and_then(Value::as_u64).unwrap_or(usual)
    };
    let (hidden, heads) =
        (number(&text, "hidden_size", 4096), number(&text, "num_attention_heads", 32));
    let usual = [
        ("hidden_size", json!(4096)),
        ("intermediate_size", json!(14336)),
        ("num_hidden_layers", json!(32)),
        ("num_attention_heads", json!(32)),
        ("rms_norm_eps", json!(1e-6)),
        ("vocab_size", json!(151936)),
        ("num_key_value_heads", json!(8)),
        ("max_position_embeddings", json!(131072)),
        ("linear_num_value_heads", json!(64)),
        ("linear_num_key_heads", json!(16)),
        ("linear_key_head_dim", json!(192)),
        ("linear_value_head_dim", json!(128)),
        ("linear_conv_kernel_dim", json!(4)),
        ("head_dim", json!(hidden / heads.max(1))),
        ("num_experts", json!(0)),
        ("num_experts_per_tok", json!(0)),
        ("shared_expert_intermediate_size", json!(0)),
        ("moe_intermediate_size", json!(0)),
        ("norm_topk_prob", json!(true)),
        ("partial_rotary_factor", json!(0.25)),
        ("rope_theta", json!(100000.0)),
    ];
    for (key, value) in usual {
        let place = text.entry(key).or_insert(Value::Null);
        if place.is_null() {
            *place = value;
        }
    }
    // Every layer has experts if there are any.
    text.insert("decoder_sparse_step".to_string(), json!(1));
    text.insert("mlp_only_layers".to_string(), json!([]));
    Value::Object(text)
}

/// Makes the names and tensors of other layouts MLX's.
fn adopt(loader: &mut Loader<'_>, layers: usize) -> Result<()> {
    loader.remove(|name| name.starts_with("vision_tower") || name.starts_with("model.visual"));
    loader.remove(|name| name.contains("mtp."));
    loader.rename(|name| {
        if let Some(rest) = name.strip_prefix("model.language_model") {
            return Some(format!("language_model.model{rest}"));
        }
        (!name.starts_with("language_model.")).then(|| format!("language_model.{name}"))
    });
    loader.expect_layers("language_model.model.layers.", layers)?;
    for layer in 0..layers {
        let path = format!("language_model.model.layers.{layer}.mlp");
        let Some(both) = loader.take(&format!("{path}.experts.gate_up_proj"))? else { continue };
        let halves = split(&both, 2, -2)?;
        for (name, half) in ["gate_proj", "up_proj"].iter().zip(halves) {
            loader.insert(&format!("{path}.switch_mlp.{name}.weight"), half.contiguous()?);
        }
        if let Some(down) = loader.take(&format!("{path}.experts.down_proj"))? {
            loader.insert(&format!("{path}.switch_mlp.down_proj.weight"), down);
        }
    }
    if loader.move_channels()? {
        loader.add_one(&OFFSET_NORMS)?;
    }
    Ok(())
}
