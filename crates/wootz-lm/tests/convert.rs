//! Conversions of a recorded checkpoint: from layout to layout and back, bit by bit.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};

use wootz::io::Safetensors;
use wootz::io::gguf::{Gguf, TensorType};
use wootz::quant::{Format, Scheme};
use wootz::{Array, DType, Device, Quantized, dequantize, quantize};
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::convert::{ConvertOptions, Quantize, Recipe, convert};

/// A small llama of mlx-lm's, in single precision.
fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/generation/full")
}

fn to_gguf(format: Format) -> ConvertOptions {
    ConvertOptions { quantize: Some(Quantize::Gguf { format, mixed: false }), ..Default::default() }
}

fn affine(bits: usize, group_size: usize) -> ConvertOptions {
    let (mode, recipe) = ("affine".to_string(), None);
    let quantize = Quantize::Mlx { mode, group_size: Some(group_size), bits: Some(bits), recipe };
    ConvertOptions { quantize: Some(quantize), ..Default::default() }
}

fn config(folder: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap()
}

#[test]
fn gguf_to_mlx_and_back_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let numbers = |dtype| ConvertOptions { dtype: Some(dtype), ..Default::default() };
    let cases = [
        ("F32", numbers(DType::F32)),
        ("F16", numbers(DType::F16)),
        ("BF16", numbers(DType::BF16)),
        ("Q4_0", to_gguf(Format::Q4_0)),
        ("Q4_1", to_gguf(Format::Q4_1)),
        ("Q8_0", to_gguf(Format::Q8_0)),
    ];
    for (name, options) in cases {
        let (first, mlx, second) = (
            at(&format!("{name}.gguf")),
            at(&format!("{name}-mlx")),
            at(&format!("{name}-again.gguf")),
        );
        convert(model(), &first, &options).unwrap();
        let kinds: Vec<String> =
            Gguf::open(&first).unwrap().tensors().map(|info| info.kind.to_string()).collect();
        assert!(kinds.iter().any(|kind| kind == name), "{name}: {kinds:?}");
        convert(&first, &mlx, &ConvertOptions::default()).unwrap();
        convert(&mlx, &second, &ConvertOptions::default()).unwrap();
        assert!(std::fs::read(&first).unwrap() == std::fs::read(&second).unwrap(), "{name}");
    }
}

#[test]
fn rows_that_are_rotated_are_as_hugging_face_has_them_again() {
    let folder = tempfile::tempdir().unwrap();
    let (gguf, mlx) = (folder.path().join("a.gguf"), folder.path().join("mlx"));
    convert(model(), &gguf, &ConvertOptions::default()).unwrap();
    convert(&gguf, &mlx, &ConvertOptions::default()).unwrap();
    let (before, after) = (Safetensors::open(model()).unwrap(), Safetensors::open(&mlx).unwrap());
    assert_eq!(before.names().collect::<Vec<_>>(), after.names().collect::<Vec<_>>());
    for name in before.names() {
        let read = |file: &Safetensors| {
            file.tensor_on(name, &Device::cpu()).unwrap().to_vec::<f32>().unwrap()
        };
        assert_eq!(read(&before), read(&after), "{name}");
    }
    // In the file they are not: the rotated numbers of a head are neighbours there.
    let file = Gguf::open(&gguf).unwrap();
    let permuted = file.tensor_on("blk.0.attn_q.weight", &Device::cpu()).unwrap().data;
    let plain = before.tensor_on("model.layers.0.self_attn.q_proj.weight", &Device::cpu()).unwrap();
    let (permuted, plain) = (permuted.to_vec::<f32>().unwrap(), plain.to_vec::<f32>().unwrap());
    let row = |values: &[f32], row: usize| values[row * 32..(row + 1) * 32].to_vec();
    assert_eq!(row(&permuted, 1), row(&plain, 8));
    assert_eq!(row(&permuted, 16 + 2), row(&plain, 16 + 1));
}

