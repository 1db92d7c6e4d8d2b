//! Runs a checkpoint beside what mlx-lm computed of it: the scores of a prompt, and those of greedy generation.
//!
//! In narrow types MLX on the CPU rounds sums of quantized products step by step, so that its own scores are
//! up to 0.7 of the largest away from what the same weights give in single precision, and no other arithmetic
//! can follow. There each layer begins with what MLX's layer before it gave. From MLX's last layer scores agree
//! within 3e-2; a layer's results, which go through seven such products, within 6e-2 (single precision itself: up to
//! 4.6e-2), for the median token, because rounding sends some to another expert. Both hold for sums of up to
//! 256 products; the error of a sum that is rounded at every step grows with the root of its length. What a cache changes is
//! then compared with our own scores without one. Products with weights that are not quantized MLX sums in single precision:
//! there whole models agree, and their scores must.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use wootz::io::Safetensors;
use wootz::{Array, DType, Device, argmax, to_device};
use wootz_lm::cache::CacheOptions;
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::generate::Session;
use wootz_lm::models::{LanguageModel, LoadOptions, ModelInfo, layer_outputs, load};

/// The file of a checkpoint's folder that has the expected results.
pub const EXPECTED: &str = "expected.safetensors";

/// The longest sum of a product for which the limits in narrow types hold as they are.
const LENGTH: f64 = 256.0;

/// What came out.
pub struct Outcome {
    /// Of activations.
    pub dtype: DType,
    /// Tokens that were chosen as expected, from the first on, and how many there are.
    pub tokens: (usize, usize),
    /// The largest error of a score, relative to the largest score.
    pub error: f64,
    /// What only narrow types are judged by.
    pub narrow: Option<Narrow>,
}

/// Errors of a model in a narrow type.
#[derive(Clone, Copy)]
pub struct Narrow {
    /// The largest of the layers' median errors of a token, from MLX's input of the layer.
    pub layer_error: f64,
    /// The error of the scores from MLX's input of them.
    pub forced_error: f64,
    /// The median error of scores with a cache from our own without one, which rotation that follows the length of a text
    /// makes another computation.
    pub cached_error: Option<f64>,
    /// Whether no weight is quantized.
    pub dense: bool,
    /// How much longer than usual sums are, as a factor of errors.
    pub growth: f64,
}

impl Outcome {
    /// Whether it is as it should be.
    pub fn passes(&self) -> bool {
        let same = self.narrow.is_some() || self.tokens.0 == self.tokens.1;
        same && self
            .judged()
            .iter()
            .all(|(_, error, limit)| limit.is_none_or(|most| *error <= most))
    }

    /// The errors by name, and the limits of those that decide.
    pub fn judged(&self) -> Vec<(&'static str, f64, Option<f64>)> {
        let Some(narrow) = &self.narrow else {
            return vec![("logit error", self.error, Some(1e-4))];
        };
        let Narrow { layer_error, forced_error, cached_error, dense, growth } = *narrow;
        let mut all = vec![
            ("logit error", self.error, dense.then_some(3e-2)),
            ("layer error", layer_error, Some(6e-2 * growth)),
            ("forced logits", forced_error, Some(3e-2 * growth)),
        ];
        all.extend(cached_error.map(|error| ("cached", error, Some(3e-2))));
        all
    }

    /// Which errors decide, with their limits, and which do not.
    pub fn limits(&self) -> String {
        let said = |(name, _, limit): (&str, f64, Option<f64>)| match limit {
            Some(most) => format!("{name} ≤ {most:.1e}"),
            None => format!("{name} not judged"),
        };
        let mut all: Vec<String> = self.judged().into_iter().map(said).collect();
        match &self.narrow {
            None => all.push("all tokens".to_string()),
            Some(narrow) if narrow.cached_error.is_none() => all.push("cached not compared".into()),
            Some(_) => {}
        }
        all.join(", ")
    }
}

