//! Committed weights with other configurations: which keys are read, and which of two that contradict each other.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use wootz::io::{Safetensors, load_safetensors, save_safetensors};
use wootz::{Array, Device};
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::models::{LanguageModel, LoadOptions, load};

use super::compare::difference;
use super::{goldens, prompt, scores};

/// Changes that mlx-lm does not read, or that say what it takes anyway.
const UNREAD: [&str; 9] = [
    "other-layer-types",
    "qwen2-older-beside-newer",
    "qwen3-older-scaling",
    "qwen3-traditional",
    "qwen3_moe-traditional",
    "phi3-traditional",
    "phi3-lengths",
    "gemma2-newer-alone",
    "gpt_oss-no-layer-types",
];

/// A copy of a committed checkpoint, with keys of its configuration changed; those that become `null` are left out if
/// `without` says so.
fn changed(name: &str, changes: &Value, without: bool, to: &Path) {
    let from = goldens().join(name);
    let text = std::fs::read_to_string(from.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
        if without && value.is_null() {
            config.as_object_mut().unwrap().remove(key);
        }
    }
    std::fs::create_dir_all(to).unwrap();
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    std::fs::copy(from.join("model.safetensors"), to.join("model.safetensors")).unwrap();
}

/// The scores of a committed checkpoint's prompt, with such a change.
fn scores_with(name: &str, changes: Value) -> wootz_lm::Result<Array> {
    let folder = tempfile::tempdir().unwrap();
    changed(name, &changes, true, folder.path());
    scores(folder.path(), &prompt(name))
}

fn numbers(scores: wootz_lm::Result<Array>) -> Vec<f32> {
    scores.unwrap().to_vec().unwrap()
}

