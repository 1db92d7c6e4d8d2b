//! Models from GGUF files that our converter wrote, of every architecture that GGUF is read for: scores are those of
//! the folder that they were made of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wootz::io::gguf::{self as gguf_file, Gguf, TensorType, save_gguf};
use wootz::io::{Safetensors, load_safetensors, save_safetensors};
use wootz::quant::Format;
use wootz::{Array, DType, Device};
use wootz_lm::cache::{CacheOptions, LayerKind};
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
        small("small-llama3-biases", "llama", json!({}), 2),
        small("small-mistral", "llama", stretched, 2),
        small("small-qwen2", "qwen2", json!({}), 2),
        small("qwen3-4bit-f32", "qwen3", json!({}), 2),
        small("small-gemma2", "gemma2", json!({}), 2),
        small("small-gemma3_text", "gemma3", json!({ "sliding_window_pattern": 6 }), 7),
        small("small-gemma3_text", "gemma3", json!({ "rope_local_base_freq": 500.0 }), 3),
        small("small-gemma3_text", "gemma3", json!({ "sliding_window_pattern": 1 }), 2),
        small("small-phi3", "phi3", json!({ "rope_scaling": null }), 2),
        small("small-phi3", "phi3", json!({}), 2),
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

fn prompt_of(name: &str) -> Vec<u32> {
    let expected = goldens().join("tiny-models").join(name).join("expected.safetensors");
    let file = Safetensors::open(expected).unwrap();
    let prompt = file.tensor_on("prompt", &Device::cpu()).unwrap().to_vec::<i32>().unwrap();
    prompt.into_iter().map(|token| token as u32).collect()
}

fn same_bytes(a: &Path, b: &Path) -> bool {
    std::fs::read(a).unwrap() == std::fs::read(b).unwrap()
}

/// A file of numbers, with tensors and metadata changed.
fn rewrite(
    from: &Path,
    to: &Path,
    change: impl Fn(&mut BTreeMap<String, Array>, &mut Vec<(String, gguf_file::Value)>),
) {
    let file = Gguf::open(from).unwrap();
    let of = |info: gguf_file::TensorInfo<'_>| {
        (info.name.to_string(), file.tensor_on(info.name, &Device::cpu()).unwrap().data)
    };
    let mut tensors: BTreeMap<String, Array> = file.tensors().map(of).collect();
    let mut metadata = file.metadata().to_vec();
    change(&mut tensors, &mut metadata);
    save_gguf(to, &tensors, &metadata).unwrap();
}

/// A model's folder as GGUF, in single precision.
fn gguf_of(model: &Small, folder: &Path, name: &str) -> PathBuf {
    let (source, file) = (folder.join(name), folder.join(format!("{name}.gguf")));
    copy(model, &source);
    convert(&source, &file, &dense()).unwrap();
    file
}

