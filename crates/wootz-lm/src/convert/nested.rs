//! Gemma 3 that sees images, as the model of text within it: GGUF has that in a file of its own.

use serde_json::{Map, Value, json};

use super::model::Model;

/// What mlx-lm takes for what a configuration of Gemma 3 does not say; llama.cpp has other values or none.
fn usual() -> [(&'static str, Value); 8] {
    [
        ("hidden_size", json!(1152)),
        ("num_hidden_layers", json!(26)),
        ("intermediate_size", json!(6912)),
        ("num_attention_heads", json!(4)),
        ("num_key_value_heads", json!(1)),
        ("head_dim", json!(256)),
        ("vocab_size", json!(262144)),
        // Nothing is computed with it, and the family's models are for so many.
        ("max_position_embeddings", json!(131072)),
    ]
}

/// Brings what belongs to text to the outside, and says what the configuration takes for granted.
pub(super) fn flatten(model: &mut Model<'_>) {
    let kind = model.architecture().to_string();
    if kind == "gemma3" {
        let mut text = match model.config.remove("text_config") {
            Some(Value::Object(text)) => text,
            _ => Map::new(),
        };
        let vocabulary = model.config.remove("vocab_size").unwrap_or(json!(262208));
        text.insert("vocab_size".into(), vocabulary);
        text.entry("num_attention_heads").or_insert(json!(8));
        text.entry("num_key_value_heads").or_insert(json!(4));
        model.config.extend(text);
        model.config.insert("model_type".into(), json!("gemma3_text"));
        let tensors = std::mem::take(&mut model.tensors);
        let outer = |name: String| match name.strip_prefix("language_model.") {
            Some(rest) => rest.to_string(),
            None => name,
        };
        model.tensors = tensors.into_iter().map(|(name, tensor)| (outer(name), tensor)).collect();
    }
    if kind.starts_with("gemma3") {
        for (key, value) in usual() {
            model.config.entry(key).or_insert(value);
        }
    }
}
