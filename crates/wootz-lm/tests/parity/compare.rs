//! Runs a checkpoint beside what mlx-lm computed of it: the scores of a prompt, and those of greedy generation.
//!
//! In narrow types MLX on the CPU rounds sums of quantized products step by step, so that its own scores are
//! up to 0.7 of the largest away from what the same weights give in single precision, and no other arithmetic
//! can follow. There each layer begins with what MLX's layer before it gave. From MLX's last layer scores agree
//! within 3e-2; a layer's results, which go through seven such products, within 6e-2 (single precision itself: up to
//! 4.6e-2), for the median token, because rounding sends some to another expert.

use std::path::{Path, PathBuf};

use wootz::io::Safetensors;
use wootz::{Array, DType, Device, argmax};
use wootz_lm::cache::CacheOptions;
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::generate::Session;
use wootz_lm::models::{LanguageModel, LoadOptions, ModelInfo, layer_outputs, load};

/// The file of a checkpoint's folder that has the expected results.
pub const EXPECTED: &str = "expected.safetensors";

/// What came out.
pub struct Outcome {
    /// Of activations.
    pub dtype: DType,
    /// Tokens that were chosen as expected, from the first on, and how many there are.
    pub tokens: (usize, usize),
    /// The largest error of a score, relative to the largest score.
    pub error: f64,
    /// The largest of the layers' median errors of a token, from MLX's input of the layer.
    pub layer_error: f64,
    /// The error of the scores from MLX's input of them.
    pub forced_error: f64,
}

impl Outcome {
    /// Whether it is as it should be.
    pub fn passes(&self) -> bool {
        match self.dtype {
            DType::F32 => self.tokens.0 == self.tokens.1 && self.error <= 1e-4,
            _ => self.layer_error <= 6e-2 && self.forced_error <= 3e-2,
        }
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

    let (layer_error, forced_error) = layer_errors(model.as_ref(), &prompt, &expected)?;
    let mut session = Session::new(model.clone(), &CacheOptions::default())?;
    let mut error = difference(&session.logits_of(&prompt)?, &read("logits")?)?;

    // In chunks of a length that divides nothing.
    let mut session = Session::new(model, &CacheOptions::default())?;
    let mut logits = session.prefill(&prompt, 7, &mut |_, _| ())?;
    let (tokens, scores) = (read("greedy_tokens")?.to_vec::<i32>()?, read("greedy_logits")?);
    let mut equal = 0;
    for (step, &token) in tokens.iter().enumerate() {
        let chosen = argmax(&logits, -1, false)?.to_vec::<u32>()?[0];
        if equal == step && chosen == token as u32 {
            equal += 1;
        }
        let row = scores.index(step as i64..step as i64 + 1)?;
        error = error.max(difference(&logits, &row)?);
        let next = Array::from_slice_on(&[token as u32], &[1, 1], device)?;
        logits = session.decode(&next)?;
    }
    Ok(Outcome { dtype, tokens: (equal, tokens.len()), error, layer_error, forced_error })
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
        let mut errors = token_errors(output, &expected.tensor_on(name, &Device::cpu())?)?;
        errors.sort_by(f64::total_cmp);
        worst = worst.max(errors[errors.len() / 2]);
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
fn difference(got: &Array, expected: &Array) -> wootz_lm::Result<f64> {
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