#[test]
fn changed_configurations_give_what_mlx_lm_gave() {
    let text = std::fs::read_to_string(goldens().join("variants.json")).unwrap();
    let variants: Value = serde_json::from_str(&text).unwrap();
    let expected = Safetensors::open(goldens().join("variants.safetensors")).unwrap();
    for (name, variant) in variants.as_object().unwrap() {
        let (of, folder) = (variant["of"].as_str().unwrap(), tempfile::tempdir().unwrap());
        changed(of, &variant["config"], false, folder.path());
        let got =
            scores(folder.path(), &prompt(of)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let last = got.index(-4..).unwrap().contiguous().unwrap();
        let of_mlx = expected.tensor_on(name, &Device::cpu()).unwrap();
        let error = difference(&last, &of_mlx).unwrap();
        assert!(error <= 1e-4, "{name}: {error:.1e}");
        // Each is seen in the scores, or names keys that are not read.
        let own = scores(&goldens().join(of), &prompt(of)).unwrap();
        let own = difference(&own.index(-4..).unwrap().contiguous().unwrap(), &of_mlx).unwrap();
        assert_eq!(own <= 1e-4, UNREAD.contains(&name.as_str()), "{name}: {own:.1e}");
    }
}

/// The scores of a committed checkpoint's prompt with such a change, `null` included.
fn scores_with_nulls(name: &str, changes: Value) -> wootz_lm::Result<Array> {
    let folder = tempfile::tempdir().unwrap();
    changed(name, &changes, false, folder.path());
    scores(folder.path(), &prompt(name))
}

/// Models that mlx-lm could not run without `rope_theta`: a base of `null`, or one that must be there.
#[test]
fn rope_parameters_are_read_where_mlx_lm_has_no_other_base() {
    let alone = |name: &str, parameters: Value| {
        let changes =
            json!({ "rope_theta": null, "rope_scaling": null, "rope_parameters": parameters });
        let read = numbers(scores_with_nulls(name, changes.clone()));
        if ["qwen3-4bit-f32", "small-granite", "small-qwen3_moe"].contains(&name) {
            assert!(numbers(scores_with(name, changes)) == read, "{name}");
        }
        read
    };
    let linear = json!({ "rope_type": "linear", "factor": 2.0 });
    for name in [
        "small-mistral",
        "small-phi3",
        "small-qwen2",
        "small-olmo2",
        "small-granite",
        "small-qwen3_moe",
        "qwen3-4bit-f32",
    ] {
        let older = |theta: f64, scaling: Value| {
            numbers(scores_with(name, json!({ "rope_theta": theta, "rope_scaling": scaling })))
        };
        let plain = json!({ "rope_type": "default", "rope_theta": 500.0 });
        assert!(alone(name, plain) == older(500.0, Value::Null), "{name}");
        assert!(older(500.0, Value::Null) != older(10000.0, Value::Null), "{name}");
        let stretched = json!({ "rope_type": "linear", "factor": 2.0, "rope_theta": 500.0 });
        assert!(alone(name, stretched) == older(500.0, linear.clone()), "{name}");
    }
    // What only newer configurations of Phi-3 have there.
    let longrope = |more: Value| {
        let factors = json!([1.0, 1.5, 2.0, 2.5, 3.0, 3.5]);
        let mut all =
            json!({ "type": "longrope", "long_factor": factors, "short_factor": factors });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let newer = longrope(json!({
        "rope_theta": 10000.0, "original_max_position_embeddings": 9, "partial_rotary_factor": 0.75,
    }));
    let changes = json!({
        "rope_theta": null, "rope_scaling": null, "rope_parameters": newer,
        "original_max_position_embeddings": null, "partial_rotary_factor": null,
    });
    let older =
        json!({ "rope_scaling": longrope(json!({})), "original_max_position_embeddings": 9 });
    assert!(
        numbers(scores_with_nulls("small-phi3", changes))
            == numbers(scores_with("small-phi3", older))
    );
}

/// `changed_configurations_give_what_mlx_lm_gave` has what mlx-lm made of some of these.
#[test]
fn rope_parameters_that_mlx_lm_does_not_read_are_told() {
    let newer = json!({ "rope_type": "linear", "factor": 2.0, "rope_theta": 300.0 });
    for (name, usual) in [
        ("small-mistral", 10000.0),
        ("small-llama3-biases", 10000.0),
        ("small-smollm3", 10000.0),
        ("small-phi3", 10000.0),
        ("small-gemma2", 10000.0),
        ("small-gemma3_text", 1e6),
        ("small-olmo2", 10000.0),
        ("small-qwen2", 1e6),
        ("small-mixtral", 1e6),
        ("small-gpt_oss", 150000.0),
    ] {
        let changes = json!({ "rope_theta": null, "rope_scaling": null, "rope_parameters": newer });
        let folder = tempfile::tempdir().unwrap();
        changed(name, &changes, true, folder.path());
        let found = numbers(scores(folder.path(), &prompt(name)));
        let older = json!({ "rope_theta": usual, "rope_scaling": null });
        assert!(found == numbers(scores_with(name, older)), "{name}");
        let info = open(folder.path()).info().clone();
        let said = info.warnings.iter().filter(|said| said.starts_with("rope_parameters of"));
        assert_eq!(said.count(), 1, "{name}: {:?}", info.warnings);
        // Beside a base they are nothing to speak of.
        let beside = json!({ "rope_theta": usual, "rope_parameters": newer });
        let folder = tempfile::tempdir().unwrap();
        changed(name, &beside, true, folder.path());
        assert!(open(folder.path()).info().warnings.is_empty(), "{name}");
    }
}

#[test]
fn layers_without_a_type_do_not_run_and_are_told() {
    let name = "small-gpt_oss";
    let mut arrays = load_safetensors(&goldens().join(name).join("model.safetensors")).unwrap();
    for (path, array) in arrays.clone() {
        if let Some(rest) = path.strip_prefix("model.layers.0.") {
            arrays.insert(format!("model.layers.2.{rest}"), array);
        }
    }
    let both = numbers(scores_with(name, json!({ "layer_types": null })));
    let types = json!(["sliding_attention", "full_attention"]);
    for types in [Value::Null, json!([]), types] {
        let folder = tempfile::tempdir().unwrap();
        let changes = json!({ "layer_types": types, "num_hidden_layers": 3 });
        changed(name, &changes, true, folder.path());
        // Weights of the third are asked for.
        let error = scores(folder.path(), &prompt(name)).unwrap_err().to_string();
        assert!(error.contains("missing: model.layers.2."), "{error}");
        std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
        save_safetensors(&folder.path().join("model.safetensors"), &arrays).unwrap();
        assert!(numbers(scores(folder.path(), &prompt(name))) == both, "{types}");
        let model = open(folder.path());
        let (info, parameters) = (model.info(), model.parameters());
        assert_eq!((info.layers, model.layers().len(), info.warnings.len()), (2, 2, 1));
        assert!(info.warnings[0].contains("2 of 3 layers"), "{}", info.warnings[0]);
        assert!(parameters.keys().any(|name| name.starts_with("model.layers.2.")));
    }
    // mlx-lm runs none with only one kind.
    let refused = |name: &str, changes: Value| scores_with(name, changes).unwrap_err().to_string();
    let error = refused(name, json!({ "layer_types": ["full_attention"] }));
    assert_eq!(error, "layer_types: expected one for each of 2 layers, got 1");
    let error = refused("small-mistral", json!({ "layer_types": [] }));
    assert_eq!(error, "layer_types: expected at least one, got none");
}

/// The model of a folder.
fn open(folder: &Path) -> Arc<dyn LanguageModel> {
    load(&Checkpoint::open(folder).unwrap(), &LoadOptions { device: Device::cpu() }).unwrap()
}

#[test]
fn a_stretched_context_is_as_long_as_it_is_stretched_to() {
    let context = |positions: u64, scaling: Value| {
        let folder = tempfile::tempdir().unwrap();
        let changes = json!({ "max_position_embeddings": positions, "rope_scaling": scaling });
        changed("small-mistral", &changes, true, folder.path());
        open(folder.path()).info().context_length
    };
    for kind in ["yarn", "linear", "llama3"] {
        let scaling =
            json!({ "type": kind, "factor": 4.0, "original_max_position_embeddings": 16 });
        assert_eq!(context(16, scaling.clone()), Some(64), "{kind}");
        assert_eq!(context(100, scaling), Some(100), "{kind}");
        let untold = json!({ "type": kind, "factor": 4.0 });
        assert_eq!(context(16, untold), Some(16), "{kind}");
    }
    let dynamic = json!({ "type": "dynamic", "factor": 2.0 });
    assert_eq!(context(16, dynamic), None);
    let plain = json!({ "type": "default", "factor": 4.0, "original_max_position_embeddings": 16 });
    assert_eq!(context(16, plain), Some(16));
}

#[test]
fn numbers_that_cannot_be_used_are_named_and_others_do_not_matter() {
    let error = |key: &str, value: Value| {
        scores_with("small-mistral", json!({ key: value })).unwrap_err().to_string()
    };
    let infinite = json!({ "__float__": "Infinity" });
    let found = error("rms_norm_eps", infinite.clone());
    assert_eq!(found, "rms_norm_eps: expected a finite number, got Infinity");
    let found = error("rope_theta", infinite.clone());
    assert!(found.starts_with("rope_theta: ") && found.ends_with("got Infinity"), "{found}");
    for (value, got) in [(json!(-16), "-16"), (json!(16.5), "16.5"), (infinite.clone(), "Infinity")]
    {
        let found = error("max_position_embeddings", value);
        assert!(found.starts_with("max_position_embeddings: expected a"), "{found}");
        assert!(found.ends_with(&format!("got {got}")), "{found}");
    }
    let found = error("rope_scaling", json!({ "type": "dynamic", "factor": infinite }));
    assert_eq!(found, "rope_scaling.factor: expected a finite number, got Infinity");
    let newer = json!({ "rope_type": "default", "rope_theta": infinite });
    let changes = json!({ "rope_theta": null, "rope_scaling": null, "rope_parameters": newer });
    let found = scores_with_nulls("small-mistral", changes).unwrap_err().to_string();
    assert_eq!(found, "rope_parameters.rope_theta: expected a finite number, got Infinity");
    let found =
        error("rope_scaling", json!({ "type": "yarn", "original_max_position_embeddings": -1 }));
    assert!(found.starts_with("rope_scaling.original_max_position_embeddings: "), "{found}");
    // As Python writes it.
    let folder = tempfile::tempdir().unwrap();
    changed("small-mistral", &json!({ "time_step_limit": [0.0, 1.0] }), true, folder.path());
    let file = folder.path().join("config.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("[0.0,1.0]", "[0.0, Infinity]")).unwrap();
    let own = numbers(scores(&goldens().join("small-mistral"), &prompt("small-mistral")));
    assert!(numbers(scores(folder.path(), &prompt("small-mistral"))) == own);
    let eps = text.find("\"rms_norm_eps\":").unwrap() + "\"rms_norm_eps\":".len();
    let end = eps + text[eps..].find([',', '}']).unwrap();
    std::fs::write(&file, format!("{}NaN{}", &text[..eps], &text[end..])).unwrap();
    let found = scores(folder.path(), &prompt("small-mistral")).unwrap_err().to_string();
    assert_eq!(found, "rms_norm_eps: expected a finite number, got NaN");
}

#[test]
fn a_context_that_is_not_told_is_unlimited() {
    let folder = tempfile::tempdir().unwrap();
    let changes = json!({ "max_position_embeddings": null, "rope_scaling": null });
    changed("small-mistral", &changes, true, folder.path());
    assert_eq!(open(folder.path()).info().context_length, None);
    let told = json!({ "max_position_embeddings": 4096.0, "rope_scaling": null });
    changed("small-mistral", &told, true, folder.path());
    assert_eq!(open(folder.path()).info().context_length, Some(4096));
}

#[test]
fn aliases_of_an_architecture_are_that_architecture() {
    let plain = numbers(scores_with("small-mistral", json!({ "model_type": "llama" })));
    for alias in ["iquestcoder", "xverse"] {
        let same = numbers(scores_with("small-mistral", json!({ "model_type": alias })));
        assert!(same == plain, "{alias}");
    }
    let error = scores_with("small-mistral", json!({ "model_type": "xverse2" })).unwrap_err();
    assert!(error.to_string().contains("xverse2"), "{error}");
}

#[test]
fn layers_without_positions_are_told_by_numbers_or_words() {
    let with = |layers: Value| scores_with("small-smollm3", json!({ "no_rope_layers": layers }));
    let (numbered, all) = (numbers(with(json!([1, 0, 1]))), numbers(with(json!([1, 1, 1]))));
    assert!(numbered != all);
    for same in [json!([true, false, true]), json!([true, 0, 1]), json!([1.0, 0.0, 2])] {
        assert!(numbers(with(same.clone())) == numbered, "{same}");
    }
    assert!(with(json!(["yes", "no", "yes"])).is_err());
}