fn dense() -> ConvertOptions {
    ConvertOptions { dequantize: true, dtype: Some(DType::F32), ..Default::default() }
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
    for (number, model) in models().into_iter().enumerate() {
        let at = |end: &str| folder.path().join(format!("{number}-{}{end}", model.name));
        copy(&model, &at(""));
        let prompt = prompt_of(model.name);

        convert(at(""), at("-dense"), &dense()).unwrap();
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

        convert(at("-again"), at("-again.gguf"), &ConvertOptions::default()).unwrap();
        assert!(same_bytes(&at(".gguf"), &at("-again.gguf")), "{}", model.name);

        // In blocks, as files of the kind mostly are.
        let quantize = Some(Quantize::Gguf { format: Format::Q8_0, mixed: false });
        let blocks = ConvertOptions { quantize, ..Default::default() };
        convert(at("-dense"), at("-8.gguf"), &blocks).unwrap();
        // Beside the same numbers, dense: only activations are rounded.
        convert(at("-8.gguf"), at("-8"), &dense()).unwrap();
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

/// For `cargo xtask converted`, which lets llama.cpp read them.
#[test]
fn small_models_are_written_with_their_scores_where_they_are_asked_for() {
    let Some(folder) = std::env::var_os("WOOTZ_SMALL_GGUF").map(PathBuf::from) else {
        println!("SKIPPED: WOOTZ_SMALL_GGUF names no folder for other programs");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let small = |name, architecture, changes| Small { name, architecture, changes, layers: 3 };
    let more = [
        small("small-gemma2", "gemma2", json!({ "sliding_window": 5 })),
        small("small-phi3", "phi3", {
            json!({ "max_position_embeddings": 512, "original_max_position_embeddings": 512 })
        }),
    ];
    for (number, model) in models().into_iter().chain(more).enumerate() {
        // llama.cpp looks for tokens of Phi-3 in models that are named so.
        let name = format!("{number:02}-{}", model.name.replace("phi3", "phi"));
        let file = gguf_of(&model, place.path(), &name);
        let prompt = prompt_of(model.name);
        let scores = json!({ "prompt": prompt, "scores": scores(&file, &prompt) });
        std::fs::copy(&file, folder.join(format!("{name}.gguf"))).unwrap();
        std::fs::write(folder.join(format!("{name}.json")), scores.to_string()).unwrap();
    }
}

/// Numbers of either sign and with all of their digits.
#[test]
fn a_model_in_several_files_is_the_model_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let llama = &models()[0];
    let whole = folder.path().join("whole.gguf");
    copy(llama, &folder.path().join("source"));
    let to_q8 = Quantize::Gguf { format: Format::Q8_0, mixed: false };
    let options = ConvertOptions { quantize: Some(to_q8), requantize: true, ..Default::default() };
    convert(folder.path().join("source"), &whole, &options).unwrap();
    let file = Gguf::open(&whole).unwrap();
    let names: Vec<String> = file.tensors().map(|info| info.name.to_string()).collect();
    let part = |number: usize| folder.path().join(format!("model-{number:05}-of-00003.gguf"));
    for (number, names) in names.chunks(names.len().div_ceil(3)).enumerate() {
        let mut writer = gguf_file::Writer::new();
        writer.metadata("split.no", number as u16).unwrap();
        writer.metadata("split.count", 3u16).unwrap();
        writer.metadata("split.tensors.count", file.tensors().count() as i32).unwrap();
        for (key, value) in file.metadata().iter().filter(|_| number == 0) {
            writer.metadata(key, value.clone()).unwrap();
        }
        for name in names {
            let tensor = file.tensor_on(name, &Device::cpu()).unwrap();
            match tensor.kind {
                TensorType::Blocks(format) => writer.blocks(name, format, tensor.data).unwrap(),
                _ => writer.tensor(name, tensor.data).unwrap(),
            };
        }
        writer.write(part(number + 1)).unwrap();
    }
    let prompt = prompt_of(llama.name);
    assert!(scores(&part(1), &prompt) == scores(&whole, &prompt));
    let open = |path: &Path| TextModel::open(path, &LoadOptions { device: Device::cpu() });
    let tokens = |path: &Path| open(path).unwrap().encode("hello there").unwrap();
    assert_eq!(tokens(&part(1)), tokens(&whole));
    // As one it becomes a folder, and one file again.
    let (mlx, again) = (folder.path().join("mlx"), folder.path().join("again.gguf"));
    convert(part(1), &mlx, &ConvertOptions::default()).unwrap();
    convert(&mlx, &again, &ConvertOptions::default()).unwrap();
    assert!(same_bytes(&again, &whole));
    let error = open(&part(2)).err().unwrap().to_string();
    assert!(error.contains("model-00002-of-00003.gguf"), "{error}");
    std::fs::remove_file(part(3)).unwrap();
    let error = open(&part(1)).err().unwrap().to_string();
    assert!(error.contains("model-00003-of-00003.gguf"), "{error}");
}

fn random(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[test]
fn files_with_any_norms_come_back_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for (number, model) in models().into_iter().enumerate() {
        let at = |end: &str| folder.path().join(format!("{number}{end}"));
        let plain = gguf_of(&model, folder.path(), &format!("{number}-plain"));
        rewrite(&plain, &at(".gguf"), |tensors, _| {
            for (seed, (name, array)) in (0..).zip(tensors) {
                if name.ends_with("norm.weight") {
                    let length = array.size();
                    *array = Array::from_slice(&random(length, seed), &[length]).unwrap();
                }
            }
        });
        for dtype in [None, Some(DType::F16)] {
            let [mlx, again] = ["mlx", "again.gguf"].map(|end| at(&format!("-{dtype:?}-{end}")));
            // Weights of matrices would lose digits in a narrow type.
            let options = ConvertOptions { dtype, ..Default::default() };
            convert(at(".gguf"), &mlx, &options).unwrap();
            convert(&mlx, &again, &ConvertOptions { dtype: None, ..Default::default() }).unwrap();
            let same = |name: &str| {
                let read = |path: &Path| {
                    let file = Gguf::open(path).unwrap();
                    file.tensor_on(name, &Device::cpu()).unwrap().data.to_bytes().unwrap()
                };
                read(&at(".gguf")) == read(&again)
            };
            assert!(dtype.is_some() || same_bytes(&at(".gguf"), &again), "{}", model.name);
            let is_gemma = model.architecture.starts_with("gemma");
            assert!(!is_gemma || same("output_norm.weight"), "{}", model.name);
        }
    }
}

#[test]
fn a_norm_that_was_changed_in_a_folder_is_what_the_file_gets() {
    let folder = tempfile::tempdir().unwrap();
    let at = |end: &str| folder.path().join(end);
    let model = models().into_iter().find(|model| model.architecture == "gemma2").unwrap();
    rewrite(&gguf_of(&model, folder.path(), "plain"), &at("x.gguf"), |tensors, _| {
        let norm = Array::from_slice(&random(32, 1), &[32]).unwrap();
        tensors.insert("output_norm.weight".into(), norm);
    });
    convert(at("x.gguf"), at("mlx"), &ConvertOptions::default()).unwrap();
    let file = at("mlx").join("model.safetensors");
    let mut arrays = load_safetensors(&file).unwrap();
    let ours = [0.25f32; 32];
    arrays.insert("model.norm.weight".into(), Array::from_slice(&ours, &[32]).unwrap());
    save_safetensors(&file, &arrays).unwrap();
    convert(at("mlx"), at("y.gguf"), &ConvertOptions::default()).unwrap();
    let norm = Gguf::open(at("y.gguf")).unwrap().tensor("output_norm.weight").unwrap().data;
    assert_eq!(norm.to_vec::<f32>().unwrap(), [1.25; 32]);
}

#[test]
fn biases_that_a_file_lacks_are_zeros_for_mlx_and_nothing_for_gguf() {
    let folder = tempfile::tempdir().unwrap();
    let at = |end: &str| folder.path().join(end);
    let model = models().into_iter().find(|model| model.name == "small-llama3-biases").unwrap();
    rewrite(&gguf_of(&model, folder.path(), "plain"), &at("x.gguf"), |tensors, _| {
        let parts = ["attn_output.bias", "blk.0.attn_q.bias", "ffn_up.bias", "ffn_gate.bias"];
        tensors.retain(|name, _| !parts.iter().any(|part| name.ends_with(part)));
        for (seed, (name, array)) in (0..).zip(tensors) {
            if name.ends_with(".bias") {
                let length = array.size();
                *array = Array::from_slice(&random(length, seed), &[length]).unwrap();
            }
        }
    });
    convert(at("x.gguf"), at("mlx"), &ConvertOptions::default()).unwrap();
    let config = read_json(&at("mlx").join("config.json"));
    assert_eq!((&config["attention_bias"], &config["mlp_bias"]), (&json!(true), &json!(true)));
    let prompt = prompt_of(model.name);
    let error = distance(&scores(&at("mlx"), &prompt), &scores(&at("x.gguf"), &prompt));
    assert!(error < 1e-5, "{error:.1e}");
    convert(at("mlx"), at("y.gguf"), &ConvertOptions::default()).unwrap();
    assert!(same_bytes(&at("x.gguf"), &at("y.gguf")));
}

#[test]
fn factors_of_llama_that_no_numbers_give_are_listed_for_mlx() {
    let folder = tempfile::tempdir().unwrap();
    let at = |end: &str| folder.path().join(end);
    let of = |scaling: Value| Small {
        name: "small-llama3-biases",
        architecture: "llama",
        changes: json!({ "rope_scaling": scaling }),
        layers: 2,
    };
    let steep = json!({
        "rope_type": "llama3", "factor": 3.5, "low_freq_factor": 1.5, "high_freq_factor": 2.0,
        "original_max_position_embeddings": 100,
    });
    let prompt = prompt_of("small-llama3-biases");
    let made = gguf_of(&of(steep), folder.path(), "steep");
    let error = distance(&scores(&made, &prompt), &scores(&at("steep"), &prompt));
    assert!(error < 1e-3, "{error:.1e}");
    rewrite(&made, &at("any.gguf"), |tensors, _| {
        let any = [1.0f32, 1.1, 3.0, 2.0, 1.7, 9.0, 0.5, 4.0];
        tensors.insert("rope_freqs.weight".into(), Array::from_slice(&any, &[8]).unwrap());
    });
    for (number, file) in [made, at("any.gguf")].into_iter().enumerate() {
        let [mlx, again] = ["mlx", "again.gguf"].map(|end| at(&format!("{number}-{end}")));
        convert(&file, &mlx, &ConvertOptions::default()).unwrap();
        let error = distance(&scores(&mlx, &prompt), &scores(&file, &prompt));
        assert!(error < 1e-5, "{error:.1e}");
        convert(&mlx, &again, &ConvertOptions::default()).unwrap();
        assert!(same_bytes(&file, &again));
        // Of a folder that does not know that it was a file, too.
        std::fs::remove_file(mlx.join("metadata.gguf")).unwrap();
        let options = ConvertOptions { overwrite: true, ..Default::default() };
        convert(&mlx, &again, &options).unwrap();
        let error = distance(&scores(&again, &prompt), &scores(&file, &prompt));
        assert!(error < 1e-5, "{error:.1e}");
    }
}

#[test]
fn phi3_has_the_short_factors_for_no_more_tokens_than_it_first_saw() {
    let folder = tempfile::tempdir().unwrap();
    let at = |end: &str| folder.path().join(end);
    let of =
        |changes: Value| Small { name: "small-phi3", architecture: "phi3", changes, layers: 2 };
    let prompt = prompt_of("small-phi3");
    let file = gguf_of(&of(json!({ "max_position_embeddings": 8 })), folder.path(), "few");
    let written = Gguf::open(&file).unwrap();
    let read = |name: &str| written.tensor(name).unwrap().data.to_vec::<f32>().unwrap();
    assert_eq!(read("rope_factors_long.weight"), [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]);
    assert_eq!(read("rope_factors_short.weight"), [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]);
    let kind = written.get("phi3.rope.scaling.type").and_then(|value| value.as_str());
    assert_eq!(kind, Some("longrope"));
    // A folder takes the long ones in any case, as in mlx-lm.
    let short = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5];
    let scaling = json!({ "type": "longrope", "long_factor": short, "short_factor": short });
    let changes = json!({ "max_position_embeddings": 8, "rope_scaling": scaling });
    copy(&of(changes), &at("short"));
    convert(at("short"), at("short-dense"), &dense()).unwrap();
    let expected = scores(&at("short-dense"), &prompt);
    assert!(distance(&scores(&file, &prompt), &expected) < 1e-5);
    assert!(distance(&scores(&at("few"), &prompt), &expected) > 1e-2);
    convert(&file, at("mlx"), &ConvertOptions::default()).unwrap();
    assert!(distance(&scores(&at("mlx"), &prompt), &expected) < 1e-5);
    convert(at("mlx"), at("again.gguf"), &ConvertOptions::default()).unwrap();
    assert!(same_bytes(&file, &at("again.gguf")));

    // For more, sizes of features grow, as far as the file says.
    let long = gguf_of(&of(json!({})), folder.path(), "long");
    let size = |size: f32| {
        move |_: &mut BTreeMap<String, Array>, metadata: &mut Vec<(String, gguf_file::Value)>| {
            let (_, value) = metadata
                .iter_mut()
                .find(|(key, _)| key == "phi3.rope.scaling.attn_factor")
                .expect("written");
            assert!((value.as_f64().unwrap() - 2f64.sqrt()).abs() < 1e-6);
            *value = size.into();
        }
    };
    rewrite(&long, &at("other.gguf"), size(1.0));
    assert!(distance(&scores(&at("other.gguf"), &prompt), &scores(&long, &prompt)) > 1e-3);
    let error = convert(at("other.gguf"), at("x"), &ConvertOptions::default()).unwrap_err();
    let expected = "phi3.rope.scaling.attn_factor: MLX computes 1.41";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn every_other_layer_of_gemma2_slides_in_gguf_and_none_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let at = |end: &str| folder.path().join(end);
    let of =
        |changes: Value| Small { name: "small-gemma2", architecture: "gemma2", changes, layers: 2 };
    let windows = |path: &Path| -> Vec<Option<usize>> {
        let checkpoint = Checkpoint::open(path).unwrap();
        let model = load(&checkpoint, &LoadOptions { device: Device::cpu() }).unwrap();
        let of = |kind| match kind {
            LayerKind::Attention { window, .. } => window,
            _ => None,
        };
        model.layers().into_iter().map(of).collect()
    };
    let plain = gguf_of(&of(json!({})), folder.path(), "plain");
    assert_eq!(windows(&plain), [Some(4096), None]);
    let file = gguf_of(&of(json!({ "sliding_window": 5 })), folder.path(), "five");
    assert_eq!(windows(&file), [Some(5), None]);
    let prompt = prompt_of("small-gemma2");
    convert(&file, at("mlx"), &ConvertOptions::default()).unwrap();
    assert_eq!(windows(&at("mlx")), [None, None]);
    let (slides, sees_all) = (scores(&file, &prompt), scores(&at("mlx"), &prompt));
    let first = 5 * 64;
    assert!(distance(&slides[..first], &sees_all[..first]) < 1e-5);
    assert!(distance(&slides[first..], &sees_all[first..]) > 1e-3);
    rewrite(&file, &at("none.gguf"), |_, metadata| {
        metadata.retain(|(key, _)| !key.ends_with("sliding_window"));
        metadata.push(("gemma2.attention.sliding_window".into(), 0u32.into()));
    });
    assert_eq!(windows(&at("none.gguf")), [None, None]);
}

#[test]
fn gemma3_that_sees_images_becomes_the_model_of_text_within_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |end: &str| folder.path().join(end);
    let model = Small {
        name: "small-gemma3_text",
        architecture: "gemma3",
        changes: json!({ "num_attention_heads": 3, "num_key_value_heads": 1 }),
        layers: 3,
    };
    copy(&model, &at("text"));
    convert(at("text"), at("nested"), &dense()).unwrap();
    let mut text = read_json(&at("nested").join("config.json"));
    let fields = text.as_object_mut().unwrap();
    // What real configurations leave to the program that reads them.
    for key in ["sliding_window", "max_position_embeddings", "rms_norm_eps", "vocab_size"] {
        fields.remove(key).unwrap();
    }
    let config = json!({
        "model_type": "gemma3", "text_config": text, "vocab_size": 64, "vision_config": {},
        "eos_token_id": [1],
    });
    std::fs::write(at("nested").join("config.json"), config.to_string()).unwrap();
    let file = at("nested").join("model.safetensors");
    let arrays = load_safetensors(&file).unwrap().into_iter();
    let arrays: BTreeMap<String, Array> =
        arrays.map(|(name, array)| (format!("language_model.{name}"), array)).collect();
    save_safetensors(&file, &arrays).unwrap();
    let index = at("nested").join("model.safetensors.index.json");
    if index.exists() {
        std::fs::remove_file(index).unwrap();
    }
    convert(at("nested"), at("x.gguf"), &ConvertOptions::default()).unwrap();
    let written = Gguf::open(at("x.gguf")).unwrap();
    let number = |key: &str| written.get(&format!("gemma3.{key}")).and_then(|value| value.as_u64());
    assert_eq!(number("attention.sliding_window"), Some(512));
    assert_eq!(number("attention.sliding_window_pattern"), Some(2));
    assert_eq!(number("attention.head_count"), Some(3));
    assert_eq!(number("vocab_size"), Some(64));
    let prompt = prompt_of("small-gemma3_text");
    let error = distance(&scores(&at("x.gguf"), &prompt), &scores(&at("nested"), &prompt));
    assert!(error < 1e-5, "{error:.1e}");
}

