//! What a token costs a GPU: one submission, and few launches for each layer. Alone in its program, with a device of its
//! own, whose launches are counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wootz::{Array, Device};
use wootz_lm::cache::CacheOptions;
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::generate::Session;
use wootz_lm::models::{LoadOptions, load};

/// Launches of a layer that is not sparse, whether its products have biases or not.
const MOST: u64 = 12;

/// A device of its own; none where there is none and none is required.
fn gpu() -> Option<Device> {
    let wanted = std::env::var("WOOTZ_TEST_GPU").unwrap_or_default();
    match Device::gpu() {
        _ if wanted == "skip" => eprintln!("SKIPPED: the GPU, as WOOTZ_TEST_GPU says"),
        Ok(best) => {
            let index = best.as_gpu().map_or(0, |gpu| gpu.summary().index);
            return Some(Device::gpu_with(index, &Default::default()).unwrap());
        }
        Err(error) if wanted == "required" => panic!("no GPU: {error}"),
        Err(error) => eprintln!("SKIPPED: the GPU: {error}"),
    }
    None
}

/// A checkpoint with the first layer so many times, and with a configuration that says something else, too.
fn repeated(name: &str, changes: &Value, layers: usize, folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/tiny-models").join(name);
    let config = std::fs::read_to_string(source.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    // What is said of how the first layer is quantized holds for all.
    for key in ["quantization", "quantization_config"] {
        let settings = config[key].as_object_mut().unwrap();
        for (path, value) in std::mem::take(settings) {
            match path.strip_prefix("model.layers.") {
                None => drop(settings.insert(path, value)),
                Some(rest) => {
                    let Some(rest) = rest.strip_prefix("0.") else { continue };
                    for layer in 0..layers {
                        settings.insert(format!("model.layers.{layer}.{rest}"), value.clone());
                    }
                }
            }
        }
    }
    let sizes = match config.get("text_config").is_some() {
        true => &mut config["text_config"],
        false => &mut config,
    };
    sizes["num_hidden_layers"] = layers.into();
    sizes.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let biased = changes["attention_bias"] != false;
    let mut arrays = BTreeMap::new();
    for (name, array) in wootz::io::load_safetensors(&source.join("model.safetensors")).unwrap() {
        match name.split_once("layers.") {
            None => drop(arrays.insert(name, array)),
            Some((before, rest)) => {
                let Some(rest) = rest.strip_prefix("0.") else { continue };
                for layer in (0..layers).filter(|_| biased || !rest.ends_with(".bias")) {
                    arrays.insert(format!("{before}layers.{layer}.{rest}"), array.clone());
                }
            }
        }
    }
    let copy = folder.join(format!("{name}-{layers}"));
    std::fs::create_dir_all(&copy).unwrap();
    std::fs::write(copy.join("config.json"), config.to_string()).unwrap();
    wootz::io::save_safetensors(&copy.join("model.safetensors"), &arrays).unwrap();
    copy
}

/// Launches and submissions of a token after so many.
fn of_a_token(folder: &Path, device: &Device, before: usize) -> (u64, u64) {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let model = load(&checkpoint, &LoadOptions { device: device.clone() }).unwrap();
    let mut session = Session::new(model, &CacheOptions::default()).unwrap();
    session.prefill(&vec![9; before], 128, &mut |_, _| ()).unwrap();
    let token = Array::from_slice_on(&[7u32], &[1, 1], device).unwrap();
    session.decode(&token).unwrap().eval().unwrap();
    let count = || {
        let counters = device.as_gpu().unwrap().counters();
        (counters.dispatches, counters.submissions)
    };
    let (dispatches, submissions) = count();
    const TOKENS: u64 = 3;
    for _ in 0..TOKENS {
        session.decode(&token).unwrap();
    }
    let (more_dispatches, more_submissions) = count();
    let stats = session.stats();
    assert_eq!((stats.traces, stats.replays), (1, 1 + TOKENS));
    ((more_dispatches - dispatches) / TOKENS, (more_submissions - submissions) / TOKENS)
}

#[test]
fn a_token_is_one_submission_of_few_launches() {
    let Some(device) = gpu() else { return };
    // Layers that are all alike: seeing a window or all tokens, and with positions.
    let local = json!({ "sliding_window_pattern": 100 });
    let global = json!({ "sliding_window_pattern": 1 });
    let rotated = json!({ "no_rope_layers": null, "no_rope_layer_interval": 100 });
    // As the models of the kind are; with biases, as their configurations may ask for; and these in llama.
    let plain = json!({ "attention_bias": false, "mlp_bias": false });
    let llama = json!({ "model_type": "llama" });
    // Above 256 keys, putting the parts of attention together takes a launch more.
    for (name, changes, before) in [
        ("llama-4bit-f32", json!({}), 20),
        ("llama-4bit-f32", json!({}), 600),
        ("llama-4bit", json!({}), 20),
        ("qwen3-4bit-f32", json!({}), 20),
        ("qwen3-4bit-f32", json!({}), 600),
        ("gemma3-4bit-f32", local, 20),
        ("gemma3-4bit-f32", global, 600),
        ("small-gemma2", json!({}), 600),
        ("small-qwen2", json!({}), 600),
        ("small-phi3", json!({}), 600),
        ("small-olmo2", json!({}), 600),
        ("small-granite", plain, 600),
        ("small-granite", json!({}), 20),
        ("small-granite", json!({}), 600),
        ("small-granite", llama.clone(), 20),
        ("small-granite", llama, 600),
        ("small-smollm3", rotated, 600),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let of = |layers: usize| {
            of_a_token(&repeated(name, &changes, layers, folder.path()), &device, before)
        };
        let (one, four) = (of(1), of(4));
        assert_eq!((four.0 - one.0) % 3, 0, "{name}: layers differ");
        let layer = (four.0 - one.0) / 3;
        println!(
            "{name} {changes} after {before} tokens: {layer} launches a layer, {} beside them, in {} submission",
            one.0 - layer,
            four.1
        );
        assert_eq!((one.1, four.1), (1, 1), "{name}: submissions");
        assert!(layer <= MOST, "{name} after {before} tokens: {layer} launches a layer");
    }
}