#[test]
fn quantized_weights_are_those_of_the_operation_and_the_configuration_says_how() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("quantized");
    let report = convert(model(), &to, &affine(4, 32)).unwrap();
    assert!(report.bits_per_weight() < 10.0, "{report:?}");
    let expected = serde_json::json!({ "group_size": 32, "bits": 4, "mode": "affine" });
    let written = config(&to);
    assert_eq!((&written["quantization"], &written["quantization_config"]), (&expected, &expected));
    let (dense, made) = (Safetensors::open(model()).unwrap(), Safetensors::open(&to).unwrap());
    let path = "model.layers.1.mlp.gate_proj";
    let read = |file: &Safetensors, name: String| file.tensor_on(&name, &Device::cpu()).unwrap();
    let scheme = Scheme::Affine { group_size: 32, bits: 4 };
    let expected = quantize(&read(&dense, format!("{path}.weight")), scheme).unwrap();
    for (name, array) in ["weight", "scales", "biases"].iter().zip(expected.arrays()) {
        let got = read(&made, format!("{path}.{name}"));
        assert_eq!(got.to_bytes().unwrap(), array.to_bytes().unwrap(), "{name}");
    }
    // Rows of 48 are no groups of 32, and norms are no matrices.
    assert_eq!(made.dtype("model.layers.0.mlp.down_proj.weight"), Some(DType::F32));
    assert_eq!(made.dtype("model.norm.weight"), Some(DType::F32));
    assert!(to.join("tokenizer.json").is_file() && to.join("tokenizer_config.json").is_file());

    let back = folder.path().join("dense");
    convert(&to, &back, &ConvertOptions { dequantize: true, ..Default::default() }).unwrap();
    assert!(config(&back).get("quantization").is_none());
    let got = read(&Safetensors::open(&back).unwrap(), format!("{path}.weight"));
    let numbers = dequantize(&expected, None).unwrap();
    assert_eq!(got.to_vec::<f32>().unwrap(), numbers.to_vec::<f32>().unwrap());
}

#[test]
fn every_mode_and_recipe_is_written_so_that_it_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    for mode in ["affine", "mxfp4", "mxfp8", "nvfp4"] {
        let to = folder.path().join(mode);
        let group_size = (mode == "affine").then_some(32);
        let quantize = Quantize::Mlx { mode: mode.into(), group_size, bits: None, recipe: None };
        let options = ConvertOptions { quantize: Some(quantize), ..Default::default() };
        convert(model(), &to, &options).unwrap();
        assert_eq!(config(&to)["quantization"]["mode"], mode);
        // Converting again reads it.
        let again = folder.path().join(format!("{mode}-dense"));
        convert(&to, &again, &ConvertOptions { dequantize: true, ..Default::default() }).unwrap();
    }
    let to = folder.path().join("mixed");
    let recipe = Some(Recipe::Mixed2_6);
    let quantize =
        Quantize::Mlx { mode: "affine".into(), group_size: Some(32), bits: None, recipe };
    convert(model(), &to, &ConvertOptions { quantize: Some(quantize), ..Default::default() })
        .unwrap();
    let settings = &config(&to)["quantization"];
    assert_eq!(settings["lm_head"]["bits"], 6);
    assert_eq!(settings["model.embed_tokens"]["bits"], 2);
    let again = folder.path().join("mixed-dense");
    convert(&to, &again, &ConvertOptions { dequantize: true, ..Default::default() }).unwrap();
}

#[test]
fn formats_that_the_other_side_lacks_are_refused_unless_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    convert(model(), at("q5.gguf"), &to_gguf(Format::Q5_0)).unwrap();
    let error =
        convert(at("q5.gguf"), at("mlx"), &ConvertOptions::default()).unwrap_err().to_string();
    assert!(error.contains("MLX cannot hold Q5_0") && error.contains("requantize"), "{error}");
    assert!(!at("mlx").exists());
    let again = ConvertOptions { requantize: true, ..Default::default() };
    convert(at("q5.gguf"), at("mlx"), &again).unwrap();
    assert_eq!(config(&at("mlx"))["quantization"]["mode"], "affine");

    // Scales of single precision are none that GGUF's blocks could hold.
    convert(model(), at("affine"), &affine(4, 32)).unwrap();
    let error =
        convert(at("affine"), at("b.gguf"), &ConvertOptions::default()).unwrap_err().to_string();
    assert!(
        error.contains("GGUF has no format that holds") && error.contains("requantize"),
        "{error}"
    );
    assert!(!at("b.gguf").exists());
    convert(at("affine"), at("b.gguf"), &again).unwrap();
    // Those of half precision are.
    let half = ConvertOptions { dtype: Some(DType::F16), ..affine(4, 32) };
    convert(model(), at("half"), &half).unwrap();
    convert(at("half"), at("c.gguf"), &ConvertOptions::default()).unwrap();
    let file = Gguf::open(at("c.gguf")).unwrap();
    assert_eq!(file.info("blk.0.attn_q.weight").unwrap().kind, TensorType::Blocks(Format::Q4_1));
    let half = Safetensors::open(at("half")).unwrap();
    let read = |name: &str| half.tensor_on(&format!("lm_head.{name}"), &Device::cpu()).unwrap();
    let scheme = Scheme::Affine { group_size: 32, bits: 4 };
    let ours = Quantized::new(
        scheme,
        &read("weight"),
        Some(&wide(&read("scales"))),
        Some(&wide(&read("biases"))),
    );
    let ours = dequantize(&ours.unwrap(), None).unwrap().to_vec::<f32>().unwrap();
    let theirs = file.tensor_on("output.weight", &Device::cpu()).unwrap();
    let theirs = Quantized::new(Format::Q4_1, &theirs.data, None, None).unwrap();
    let theirs = dequantize(&theirs, None).unwrap().to_vec::<f32>().unwrap();
    assert!(ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() <= 1e-6 + 1e-6 * a.abs()));
}