#[test]
fn a_cap_of_gemma3_is_obeyed_in_gguf_and_refused_for_mlx() {
    let folder = tempfile::tempdir().unwrap();
    let at = |end: &str| folder.path().join(end);
    let model = models().into_iter().find(|model| model.architecture == "gemma3").unwrap();
    let plain = gguf_of(&model, folder.path(), "plain");
    rewrite(&plain, &at("cap.gguf"), |_, metadata| {
        metadata.push(("gemma3.final_logit_softcapping".into(), 2.0f32.into()));
    });
    let prompt = prompt_of(model.name);
    let capped = |score: &f32| 2.0 * (score / 2.0).tanh();
    let expected: Vec<f32> = scores(&plain, &prompt).iter().map(capped).collect();
    assert!(distance(&scores(&at("cap.gguf"), &prompt), &expected) < 1e-5);
    let error = convert(at("cap.gguf"), at("mlx"), &ConvertOptions::default()).unwrap_err();
    assert!(error.to_string().contains("final_logit_softcapping, here 2"), "{error}");
}

#[test]
fn windows_of_gemma_are_what_metadata_says_of_layers() {
    let of = |keys: &[(&str, gguf_file::Value)]| {
        let mut all = vec![("block_count", 4u32.into()), ("attention.sliding_window", 9u32.into())];
        all.extend(keys.iter().cloned());
        configured("gemma3", &all)
    };
    let flags = |flags: &[bool]| gguf_file::Value::Array(gguf_file::Values::Bool(flags.to_vec()));
    let key = "attention.sliding_window_pattern";
    for (value, expected) in [
        (3u32.into(), 3),
        (flags(&[true, false, true, false]), 2),
        (flags(&[false; 4]), 1),
        (flags(&[true; 4]), 5),
    ] {
        assert_eq!(of(&[(key, value)]).unwrap()["sliding_window_pattern"], json!(expected));
    }
    for wrong in [flags(&[true, false, false, true]), flags(&[true, false])] {
        let error = of(&[(key, wrong)]).unwrap_err().to_string();
        assert!(error.contains("gemma3.attention.sliding_window_pattern: expected one"), "{error}");
    }
    assert_eq!(of(&[]).unwrap()["sliding_window_pattern"], json!(6));
    assert_eq!(of(&[]).unwrap()["rope_local_base_freq"], json!(10000.0));
    let local = of(&[("rope.freq_base_swa", 500.0f32.into())]).unwrap();
    assert_eq!(local["rope_local_base_freq"], json!(500.0));
    assert_eq!(configured("gemma3", &[]).unwrap()["sliding_window_pattern"], json!(1));
    let error = configured("gemma2", &[("rope.freq_base_swa", 500.0f32.into())]).unwrap_err();
    let expected = "gemma2.rope.freq_base_swa: expected 10000, got 500";
    assert!(error.to_string().contains(expected), "{error}");
}

