//! Models from GGUF files that our converter wrote, of every architecture that GGUF is read for: scores are those of
//! the folder that they were made of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wootz::io::gguf::{self as gguf_file, Gguf, save_gguf};
use wootz::io::{Safetensors, load_safetensors, save_safetensors};
use wootz::quant::Format;
use wootz::{Array, DType, Device};
use wootz_lm::cache::CacheOptions;
use wootz_lm::checkpoint::{Checkpoint, gguf};
use wootz_lm::convert::{ConvertOptions, Quantize, convert};
use wootz_lm::generate::{Session, TextModel};
use wootz_lm::models::{LoadOptions, load};

/// A committed checkpoint, GGUF's word for its architecture, what its configuration says otherwise here, and how
/// many layers it gets.
struct Small {
    name: &'static str,
    architecture: &'static str,
    changes: Value,
    layers: usize,
}

fn models() -> Vec<Small> {
    let small = |name, architecture, changes, layers| Small { name, architecture, changes, layers };
    let stretched = json!({ "rope_scaling": { "type": "linear", "factor": 2.0 } });
    vec![
        small("llama-4bit-f32", "llama", json!({}), 2),
        small("small-mistral", "llama", stretched, 2),
        small("small-qwen2", "qwen2", json!({}), 2),
        small("qwen3-4bit-f32", "qwen3", json!({}), 2),
        small("small-gemma2", "gemma2", json!({}), 2),
        // In GGUF every sixth layer sees all tokens.
        small("small-gemma3_text", "gemma3", json!({ "sliding_window_pattern": 6 }), 7),
        // Factors for each frequency are not written.
        small("small-phi3", "phi3", json!({ "rope_scaling": null }), 2),
    ]
}

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens")
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// A copy of a checkpoint as [`Small`] says, with as much of a committed tokenizer as it has tokens for.
fn copy(model: &Small, to: &Path) {
    let source = goldens().join("tiny-models").join(model.name);
    std::fs::create_dir_all(to).unwrap();
    let mut config = read_json(&source.join("config.json"));
    config.as_object_mut().unwrap().extend(model.changes.as_object().unwrap().clone());
    let had = config["num_hidden_layers"].as_u64().unwrap() as usize;
    config["num_hidden_layers"] = model.layers.into();
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    let mut arrays = BTreeMap::new();
    for (name, array) in load_safetensors(&source.join("model.safetensors")).unwrap() {
        let Some((layer, rest)) =
            name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'))
        else {
            arrays.insert(name, array);
            continue;
        };
        let first: usize = layer.parse().unwrap();
        for number in (first..model.layers).step_by(had) {
            arrays.insert(format!("model.layers.{number}.{rest}"), array.clone());
        }
    }
    save_safetensors(&to.join("model.safetensors"), &arrays).unwrap();

    let tokenizer = goldens().join("generation/full");
    let size = config["vocab_size"].as_u64().unwrap();
    let mut json = read_json(&tokenizer.join("tokenizer.json"));
    let vocabulary = json["model"]["vocab"].as_object_mut().unwrap();
    vocabulary.retain(|_, id| id.as_u64().unwrap() < size);
    assert_eq!(json["model"]["merges"], json!([]), "merges of tokens that are not there");
    std::fs::write(to.join("tokenizer.json"), json.to_string()).unwrap();
    let file = "tokenizer_config.json";
    std::fs::copy(tokenizer.join(file), to.join(file)).unwrap();
}

/// Scores of every token of a prompt that is longer than windows.
fn scores(path: &Path, prompt: &[u32]) -> Vec<f32> {
    let checkpoint = Checkpoint::open(path).unwrap();
    let model = load(&checkpoint, &LoadOptions { device: Device::cpu() }).unwrap();
    let mut session = Session::new(model, &CacheOptions::default()).unwrap();
    let all: Array = session.logits_of(prompt).unwrap();
    all.astype(DType::F32).unwrap().to_vec::<f32>().unwrap()
}

/// The largest difference, of the largest score.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    a.iter().zip(b).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs())) / largest
}