/// The checkpoints below a folder that have expected results, sorted.
pub fn checkpoints(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if folder.join(EXPECTED).exists() {
        found.push(folder.to_path_buf());
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(checkpoints(&path)?);
        }
    }
    found.sort();
    Ok(found)
}

/// Runs one. `expected` is the folder with the expected results, `folder` that of the model, which may be a
/// `model.gguf` there.
pub fn compare(folder: &Path, expected: &Path, device: &Device) -> wootz_lm::Result<Outcome> {
    let expected = Safetensors::open(expected.join(EXPECTED))?;
    let cpu = Device::cpu();
    let read = |name: &str| expected.tensor_on(name, &cpu);
    let prompt: Vec<u32> =
        read("prompt")?.to_vec::<i32>()?.into_iter().map(|token| token as u32).collect();
    let gguf = folder.join("model.gguf");
    let checkpoint = Checkpoint::open(if gguf.exists() { gguf.as_path() } else { folder })?;
    let model = load(&checkpoint, &LoadOptions { device: device.clone() })?;
    let dtype = model.info().dtype;
    let (tokens, scores) = (read("greedy_tokens")?.to_vec::<i32>()?, read("greedy_logits")?);
    let tokens: Vec<u32> = tokens.into_iter().map(|token| token as u32).collect();

    let mut session = Session::new(model.clone(), &CacheOptions::default())?;
    let mut error = difference(&session.logits_of(&prompt)?, &read("logits")?)?;
    // The prompt in one piece, as mlx-lm recorded it; and in chunks of a length that divides nothing. Where
    // rotation depends on the length of the text, chunks are another computation.
    let whole = generated(&model, &prompt, prompt.len(), &tokens)?;
    let mut equal = equal_tokens(&whole, &tokens)?;
    error = error.max(difference(&whole, &scores)?);
    if !is_dynamic(checkpoint.config()) {
        let chunked = generated(&model, &prompt, 7, &tokens)?;
        equal = equal.min(equal_tokens(&chunked, &tokens)?);
        error = error.max(difference(&chunked, &scores)?);
    }
    let narrow = match dtype {
        DType::F32 => None,
        _ => Some(narrow(&checkpoint, model, [&prompt, &tokens], &whole, &expected)?),
    };
    Ok(Outcome { dtype, tokens: (equal, tokens.len()), error, narrow })
}

/// The scores `[steps, vocabulary]` that choose each of the tokens behind a prompt, which is read in chunks.
fn generated(
    model: &Arc<dyn LanguageModel>,
    prompt: &[u32],
    chunk: usize,
    tokens: &[u32],
) -> wootz_lm::Result<Array> {
    let mut session = Session::new(model.clone(), &CacheOptions::default())?;
    let mut steps = vec![session.prefill(prompt, chunk, &mut |_, _| ())?];
    for &token in &tokens[..tokens.len().saturating_sub(1)] {
        let next = Array::from_slice_on(&[token], &[1, 1], &model.info().device)?;
        steps.push(session.decode(&next)?);
    }
    Ok(to_device(&wootz::concatenate(&steps, 0)?, &Device::cpu())?)
}

/// How many tokens are those with the largest scores, from the first on.
fn equal_tokens(scores: &Array, tokens: &[u32]) -> wootz_lm::Result<usize> {
    let chosen = argmax(scores, -1, false)?.to_vec::<u32>()?;
    Ok(chosen.iter().zip(tokens).take_while(|(a, b)| a == b).count())
}

/// Whether rotary positions depend on the length of the text.
fn is_dynamic(config: &serde_json::Value) -> bool {
    [config, &config["text_config"]].iter().any(|config| {
        ["rope_scaling", "rope_parameters"].iter().any(|key| {
            let scaling = &config[key];
            [&scaling["type"], &scaling["rope_type"]].iter().any(|kind| *kind == "dynamic")
        })
    })
}