fn wide(array: &Array) -> Array {
    array.astype(DType::F32).unwrap()
}

#[test]
fn biases_without_scales_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let quantized = folder.path().join("quantized");
    convert(model(), &quantized, &affine(4, 32)).unwrap();
    let file = quantized.join("model.safetensors");
    let mut arrays = wootz::io::load_safetensors(&file).unwrap();
    arrays.remove("model.layers.0.self_attn.q_proj.scales").unwrap();
    wootz::io::save_safetensors(&file, &arrays).unwrap();
    std::fs::remove_file(quantized.join("model.safetensors.index.json")).unwrap();
    let options = ConvertOptions { dequantize: true, ..Default::default() };
    let error = convert(&quantized, folder.path().join("dense"), &options).unwrap_err();
    let expected = "model.layers.0.self_attn.q_proj.weight: it has biases, but no scales";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn large_models_are_split_and_an_output_that_exists_stays() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("split");
    let options = ConvertOptions { max_shard_bytes: 40_000, ..Default::default() };
    convert(model(), &to, &options).unwrap();
    assert!(
        to.join("model.safetensors.index.json").is_file() && !to.join("model.safetensors").exists()
    );
    let (before, after) = (Safetensors::open(model()).unwrap(), Safetensors::open(&to).unwrap());
    assert_eq!(before.names().collect::<Vec<_>>(), after.names().collect::<Vec<_>>());
    let error = convert(model(), &to, &options).unwrap_err().to_string();
    assert!(error.contains("which exists"), "{error}");
    assert!(after.tensor("model.norm.weight").is_ok());
    convert(model(), &to, &ConvertOptions { overwrite: true, ..Default::default() }).unwrap();
    assert!(to.join("model.safetensors").is_file());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn an_output_that_the_model_is_read_from_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let options = ConvertOptions { overwrite: true, ..Default::default() };
    convert(model(), at("repo"), &options).unwrap();
    convert(model(), at("repo/model.gguf"), &options).unwrap();
    std::fs::create_dir(at("repo/deep")).unwrap();
    std::fs::copy(at("repo/model.gguf"), at("repo/deep/model.gguf")).unwrap();
    let names = || walk(&at("repo"));
    let before = names();
    let mut cases = vec![
        ("repo/model.gguf", "repo"),
        ("repo/deep/model.gguf", "repo"),
        ("repo", "repo"),
        ("repo/../repo", "repo"),
        ("repo/model.gguf", "repo/model.gguf"),
        ("repo", "repo/model.safetensors"),
    ];
    if cfg!(unix) {
        #[cfg(unix)]
        std::os::unix::fs::symlink(at("repo"), at("link")).unwrap();
        cases.push(("link/model.gguf", "repo"));
        cases.push(("repo/model.gguf", "link"));
    }
    for (from, to) in cases {
        let error = convert(at(from), at(to), &options).unwrap_err().to_string();
        let expected = "output: expected a place that the model is not read from, got ";
        assert!(error.starts_with(expected), "{from} to {to}: {error}");
        assert_eq!(names(), before, "{from} to {to}");
    }
    // A place within the model's folder, or beside it, removes nothing.
    for _ in 0..2 {
        convert(at("repo"), at("repo/new"), &options).unwrap();
        convert(at("repo"), at("repo/model.gguf"), &options).unwrap();
    }
    convert(at("repo/model.gguf"), at("repo/deep/other"), &options).unwrap();
    convert(at("repo"), at("beside"), &options).unwrap();
}

