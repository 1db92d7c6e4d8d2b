//! GGUF's names and metadata as MLX has them.
//!
//! Weights stay as they lie. Those of `llama` are permuted for rotation of neighbours, which the
//! configuration says as `rope_traditional`; gemma's norms already have 1 added. Gemma 2 slides as
//! in llama.cpp, although mlx-lm's sees all tokens.

use serde_json::{Map, Value, json};
use wootz::io::gguf::{Gguf, Value as Metadata};

/// The architectures that are read from GGUF, by its name for them, with MLX's.
pub const ARCHITECTURES: [(&str, &str); 6] = [
    ("llama", "llama"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("gemma2", "gemma2"),
    ("gemma3", "gemma3_text"),
    ("phi3", "phi3"),
];

/// Parts of tensors' names outside of layers, with MLX's.
const OUTER: [(&str, &str); 3] =
    [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

/// The same within layers.
const INNER: [(&str, &str); 13] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Where architectures differ from [`INNER`].
fn inner(architecture: &str) -> &'static [(&'static str, &'static str)] {
    match architecture {
        "gemma2" | "gemma3" => &[
            ("ffn_norm", "pre_feedforward_layernorm"),
            ("post_attention_norm", "post_attention_layernorm"),
        ],
        "phi3" => &[("ffn_up", "mlp.gate_up_proj")],
        _ => &[],
    }
}

/// MLX's name of a tensor; its own, if MLX has none.
///
/// ```
/// use wootz_lm::checkpoint::gguf::mlx_name;
/// assert_eq!(mlx_name("llama", "blk.3.attn_q.weight"), "model.layers.3.self_attn.q_proj.weight");
/// assert_eq!(mlx_name("llama", "rope_freqs.weight"), "rope_freqs.weight");
/// ```
pub fn mlx_name(architecture: &str, name: &str) -> String {
    translated(architecture, name).unwrap_or_else(|| name.to_string())
}

fn translated(architecture: &str, name: &str) -> Option<String> {
    let (stem, kind) = name.rsplit_once('.')?;
    let find = |table: &[(&str, &'static str)], part: &str| {
        table.iter().find(|(theirs, _)| *theirs == part).map(|(_, ours)| *ours)
    };
    if let Some(ours) = find(&OUTER, stem) {
        return Some(format!("{ours}.{kind}"));
    }
    let (layer, part) = stem.strip_prefix("blk.")?.split_once('.')?;
    let ours = find(inner(architecture), part).or_else(|| find(&INNER, part))?;
    Some(format!("model.layers.{layer}.{ours}.{kind}"))
}

/// GGUF's name of a tensor that MLX names so: the reverse of [`mlx_name`].
///
/// ```
/// use wootz_lm::checkpoint::gguf::gguf_name;
/// let name = gguf_name("gemma3", "model.layers.0.pre_feedforward_layernorm.weight");
/// assert_eq!(name.as_deref(), Some("blk.0.ffn_norm.weight"));
/// ```
pub fn gguf_name(architecture: &str, name: &str) -> Option<String> {
    let (stem, kind) = name.rsplit_once('.')?;
    let find = |table: &[(&'static str, &str)], part: &str| {
        table.iter().find(|(_, ours)| *ours == part).map(|(theirs, _)| *theirs)
    };
    if let Some(theirs) = find(&OUTER, stem) {
        return Some(format!("{theirs}.{kind}"));
    }
    let (layer, part) = stem.strip_prefix("model.layers.")?.split_once('.')?;
    let theirs = find(inner(architecture), part).or_else(|| find(&INNER, part))?;
    Some(format!("blk.{layer}.{theirs}.{kind}"))
}

/// The architecture, in GGUF's words.
pub fn architecture(file: &Gguf) -> Option<&str> {
    file.get("general.architecture").and_then(Metadata::as_str)
}

/// What `config.json` would say, from the metadata.
pub(super) fn config(file: &Gguf) -> Result<Value, String> {
    let theirs = architecture(file).ok_or("the key general.architecture is missing")?;
    let mut config = Map::new();
    let known = ARCHITECTURES.iter().find(|(name, _)| *name == theirs);
    let Some((_, ours)) = known else {
        // Whoever loads it says what is supported.
        config.insert("model_type".to_string(), json!(theirs));
        return Ok(Value::Object(config));
    };
    let keys = Keys { file, architecture: theirs };
    let mut set = |key: &str, value: Value| config.insert(key.to_string(), value);
    let vocabulary = file.info("token_embd.weight").and_then(|info| info.shape.first().copied());
    set("model_type", json!(ours));
    set("hidden_size", json!(keys.number("embedding_length")?));
    set("num_hidden_layers", json!(keys.number("block_count")?));
    set("intermediate_size", json!(keys.number("feed_forward_length")?));
    let heads = keys.number("attention.head_count")?;
    set("num_attention_heads", json!(heads));
    set("num_key_value_heads", json!(keys.get_number("attention.head_count_kv").unwrap_or(heads)));
    set("rms_norm_eps", json!(keys.float("attention.layer_norm_rms_epsilon")?));
    set("vocab_size", json!(vocabulary.ok_or("the tensor token_embd.weight is missing")?));
    set("max_position_embeddings", json!(keys.number("context_length")?));
    set("rope_theta", json!(keys.get_float("rope.freq_base").unwrap_or(10000.0)));
    set("tie_word_embeddings", json!(file.info("output.weight").is_none()));
    let width = keys.number("embedding_length")?;
    let head_dim = keys.get_number("attention.key_length").unwrap_or(width / heads.max(1));
    set("head_dim", json!(head_dim));
    if keys.get_number("expert_count").is_some_and(|count| count > 0) {
        return Err(format!("{theirs} with experts is not supported from GGUF"));
    }
    let dims = keys.get_number("rope.dimension_count");
    if let Some(dims) = dims.filter(|&dims| theirs != "phi3" && dims != head_dim) {
        return Err(format!("{theirs}.rope.dimension_count: expected {head_dim}, got {dims}"));
    }
    if let Some(scaling) = keys.rope_scaling()? {
        set("rope_scaling", scaling);
    }
    match theirs {
        "llama" => {
            set("rope_traditional", json!(true));
            let biased = |parts: &[&str]| {
                let ends = |name: &str| {
                    let part = name.strip_suffix(".bias").and_then(|name| name.rsplit('.').next());
                    part.is_some_and(|part| parts.contains(&part))
                };
                file.tensors().any(|info| ends(info.name))
            };
            set("attention_bias", json!(biased(&["attn_q", "attn_k", "attn_v", "attn_output"])));
            set("mlp_bias", json!(biased(&["ffn_gate", "ffn_up", "ffn_down"])));
        }
        "gemma2" | "gemma3" => {
            // The largest of each divides by another number, and says so nowhere.
            let layers = keys.number("block_count")?;
            let largest = if theirs == "gemma2" { 46 } else { 62 };
            let scalar = if layers == largest { width / heads.max(1) } else { head_dim };
            set("query_pre_attn_scalar", json!(scalar));
            if let Some(cap) = keys.get_float("attn_logit_softcapping") {
                set("attn_logit_softcapping", json!(cap));
            }
            if let Some(cap) = keys.get_float("final_logit_softcapping") {
                set("final_logit_softcapping", json!(cap));
            }
            // As in llama.cpp: Gemma 2 has a window without saying so, Gemma 3 has none then.
            let (usual, pattern) = if theirs == "gemma2" { (Some(4096), 2) } else { (None, 6) };
            let window = keys.get_number("attention.sliding_window").or(usual);
            let window = window.filter(|&window| window > 0);
            if let Some(window) = window {
                set("sliding_window", json!(window));
            }
            let pattern = if window.is_some() { keys.pattern(layers, pattern)? } else { 1 };
            set("sliding_window_pattern", json!(pattern));
            let local = keys.get_float("rope.freq_base_swa");
            if theirs == "gemma3" {
                set("rope_local_base_freq", json!(local.unwrap_or(10000.0)));
            } else if let Some(got) = local {
                let base = keys.get_float("rope.freq_base").unwrap_or(10000.0);
                if got != base {
                    return Err(format!("gemma2.rope.freq_base_swa: expected {base}, got {got}"));
                }
            }
        }
        "phi3" => {
            if let Some(dims) = dims {
                set("partial_rotary_factor", json!(dims as f64 / head_dim.max(1) as f64));
            }
            let original = keys.get_number("rope.scaling.original_context_length");
            let stretched = file.info("rope_factors_long.weight").is_some();
            // As in llama.cpp, which takes the whole context for what is not said.
            let usual = || stretched.then(|| keys.number("context_length")).transpose();
            if let Some(original) = original.map_or_else(usual, |given| Ok(Some(given)))? {
                set("original_max_position_embeddings", json!(original));
            }
            if stretched {
                let size = keys.get_float("rope.scaling.attn_factor").unwrap_or(1.0);
                set("rope_scaling", json!({ "type": "longrope", "attention_factor": size }));
            }
        }
        _ => {}
    }
    Ok(Value::Object(config))
}

/// The metadata of one architecture.
struct Keys<'a> {
    file: &'a Gguf,
    architecture: &'a str,
}

impl Keys<'_> {
    fn get(&self, key: &str) -> Option<&Metadata> {
        self.file.get(&format!("{}.{key}", self.architecture))
    }

    /// A number, or the first of an array with one for each layer if they are all the same.
    fn get_number(&self, key: &str) -> Option<u64> {
        let value = self.get(key)?;
        let Some(values) = value.as_array() else { return value.as_u64() };
        let mut numbers = values.iter().map(|value| value.as_u64());
        let first = numbers.next()??;
        numbers.all(|number| number == Some(first)).then_some(first)
    }

    fn get_float(&self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64().map(shortest)
    }

    /// Of so many layers one, the last, sees all tokens: a number, or whether each layer has a window.
    fn pattern(&self, layers: u64, usual: u64) -> Result<u64, String> {
        const KEY: &str = "attention.sliding_window_pattern";
        let Some(values) = self.get(KEY).and_then(Metadata::as_array) else {
            return Ok(self.get_number(KEY).unwrap_or(usual));
        };
        let flag = |value: Metadata| value.as_bool().or(value.as_u64().map(|number| number != 0));
        let flags: Option<Vec<bool>> = values.iter().map(flag).take(layers as usize).collect();
        let repeated = |flags: Vec<bool>| {
            let first = flags.iter().position(|slides| !slides).unwrap_or(flags.len());
            let says = |(layer, slides): (usize, &bool)| *slides == (layer % (first + 1) < first);
            let fits = flags.len() as u64 == layers && flags.iter().enumerate().all(says);
            fits.then_some(first as u64 + 1)
        };
        let found = flags.and_then(repeated);
        let name = self.architecture;
        found.ok_or_else(|| format!("{name}.{KEY}: expected one that repeats in {layers} layers"))
    }

    fn number(&self, key: &str) -> Result<u64, String> {
        let (name, got) = (self.architecture, self.get(key));
        self.get_number(key).ok_or_else(|| match got {
            None => format!("the key {name}.{key} is missing"),
            Some(value) => format!("the key {name}.{key}: expected a number, got {value}"),
        })
    }

    fn float(&self, key: &str) -> Result<f64, String> {
        let name = self.architecture;
        self.get_float(key).ok_or_else(|| format!("the key {name}.{key} is missing or no number"))
    }

    /// How positions are stretched, with llama.cpp's values for what is not there.
    fn rope_scaling(&self) -> Result<Option<Value>, String> {
        let kind = self.get("rope.scaling.type").and_then(Metadata::as_str).unwrap_or("linear");
        let older = || self.get_float("rope.scale_linear");
        let factor = self.get_float("rope.scaling.factor").or_else(older);
        let factor = factor.filter(|&factor| factor != 0.0).unwrap_or(1.0);
        Ok(match kind {
            "none" => None,
            "linear" if factor == 1.0 => None,
            "linear" => Some(json!({ "type": "linear", "factor": factor })),
            "yarn" => Some(self.yarn(factor)?),
            // The factors are tensors.
            "longrope" => None,
            other => {
                let name = self.architecture;
                return Err(format!(
                    "{name}.rope.scaling.type: expected none, linear, yarn or longrope, got {other:?}"
                ));
            }
        })
    }

    fn yarn(&self, factor: f64) -> Result<Value, String> {
        // What mlx-lm has no word for.
        for (key, usual) in [
            ("rope.scaling.attn_factor", 1.0),
            ("rope.scaling.yarn_attn_factor", 1.0),
            ("rope.scaling.yarn_ext_factor", 1.0),
            ("rope.scaling.yarn_log_multiplier", 0.0),
        ] {
            if let Some(got) = self.get_float(key).filter(|&got| got != usual) {
                return Err(format!("{}.{key}: expected {usual}, got {got}", self.architecture));
            }
        }
        let original = self.get_number("rope.scaling.original_context_length");
        let original = original.map_or_else(|| self.number("context_length"), Ok)?;
        let beta = |key: &str, usual: f64| self.get_float(key).unwrap_or(usual);
        Ok(json!({
            "type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": original,
            "beta_fast": beta("rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": beta("rope.scaling.yarn_beta_slow", 1.0),
        }))
    }
}

/// The number of double precision that has as few digits as the one of single precision had.
pub(crate) fn shortest(value: f64) -> f64 {
    let single = value as f32;
    if f64::from(single) != value {
        return value;
    }
    single.to_string().parse().unwrap_or(value)
}