#[test]
fn scores_from_gguf_are_those_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen: Vec<&str> = Vec::new();
    for model in models() {
        let at = |end: &str| folder.path().join(format!("{}{end}", model.name));
        copy(&model, &at(""));
        let expected = goldens().join("tiny-models").join(model.name).join("expected.safetensors");
        let file = Safetensors::open(expected).unwrap();
        let prompt = file.tensor_on("prompt", &Device::cpu()).unwrap().to_vec::<i32>().unwrap();
        let prompt: Vec<u32> = prompt.into_iter().map(|token| token as u32).collect();

        let dtype = Some(DType::F32);
        let dense = ConvertOptions { dequantize: true, dtype, ..Default::default() };
        convert(at(""), at("-dense"), &dense).unwrap();
        convert(at("-dense"), at(".gguf"), &ConvertOptions::default()).unwrap();
        let written = Gguf::open(at(".gguf")).unwrap();
        assert_eq!(gguf::architecture(&written), Some(model.architecture));
        let expected = scores(&at("-dense"), &prompt);
        let error = distance(&scores(&at(".gguf"), &prompt), &expected);
        assert!(error < 1e-5, "{}: {error:.1e}", model.name);
        // The dense weights are those of the checkpoint, to what rounding activations makes of them.
        let error = distance(&scores(&at(""), &prompt), &expected);
        assert!(error < 1e-3, "{}, quantized: {error:.1e}", model.name);

        // The file as MLX has it again.
        convert(at(".gguf"), at("-again"), &ConvertOptions::default()).unwrap();
        let error = distance(&scores(&at("-again"), &prompt), &expected);
        assert!(error < 1e-5, "{}, again: {error:.1e}", model.name);

        // In blocks, as files of the kind mostly are.
        let quantize = Some(Quantize::Gguf { format: Format::Q8_0, mixed: false });
        let blocks = ConvertOptions { quantize, ..Default::default() };
        convert(at("-dense"), at("-8.gguf"), &blocks).unwrap();
        // Beside the same numbers, dense: only activations are rounded.
        convert(at("-8.gguf"), at("-8"), &dense).unwrap();
        let expected = scores(&at("-8"), &prompt);
        let error = distance(&scores(&at("-8.gguf"), &prompt), &expected);
        assert!(error < 1e-3, "{}, blocks: {error:.1e}", model.name);

        // With its tokenizer, it answers.
        let text = TextModel::open(at(".gguf"), &LoadOptions { device: Device::cpu() }).unwrap();
        assert_eq!(text.encode("A+B").unwrap(), [36, 14, 37]);
        assert!(text.tokenizer.has_chat_template());
        seen.push(model.architecture);
    }
    for (theirs, _) in gguf::ARCHITECTURES {
        assert!(seen.contains(&theirs), "{theirs} is not among the models");
    }
}

/// What the configuration says of a file of metadata, with these keys of its rotation.
fn configured(architecture: &str, keys: &[(&str, gguf_file::Value)]) -> wootz_lm::Result<Value> {
    let folder = tempfile::tempdir().unwrap();
    let mut metadata = vec![("general.architecture".to_string(), architecture.into())];
    let sizes = [
        ("embedding_length", 32u32),
        ("block_count", 1),
        ("feed_forward_length", 32),
        ("attention.head_count", 2),
        ("context_length", 640),
    ];
    for (key, value) in sizes {
        metadata.push((format!("{architecture}.{key}"), value.into()));
    }
    let eps = format!("{architecture}.attention.layer_norm_rms_epsilon");
    metadata.push((eps, 1e-5f32.into()));
    for (key, value) in keys {
        metadata.push((format!("{architecture}.rope.{key}"), value.clone()));
    }
    let table = Array::from_slice(&[0.0f32; 64], &[2, 32]).unwrap();
    let file = folder.path().join("x.gguf");
    save_gguf(&file, &BTreeMap::from([("token_embd.weight".to_string(), table)]), &metadata)
        .unwrap();
    Ok(Checkpoint::open(&file)?.config().clone())
}

#[test]
fn what_metadata_leaves_out_of_rotation_is_as_in_llama_cpp() {
    let scaling = |keys: &[(&str, gguf_file::Value)]| {
        configured("llama", keys).unwrap()["rope_scaling"].clone()
    };
    assert_eq!(scaling(&[]), Value::Null);
    let linear = json!({ "type": "linear", "factor": 4.0 });
    assert_eq!(scaling(&[("scaling.factor", 4.0f32.into())]), linear);
    assert_eq!(scaling(&[("scale_linear", 4.0f32.into())]), linear);
    assert_eq!(scaling(&[("scaling.factor", 0.0f32.into())]), Value::Null);
    let none = [("scaling.type", "none".into()), ("scaling.factor", 4.0f32.into())];
    assert_eq!(scaling(&none), Value::Null);
    let mut yarn = vec![("scaling.type", "yarn".into()), ("scaling.factor", 4.0f32.into())];
    let mut expected = json!({
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 640, "beta_fast": 32.0,
        "beta_slow": 1.0,
    });
    assert_eq!(scaling(&yarn), expected);
    yarn.push(("scaling.original_context_length", 160u32.into()));
    yarn.push(("scaling.yarn_beta_fast", 8.0f32.into()));
    yarn.push(("scaling.yarn_beta_slow", 2.0f32.into()));
    expected["original_max_position_embeddings"] = 160.into();
    (expected["beta_fast"], expected["beta_slow"]) = (8.0.into(), 2.0.into());
    assert_eq!(scaling(&yarn), expected);
    yarn.push(("scaling.attn_factor", 0.5f32.into()));
    let error = configured("llama", &yarn).unwrap_err().to_string();
    assert!(error.contains("llama.rope.scaling.attn_factor: expected 1, got 0.5"), "{error}");
}

#[test]
fn a_part_of_a_head_is_rotated_in_phi3_only() {
    let keys = [("dimension_count", 12u32.into())];
    assert_eq!(configured("phi3", &keys).unwrap()["partial_rotary_factor"], json!(0.75));
    for architecture in ["llama", "qwen2", "qwen3", "gemma2"] {
        let error = configured(architecture, &keys).unwrap_err().to_string();
        let expected = format!("{architecture}.rope.dimension_count: expected 16, got 12");
        assert!(error.contains(&expected), "{error}");
        configured(architecture, &[("dimension_count", 16u32.into())]).unwrap();
    }
}