/// All files below a folder, with their sizes.
fn walk(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(walk(&path)),
            false => found.push((path.clone(), path.metadata().unwrap().len())),
        }
    }
    found.sort();
    found
}

#[test]
fn what_contradicts_itself_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("x");
    let both = ConvertOptions { dequantize: true, ..affine(4, 32) };
    assert!(convert(model(), &to, &both).unwrap_err().to_string().starts_with("dequantize: "));
    let error = convert(model(), folder.path().join("x.gguf"), &affine(4, 32)).unwrap_err();
    assert!(error.to_string().contains("a format of GGUF's"), "{error}");
    let error = convert(model(), &to, &to_gguf(Format::Q8_0)).unwrap_err().to_string();
    assert!(error.contains("one of MLX's modes"), "{error}");
    assert!(convert(model(), &to, &affine(7, 32)).is_err());
    let done = folder.path().join("done");
    convert(model(), &done, &affine(4, 32)).unwrap();
    let error = convert(&done, &to, &affine(8, 32)).unwrap_err().to_string();
    assert!(error.contains("no weights are left to quantize"), "{error}");
    let error = convert(model(), &to, &affine(4, 128)).unwrap_err().to_string();
    assert!(error.contains("no weight has rows that affine of 4 bits in groups of 128"), "{error}");
    assert!(!to.exists());
}

/// A copy of the model whose configuration says something else, too.
fn changed(folder: &Path, changes: serde_json::Value) -> PathBuf {
    let copy = folder.join("changed");
    std::fs::create_dir_all(&copy).unwrap();
    for entry in std::fs::read_dir(model()).unwrap() {
        let file = entry.unwrap().path();
        std::fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
    }
    let mut config = config(&model());
    config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    std::fs::write(copy.join("config.json"), config.to_string()).unwrap();
    copy
}

#[test]
fn files_beside_the_tokenizer_that_are_damaged_are_errors_that_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("x.gguf");
    let options = ConvertOptions { overwrite: true, ..Default::default() };
    let copy = changed(folder.path(), serde_json::json!({}));
    let read = |key: &str| Gguf::open(&to).unwrap().get(key).cloned();
    let template = || read("tokenizer.chat_template")?.as_str().map(str::to_string);
    convert(&copy, &to, &options).unwrap();
    assert!(template().unwrap().contains("add_generation_prompt"));
    let intact = std::fs::read(&to).unwrap();
    let config = std::fs::read_to_string(copy.join("tokenizer_config.json")).unwrap();
    for (name, text) in [
        ("tokenizer_config.json", &config[..config.len() / 2]),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", "{\"add_bos_token\": 1}"),
        ("special_tokens_map.json", "{"),
        ("chat_template.json", "{\"chat_template\": 5}"),
    ] {
        let path = copy.join(name);
        let before = std::fs::read(&path).ok();
        std::fs::write(&path, text).unwrap();
        let error = convert(&copy, &to, &options).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        assert!(std::fs::read(&to).unwrap() == intact, "{name}");
        match before {
            Some(before) => std::fs::write(&path, before).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
    }
    // What is not there is not needed, and a template in a file of its own is one.
    std::fs::remove_file(copy.join("tokenizer_config.json")).unwrap();
    convert(&copy, &to, &options).unwrap();
    assert_eq!((template(), read("tokenizer.ggml.bos_token_id")), (None, None));
    std::fs::write(copy.join("chat_template.json"), "{\"chat_template\": \"own\"}").unwrap();
    convert(&copy, &to, &options).unwrap();
    assert_eq!(template().as_deref(), Some("own"));
}

