//! Committed checkpoints, rewritten as Hugging Face lays them out: scores are the same to the last bit.

use std::collections::BTreeMap;

use serde_json::Value;
use wootz::io::{load_safetensors, save_safetensors};
use wootz::quant::Scheme;
use wootz::{
    Array, DType, Quantized, add, concatenate, dequantize, quantize, stack, subtract, view,
};

use super::{goldens, prompt, scores};

type Arrays = BTreeMap<String, Array>;

/// Scores of a committed checkpoint as `ours` changes its tensors, and as `theirs` then lays them out.
fn expect_same(name: &str, ours: impl Fn(&mut Arrays), theirs: impl Fn(&Arrays) -> Arrays) {
    let folder = tempfile::tempdir().unwrap();
    let mut arrays = load_safetensors(&goldens().join(name).join("model.safetensors")).unwrap();
    ours(&mut arrays);
    let of = |arrays: &Arrays| {
        let config = goldens().join(name).join("config.json");
        std::fs::copy(config, folder.path().join("config.json")).unwrap();
        save_safetensors(&folder.path().join("model.safetensors"), arrays).unwrap();
        scores(folder.path(), &prompt(name)).unwrap().to_vec::<f32>().unwrap()
    };
    let rewritten = theirs(&arrays);
    assert!(rewritten.keys().ne(arrays.keys()), "{name} is rewritten");
    assert!(of(&rewritten) == of(&arrays), "{name}");
}