/// What the configuration says of a file of metadata with these keys.
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
    for (key, value) in sizes.into_iter().filter(|(key, _)| keys.iter().all(|(k, _)| k != key)) {
        metadata.push((format!("{architecture}.{key}"), value.into()));
    }
    let eps = format!("{architecture}.attention.layer_norm_rms_epsilon");
    metadata.push((eps, 1e-5f32.into()));
    for (key, value) in keys {
        metadata.push((format!("{architecture}.{key}"), value.clone()));
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
    assert_eq!(scaling(&[("rope.scaling.factor", 4.0f32.into())]), linear);
    assert_eq!(scaling(&[("rope.scale_linear", 4.0f32.into())]), linear);
    assert_eq!(scaling(&[("rope.scaling.factor", 0.0f32.into())]), Value::Null);
    let none = [("rope.scaling.type", "none".into()), ("rope.scaling.factor", 4.0f32.into())];
    assert_eq!(scaling(&none), Value::Null);
    let mut yarn =
        vec![("rope.scaling.type", "yarn".into()), ("rope.scaling.factor", 4.0f32.into())];
    let mut expected = json!({
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 640, "beta_fast": 32.0,
        "beta_slow": 1.0,
    });
    assert_eq!(scaling(&yarn), expected);
    yarn.push(("rope.scaling.original_context_length", 160u32.into()));
    yarn.push(("rope.scaling.yarn_beta_fast", 8.0f32.into()));
    yarn.push(("rope.scaling.yarn_beta_slow", 2.0f32.into()));
    expected["original_max_position_embeddings"] = 160.into();
    (expected["beta_fast"], expected["beta_slow"]) = (8.0.into(), 2.0.into());
    assert_eq!(scaling(&yarn), expected);
    yarn.push(("rope.scaling.attn_factor", 0.5f32.into()));
    let error = configured("llama", &yarn).unwrap_err().to_string();
    assert!(error.contains("llama.rope.scaling.attn_factor: expected 1, got 0.5"), "{error}");
}

#[test]
fn a_part_of_a_head_is_rotated_in_phi3_only() {
    let keys = [("rope.dimension_count", 12u32.into())];
    assert_eq!(configured("phi3", &keys).unwrap()["partial_rotary_factor"], json!(0.75));
    for architecture in ["llama", "qwen2", "qwen3", "gemma2"] {
        let error = configured(architecture, &keys).unwrap_err().to_string();
        let expected = format!("{architecture}.rope.dimension_count: expected 16, got 12");
        assert!(error.contains(&expected), "{error}");
        configured(architecture, &[("rope.dimension_count", 16u32.into())]).unwrap();
    }
}