#[test]
fn a_pre_tokenizer_is_named_by_all_of_its_pattern() {
    let folder = tempfile::tempdir().unwrap();
    let (to, options) =
        (folder.path().join("x.gguf"), ConvertOptions { overwrite: true, ..Default::default() });
    let copy = changed(folder.path(), serde_json::json!({}));
    let path = copy.join("tokenizer.json");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let name = |parts: serde_json::Value, whole: bool| {
        let mut json = json.clone();
        json["pre_tokenizer"] = serde_json::json!({ "type": "Sequence", "pretokenizers": parts });
        json["model"]["ignore_merges"] = whole.into();
        std::fs::write(&path, json.to_string()).unwrap();
        convert(&copy, &to, &options)?;
        let file = Gguf::open(&to).unwrap();
        let name = file.get("tokenizer.ggml.pre").and_then(|value| value.as_str());
        Ok::<_, wootz_lm::Error>(name.unwrap().to_string())
    };
    let bytes = |regex: bool| serde_json::json!({ "type": "ByteLevel", "use_regex": regex });
    let split = |pattern: &str, behavior: &str, invert: bool| {
        let pattern = serde_json::json!({ "Regex": pattern });
        let split = serde_json::json!({
            "type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert,
        });
        serde_json::json!([split, bytes(false)])
    };
    let end = r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let tekken = [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
        end,
    ]
    .concat();
    let llama = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    assert_eq!(name(split(&tekken, "Isolated", false), true).unwrap(), "tekken");
    assert_eq!(name(split(llama, "Removed", true), true).unwrap(), "llama-bpe");
    assert_eq!(name(serde_json::json!([bytes(true)]), false).unwrap(), "gpt-2");
    let digits = serde_json::json!({ "type": "Digits", "individual_digits": true });
    assert_eq!(name(serde_json::json!([digits, bytes(true)]), false).unwrap(), "smollm");

    // Alike, but not the same.
    let other = llama.replace(r"\p{L}+", r"[\p{L}\p{M}]+");
    let error = name(split(&other, "Isolated", false), true).unwrap_err().to_string();
    assert!(error.contains("no known name") && error.contains(&other), "{error}");
    let error = name(split(llama, "MergedWithNext", false), true).unwrap_err().to_string();
    assert!(error.contains("MergedWithNext"), "{error}");
    let error = name(serde_json::json!([{ "type": "Metaspace" }]), false).unwrap_err().to_string();
    assert!(error.contains("Metaspace"), "{error}");
}

#[test]
fn an_alias_of_llama_becomes_a_llama_of_gguf() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("x.gguf");
    let alias = changed(folder.path(), serde_json::json!({ "model_type": "xverse" }));
    convert(alias, &to, &ConvertOptions::default()).unwrap();
    let file = Gguf::open(&to).unwrap();
    assert_eq!(file.get("general.architecture").and_then(|value| value.as_str()), Some("llama"));
}

#[test]
fn gguf_says_how_positions_are_rotated_or_refuses_to() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("x.gguf");
    let parameters = serde_json::json!({
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    });
    let of = serde_json::json!({ "rope_theta": null, "rope_parameters": parameters });
    let options = ConvertOptions { overwrite: true, ..Default::default() };
    convert(changed(folder.path(), of), &to, &options).unwrap();
    let file = Gguf::open(&to).unwrap();
    let base = file.get("llama.rope.freq_base").and_then(|value| value.as_f64());
    assert_eq!(base, Some(500000.0));
    assert_eq!(file.info("rope_freqs.weight").unwrap().shape, [8]);
    drop(file);
    let slides = ["sliding_attention", "full_attention"];
    for (key, changes) in [
        ("layer_types", serde_json::json!({ "layer_types": slides, "sliding_window": 8 })),
        ("rope_traditional", serde_json::json!({ "rope_traditional": true })),
    ] {
        let error = convert(changed(folder.path(), changes), &to, &options).unwrap_err();
        assert!(error.to_string().contains(&format!("GGUF cannot say that {key}")), "{error}");
    }
    let yarn = |more: serde_json::Value| {
        let mut all = serde_json::json!({ "type": "yarn", "factor": 4.0 });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        changed(folder.path(), serde_json::json!({ "rope_scaling": all }))
    };
    let betas = serde_json::json!({ "beta_fast": 8, "beta_slow": 2.0 });
    convert(yarn(betas), &to, &options).unwrap();
    let read = Checkpoint::open(&to).unwrap().config()["rope_scaling"].clone();
    let all = serde_json::json!({
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "beta_fast": 8.0,
        "beta_slow": 2.0,
    });
    assert_eq!(read, all);
    for key in ["mscale", "mscale_all_dim", "attention_factor"] {
        let error = convert(yarn(serde_json::json!({ key: 0.5 })), &to, &options).unwrap_err();
        let expected = format!("GGUF cannot say that rope_scaling.{key} is 0.5");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}