/// The settings of a committed checkpoint.
fn number(name: &str, key: &str) -> usize {
    let text = std::fs::read_to_string(goldens().join(name).join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let of_text = config.get("text_config").and_then(|text| text.get(key));
    of_text.unwrap_or(&config[key]).as_u64().unwrap() as usize
}

/// Each expert of `{path}.switch_mlp.{ours}` as one of its own, `{path}.experts.{e}.{theirs}`.
fn experts_apart(arrays: &Arrays, experts: usize, names: &[(&str, &str)]) -> Arrays {
    let mut apart = Arrays::new();
    for (name, array) in arrays {
        let Some((path, rest)) = name.split_once(".switch_mlp.") else {
            apart.insert(name.clone(), array.clone());
            continue;
        };
        let (ours, kind) = rest.split_once('.').unwrap();
        let (_, theirs) = names.iter().find(|(name, _)| *name == ours).unwrap();
        for expert in 0..experts {
            let one = array.index(expert as i64).unwrap().contiguous().unwrap();
            apart.insert(format!("{path}.experts.{expert}.{theirs}.{kind}"), one);
        }
    }
    apart
}

const SAME: [(&str, &str); 3] =
    [("gate_proj", "gate_proj"), ("up_proj", "up_proj"), ("down_proj", "down_proj")];

/// Norms that have 1 added when a checkpoint becomes MLX's; that of linear attention's result has not.
fn is_shifted(name: &str) -> bool {
    let ends = ["layernorm.weight", "model.norm.weight", "q_norm.weight", "k_norm.weight"];
    ends.iter().any(|end| name.ends_with(end))
}

/// Weights of norms that stay the same when 1 is taken off and added again.
fn round_norms(arrays: &mut Arrays) {
    for (name, array) in arrays.iter_mut().filter(|(name, _)| is_shifted(name)) {
        *array = add(subtract(&*array, 1.0).unwrap(), 1.0).unwrap();
        assert_eq!(array.rank(), 1, "{name}");
    }
}

/// Norms without the 1, convolutions with their taps last, and a part that predicts further tokens.
fn shifted(arrays: &Arrays) -> Arrays {
    let mut theirs = arrays.clone();
    for (name, array) in &mut theirs {
        if is_shifted(name) {
            *array = subtract(&*array, 1.0).unwrap();
        }
        if name.ends_with("conv1d.weight") {
            *array = array.swapaxes(1, 2).unwrap().contiguous().unwrap();
        }
    }
    let further = Array::from_slice(&[1.0f32; 4], &[4]).unwrap();
    theirs.insert("mtp.layers.0.input_layernorm.weight".to_string(), further);
    theirs
}

/// Weights of experts in MLX's layout, as numbers.
fn dense(arrays: &mut Arrays, path: &str) {
    let mut part = |kind: &str| arrays.remove(&format!("{path}.{kind}")).unwrap();
    let (codes, scales, biases) = (part("weight"), part("scales"), part("biases"));
    let scheme = Scheme::Affine { group_size: 32, bits: 4 };
    let quantized = Quantized::new(scheme, &codes, Some(&scales), Some(&biases)).unwrap();
    arrays.insert(format!("{path}.weight"), dequantize(&quantized, None).unwrap());
}

#[test]
fn experts_may_be_apart() {
    let names = [("gate_proj", "w1"), ("down_proj", "w2"), ("up_proj", "w3")];
    for (name, key, names) in
        [("small-mixtral", "num_local_experts", names), ("small-qwen3_moe", "num_experts", SAME)]
    {
        let experts = number(name, key);
        expect_same(name, |_| (), |arrays| experts_apart(arrays, experts, &names));
    }
}

#[test]
fn qwen3_next_may_have_plain_norms_and_further_tokens() {
    let name = "qwen3_next-4bit-f32";
    let experts = number(name, "num_experts");
    expect_same(name, round_norms, |arrays| {
        let theirs = shifted(&experts_apart(arrays, experts, &SAME));
        assert!(theirs.keys().any(|name| name.ends_with(".mlp.experts.0.up_proj.weight")));
        theirs
    });
}

#[test]
fn qwen3_5_may_be_within_a_model_that_sees() {
    for name in ["small-qwen3_5", "small-qwen3_5_moe"] {
        let paths: Vec<String> = (0..number(name, "num_hidden_layers"))
            .map(|layer| format!("language_model.model.layers.{layer}.mlp"))
            .collect();
        let has_experts = name.ends_with("moe");
        let ours = |arrays: &mut Arrays| {
            round_norms(arrays);
            for path in paths.iter().filter(|_| has_experts) {
                SAME.iter()
                    .for_each(|(name, _)| dense(arrays, &format!("{path}.switch_mlp.{name}")));
            }
        };
        let theirs = |arrays: &Arrays| {
            let mut arrays = arrays.clone();
            for path in paths.iter().filter(|_| has_experts) {
                let mut take = |name: &str| {
                    arrays.remove(&format!("{path}.switch_mlp.{name}.weight")).unwrap()
                };
                let both = concatenate(&[take("gate_proj"), take("up_proj")], 1).unwrap();
                let down = take("down_proj");
                arrays.insert(format!("{path}.experts.gate_up_proj"), both);
                arrays.insert(format!("{path}.experts.down_proj"), down);
            }
            let renamed = |(name, array): (String, Array)| {
                let name = match name.strip_prefix("language_model.model.") {
                    Some(rest) => format!("model.language_model.{rest}"),
                    None => name.replace("language_model.lm_head", "lm_head"),
                };
                (name, array)
            };
            let mut theirs: Arrays = shifted(&arrays).into_iter().map(renamed).collect();
            let sees = Array::from_slice(&[1.0f32; 4], &[2, 2]).unwrap();
            theirs.insert("model.visual.patch_embed.weight".to_string(), sees);
            theirs
        };
        expect_same(name, ours, theirs);
    }
}

#[test]
fn gemma3_may_be_within_a_model_that_sees() {
    expect_same(
        "gemma3-4bit-f32",
        |_| (),
        |arrays| {
            let renamed = |(name, array): (&String, &Array)| {
                let rest = name.strip_prefix("language_model.model.").unwrap();
                (format!("model.language_model.{rest}"), array.clone())
            };
            let mut theirs: Arrays = arrays.iter().map(renamed).collect();
            let sees = Array::from_slice(&[1.0f32; 4], &[2, 2]).unwrap();
            for name in ["vision_tower.embeddings.weight", "multi_modal_projector.weight"] {
                theirs.insert(format!("model.{name}"), sees.clone());
                theirs.insert(name.to_string(), sees.clone());
            }
            theirs
        },
    );
}

/// Rows of two arrays in turn, along the second axis.
fn in_turn(first: &Array, second: &Array) -> Array {
    let mut shape = first.shape().to_vec();
    shape[1] *= 2;
    stack(&[first.clone(), second.clone()], 2).unwrap().reshape(&shape).unwrap()
}

#[test]
fn gpt_oss_may_have_gates_in_turn_and_blocks_of_bytes() {
    let paths = ["model.layers.0.mlp.experts", "model.layers.1.mlp.experts"];
    let numbers = |arrays: &mut Arrays| {
        for path in paths {
            SAME.iter().for_each(|(name, _)| dense(arrays, &format!("{path}.{name}")));
        }
    };
    let blocks = |arrays: &mut Arrays| {
        numbers(arrays);
        for path in paths {
            for (name, _) in SAME {
                let name = format!("{path}.{name}");
                let quantized =
                    quantize(&arrays[&format!("{name}.weight")], Scheme::Mxfp4).unwrap();
                arrays.insert(format!("{name}.weight"), quantized.codes().clone());
                arrays.insert(format!("{name}.scales"), quantized.scales().unwrap().clone());
            }
        }
    };
    // `[experts, rows, words]` as `[experts, rows, blocks, bytes]`.
    let bytes = |words: &Array| {
        let shape = [words.shape()[0], words.shape()[1], words.shape()[2] / 4, 16];
        view(words, DType::U8).unwrap().reshape(&shape).unwrap()
    };
    for is_blocks in [false, true] {
        let theirs = |arrays: &Arrays| {
            let mut arrays = arrays.clone();
            for path in paths {
                let mut kinds = vec![("weight", if is_blocks { "_blocks" } else { "" })];
                kinds.push(("bias", "_bias"));
                kinds.extend(is_blocks.then_some(("scales", "_scales")));
                for (kind, theirs) in kinds {
                    let mut take = |name: &str| {
                        let array = arrays.remove(&format!("{path}.{name}.{kind}")).unwrap();
                        if theirs == "_blocks" { bytes(&array) } else { array }
                    };
                    let (gate, up, down) = (take("gate_proj"), take("up_proj"), take("down_proj"));
                    let ending = if theirs.is_empty() { ".weight" } else { theirs };
                    arrays.insert(format!("{path}.gate_up_proj{ending}"), in_turn(&gate, &up));
                    arrays.insert(format!("{path}.down_proj{ending}"), down);
                }
            }
            arrays
        };
        match is_blocks {
            true => expect_same("small-gpt_oss", blocks, theirs),
            false => expect_same("small-gpt_oss", numbers, theirs),
        }
    }
}

#[test]
fn an_index_older_than_its_file_does_not_matter() {
    let name = "small-mistral";
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(goldens().join(name).join("config.json"), folder.path().join("config.json"))
        .unwrap();
    let mut arrays = load_safetensors(&goldens().join(name).join("model.safetensors")).unwrap();
    let file = folder.path().join("model.safetensors");
    save_safetensors(&file, &arrays).unwrap();
    // As of weights before they were quantized.
    let dense: BTreeMap<&String, &str> = arrays
        .keys()
        .filter(|name| name.ends_with(".weight"))
        .map(|name| (name, "model.safetensors"))
        .collect();
    let mut map = serde_json::json!({ "weight_map": dense });
    map["weight_map"]["lm_head.weight"] = "model.safetensors".into();
    let index = folder.path().join("model.safetensors.index.json");
    std::fs::write(index, map.to_string()).unwrap();
    let of = |folder: &std::path::Path| scores(folder, &prompt(name));
    let same = of(folder.path()).unwrap().to_vec::<f32>().unwrap();
    assert!(same == of(&goldens().join(name)).unwrap().to_vec::<f32>().unwrap());
    // What the model needs is missed by name, though the index lists it.
    arrays.remove("model.norm.weight").unwrap();
    save_safetensors(&file, &arrays).unwrap();
    let error = of(folder.path()).unwrap_err().to_string();
    assert!(error.contains("model.norm.weight"), "{error}");
}

#[test]
fn all_files_of_a_folder_are_read_whatever_its_index_names() {
    let name = "small-mistral";
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::copy(goldens().join(name).join("config.json"), at("config.json")).unwrap();
    let arrays = load_safetensors(&goldens().join(name).join("model.safetensors")).unwrap();
    let (first, second): (BTreeMap<_, _>, BTreeMap<_, _>) =
        arrays.clone().into_iter().partition(|(name, _)| name.contains("layers.0."));
    save_safetensors(&at("model-a.safetensors"), &first).unwrap();
    save_safetensors(&at("model-b.safetensors"), &second).unwrap();
    let index = |of: &dyn Fn(&str) -> &'static str| {
        let map: BTreeMap<&String, &str> = arrays.keys().map(|name| (name, of(name))).collect();
        let json = serde_json::json!({ "weight_map": map }).to_string();
        std::fs::write(at("model.safetensors.index.json"), json).unwrap();
    };
    let own = scores(&goldens().join(name), &prompt(name)).unwrap().to_vec::<f32>().unwrap();
    let of_folder = || scores(folder.path(), &prompt(name));
    let is_same = || assert!(of_folder().unwrap().to_vec::<f32>().unwrap() == own);
    // One that names a file which is not there, one that names too few, and one that is damaged.
    index(&|_| "model-00001-of-00001.safetensors");
    is_same();
    index(&|_| "model-b.safetensors");
    is_same();
    std::fs::write(at("model.safetensors.index.json"), "{").unwrap();
    is_same();
    // A tensor that is in two files: the index says which counts, and without it nobody does.
    let wrong =
        first.iter().map(|(name, array)| (name.clone(), wootz::multiply(array, 2.0).unwrap()));
    let both: BTreeMap<_, _> = second.clone().into_iter().chain(wrong).collect();
    save_safetensors(&at("model-b.safetensors"), &both).unwrap();
    let error = of_folder().unwrap_err().to_string();
    assert!(error.contains("model-b.safetensors") && error.contains("is in model-a"), "{error}");
    index(&|name| {
        if name.contains("layers.0.") { "model-a.safetensors" } else { "model-b.safetensors" }
    });
    is_same();
    // What is missing is listed, with the file that it may have been in.
    std::fs::remove_file(at("model-a.safetensors")).unwrap();
    save_safetensors(&at("model-b.safetensors"), &second).unwrap();
    let error = of_folder().unwrap_err().to_string();
    assert!(error.contains("missing: model.layers.0."), "{error}");
    let lost = "model.safetensors.index.json names model-a.safetensors, which is not there";
    assert!(error.ends_with(lost), "{error}");
    std::fs::remove_file(at("model-b.safetensors")).unwrap();
    let error = of_folder().unwrap_err().to_string();
    assert!(error.contains("model-a.safetensors is not there"), "{error}");
    std::fs::remove_file(at("model.safetensors.index.json")).unwrap();
    let error = of_folder().unwrap_err().to_string();
    assert!(error.contains("no model*.safetensors in this folder"), "{error}");
}
