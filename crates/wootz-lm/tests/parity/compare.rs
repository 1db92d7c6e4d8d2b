//! Runs a checkpoint beside what mlx-lm computed of it: the scores of a prompt, and those of greedy generation.

use std::path::{Path, PathBuf};

use wootz::io::Safetensors;
use wootz::{Array, DType, Device, argmax};
use wootz_lm::cache::CacheOptions;
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::generate::Session;
use wootz_lm::models::{LoadOptions, load};

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
}

impl Outcome {
    /// What the error may be.
    pub fn tolerance(&self) -> f64 {
        if self.dtype == DType::F32 { 1e-4 } else { 3e-2 }
    }

    /// Whether it is as it should be: in narrow types, a tie of tokens may go either way.
    pub fn passes(&self) -> bool {
        let greedy = self.tokens.0 == self.tokens.1 || self.dtype != DType::F32;
        greedy && self.error <= self.tolerance()
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

/// Runs one. `expected` is the folder with the expected results, `folder` that of the model.
pub fn compare(folder: &Path, expected: &Path, device: &Device) -> wootz_lm::Result<Outcome> {
    let expected = Safetensors::open(expected.join(EXPECTED))?;
    let cpu = Device::cpu();
    let read = |name: &str| expected.tensor_on(name, &cpu);
    let prompt: Vec<u32> =
        read("prompt")?.to_vec::<i32>()?.into_iter().map(|token| token as u32).collect();
    let model = load(&Checkpoint::open(folder)?, &LoadOptions { device: device.clone() })?;
    let dtype = model.info().dtype;

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
    Ok(Outcome { dtype, tokens: (equal, tokens.len()), error })
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