/// The longest sum of a layer's products: of features, of those between a block's two products, or of heads.
fn longest_sum(config: &serde_json::Value, hidden_size: usize) -> usize {
    let get = |key: &str| config["text_config"].get(key).or(config.get(key))?.as_u64();
    let sizes = ["intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size"];
    let heads = |count: &str, size: Option<u64>| Some(get(count)? * size?);
    let whole = get("num_attention_heads").map(|count| hidden_size as u64 / count.max(1));
    let attention = heads("num_attention_heads", get("head_dim").or(whole));
    let linear = heads("linear_num_value_heads", get("linear_value_head_dim"));
    let others = sizes.iter().filter_map(|size| get(size)).chain(attention).chain(linear);
    others.max().map_or(hidden_size, |longest| hidden_size.max(longest as usize))
}

/// What a model in a narrow type is judged by. `cached` are its scores of each step with a cache.
fn narrow(
    checkpoint: &Checkpoint,
    model: Arc<dyn LanguageModel>,
    [prompt, tokens]: [&[u32]; 2],
    cached: &Array,
    expected: &Safetensors,
) -> wootz_lm::Result<Narrow> {
    let (layer_error, forced_error) = layer_errors(model.as_ref(), prompt, expected)?;
    let longest = longest_sum(checkpoint.config(), model.info().hidden_size);
    let growth = (longest as f64 / LENGTH).sqrt().max(1.0);
    let dense = model.info().schemes.is_empty();
    let mut cached_error = None;
    if !is_dynamic(checkpoint.config()) {
        let all = [prompt, &tokens[..tokens.len().saturating_sub(1)]].concat();
        let mut session = Session::new(model, &CacheOptions::default())?;
        let rows = to_device(&session.logits_of(&all)?, &Device::cpu())?;
        let rows = rows.index(prompt.len() as i64 - 1..)?.astype(DType::F32)?.contiguous()?;
        cached_error = Some(median(token_errors(cached, &rows)?));
    }
    Ok(Narrow { layer_error, forced_error, cached_error, dense, growth })
}

fn median(mut errors: Vec<f64>) -> f64 {
    errors.sort_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied().unwrap_or(f64::INFINITY)
}

/// The largest of the median errors of layers that begin with what MLX's layer before gave, and the error of
/// the scores behind the last.
fn layer_errors(
    model: &dyn LanguageModel,
    prompt: &[u32],
    expected: &Safetensors,
) -> wootz_lm::Result<(f64, f64)> {
    let names: Vec<String> =
        (0..model.info().layers).map(|layer| format!("layer_{layer}")).collect();
    let ModelInfo { dtype, device, .. } = model.info();
    let given = |name: &String| {
        let array = expected.tensor_on(name, device)?.astype(*dtype)?;
        wootz::expand_dims(&array, 0)
    };
    let given = names.iter().map(given).collect::<wootz::Result<Vec<_>>>()?;
    let outputs = layer_outputs(model, prompt, &given)?;
    let mut worst = 0.0f64;
    for (output, name) in outputs.iter().zip(&names) {
        worst =
            worst.max(median(token_errors(output, &expected.tensor_on(name, &Device::cpu())?)?));
    }
    let scores = model.logits(&outputs[names.len()])?;
    let of_mlx = expected.tensor_on("logits_nocache", &Device::cpu())?;
    let whole = of_mlx.reshape(&[1, of_mlx.size()])?;
    let forced = token_errors(&scores.reshape(whole.shape())?, &whole)?[0];
    Ok((worst, forced))
}

/// The length of each row's difference, relative to the row's.
fn token_errors(got: &Array, expected: &Array) -> wootz_lm::Result<Vec<f64>> {
    let got = got.astype(DType::F32)?.to_vec::<f32>()?;
    let width = expected.shape()[1];
    let expected = expected.to_vec::<f32>()?;
    let length = |row: &mut dyn Iterator<Item = f32>| {
        row.map(|x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt()
    };
    let rows = got.chunks(width).zip(expected.chunks(width));
    let error = |(got, expected): (&[f32], &[f32])| {
        let off = length(&mut got.iter().zip(expected).map(|(a, b)| a - b));
        let error = off / length(&mut expected.iter().copied());
        if error.is_nan() { f64::INFINITY } else { error }
    };
    Ok(rows.map(error).collect())
}

/// The largest difference, relative to the largest score.
pub fn difference(got: &Array, expected: &Array) -> wootz_lm::Result<f64> {
    let got = got.astype(DType::F32)?.to_vec::<f32>()?;
    let expected = expected.to_vec::<f32>()?;
    let largest = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let mut worst = if got.len() == expected.len() { 0.0 } else { f32::INFINITY };
    for (a, b) in got.iter().zip(&expected) {
        // NaN is no maximum.
        let error = (a - b).abs();
        worst = if error.is_nan() { f32::INFINITY } else { worst.max(error) };
    }
    Ok(f64::from(worst / largest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DType, Narrow, Outcome, is_dynamic, longest_sum};

    #[test]
    fn whole_models_are_judged_where_no_weight_is_quantized() {
        let passes = |dense: bool, error: f64, growth: f64| {
            let (layer_error, forced_error, cached_error) = (5e-2, 2e-2, Some(0.0));
            let narrow = Narrow { layer_error, forced_error, cached_error, dense, growth };
            let (dtype, tokens) = (DType::BF16, (3, 8));
            Outcome { dtype, tokens, error, narrow: Some(narrow) }.passes()
        };
        assert!(passes(true, 2.9e-2, 1.0) && passes(false, 0.5, 1.0));
        assert!(!passes(true, 3.1e-2, 1.0) && !passes(true, 3.1e-2, 4.0));
        assert!(!passes(true, f64::INFINITY, 1.0) && !passes(true, f64::NAN, 1.0));
    }

    #[test]
    fn an_outcome_says_which_limits_it_is_judged_by() {
        let (layer_error, forced_error, cached_error) = (5e-2, 2e-2, None);
        let narrow = Narrow { layer_error, forced_error, cached_error, dense: false, growth: 2.0 };
        let (dtype, tokens, error) = (DType::BF16, (3, 8), 0.7);
        let outcome = Outcome { dtype, tokens, error, narrow: Some(narrow) };
        let said = "logit error not judged, layer error ≤ 1.2e-1, forced logits ≤ 6.0e-2, cached not compared";
        assert_eq!(outcome.limits(), said);
        let outcome = Outcome { dtype: DType::F32, narrow: None, ..outcome };
        assert_eq!(outcome.limits(), "logit error ≤ 1.0e-4, all tokens");
    }

    #[test]
    fn what_limits_depend_on_is_read_of_the_text_model_too() {
        let dynamic = json!({ "rope_parameters": { "rope_type": "dynamic" } });
        assert!(is_dynamic(&dynamic) && is_dynamic(&json!({ "text_config": dynamic })));
        assert!(!is_dynamic(&json!({ "text_config": { "rope_scaling": { "type": "linear" } } })));
        let sizes = json!({ "hidden_size": 64, "num_attention_heads": 4, "head_dim": 32 });
        assert_eq!(longest_sum(&sizes, 64), 128);
        let wider = json!({ "intermediate_size": 176, "num_attention_heads": 4 });
        assert_eq!(longest_sum(&wider, 64), 176);
        assert_eq!(
            longest_sum(&json!({ "text_config": wider, "intermediate_size": 999 }), 64),
            176
        );
        let linear = json!({ "linear_num_value_heads": 8, "linear_value_head_dim": 32 });
        assert_eq!(longest_sum(&linear, 64), 256);
        assert_eq!(longest_sum(&json!({}), 64), 64);
    }
}
