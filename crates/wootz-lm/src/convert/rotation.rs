//! How positions are rotated: in MLX numbers of the configuration, in GGUF keys, and tensors of factors.

use std::f64::consts::PI;

use serde_json::{Value as Json, json};
use wootz::io::gguf::Value;
use wootz::{Array, DType, Device};

use super::model::{Model, Tensor};
use crate::checkpoint::gguf::shortest;
use crate::layers::RopeConfig;
use crate::{Error, Result};

/// What Llama 3 divides its wavelengths by.
const LLAMA: &str = "rope_freqs.weight";
/// The same of Phi-3, for texts that are longer than those it first saw, and for others.
const LONG: &str = "rope_factors_long.weight";
const SHORT: &str = "rope_factors_short.weight";

/// Whether a tensor of GGUF's is of factors.
pub(super) fn is_factors(name: &str) -> bool {
    [LLAMA, LONG, SHORT].contains(&name)
}

/// The base of rotation; without one, what the architecture's models take.
pub(super) fn theta(rope: &RopeConfig, architecture: &str) -> f64 {
    rope.theta(match architecture {
        "qwen2" | "qwen3" | "gemma3" => 1e6,
        _ => 1e4,
    })
}

/// What the configuration says of rotation, as the architecture's models read it.
pub(super) fn rope(model: &Model<'_>, architecture: &str) -> RopeConfig {
    let of = |key: &str| model.get(key).cloned();
    let rope = RopeConfig {
        rope_theta: model.float("rope_theta"),
        rope_scaling: of("rope_scaling"),
        rope_parameters: of("rope_parameters"),
        ..RopeConfig::default()
    };
    if architecture == "qwen3" { rope.merged() } else { rope }
}

/// Features of a head that are rotated.
pub(super) fn dims(model: &Model<'_>, architecture: &str, head_dim: usize) -> usize {
    if architecture != "phi3" {
        return head_dim;
    }
    let nested = || rope(model, architecture).newer()?.get("partial_rotary_factor")?.as_f64();
    let part = model.float("partial_rotary_factor").or_else(nested).unwrap_or(1.0);
    (head_dim as f64 * part) as usize
}

fn kind(scaling: &Json) -> Option<&str> {
    let word = |key: &str| scaling.get(key).and_then(Json::as_str).filter(|word| !word.is_empty());
    word("type").or_else(|| word("rope_type"))
}

/// Factors for each pair as a configuration lists them.
fn listed(scaling: &Json, key: &str) -> Vec<f32> {
    let values = scaling.get(key).and_then(Json::as_array).into_iter().flatten();
    values.filter_map(Json::as_f64).map(|number| number as f32).collect()
}

/// What sizes of rotated features are multiplied with, for such a context.
fn longrope_size(context: u64, original: u64) -> f64 {
    let ratio = context as f64 / original as f64;
    if ratio <= 1.0 { 1.0 } else { (1.0 + ratio.ln() / (original as f64).ln()).sqrt() }
}

/// Tokens that a model is for, and those that it was for at first.
fn contexts(model: &Model<'_>, scaling: &Json, architecture: &str) -> Result<[u64; 2]> {
    let context = model.require("max_position_embeddings")? as u64;
    let key = "original_max_position_embeddings";
    let nested = |part: &Json| part.get(key)?.as_u64();
    let original = match architecture {
        "phi3" => {
            let newer = || nested(rope(model, architecture).newer()?);
            model.number(key).map(|number| number as u64).or_else(newer)
        }
        _ => nested(scaling),
    };
    Ok([context, original.unwrap_or(4096)])
}

/// Keys that say how positions are scaled.
pub(super) fn keys(
    model: &Model<'_>,
    architecture: &str,
    put: &mut impl FnMut(&str, Value),
) -> Result<()> {
    let rope = rope(model, architecture);
    let Some(scaling) = rope.stretch() else { return Ok(()) };
    let float = |key: &str| scaling.get(key).and_then(Json::as_f64);
    match (kind(scaling), architecture) {
        // Those of Llama are factors in a tensor.
        (None | Some("default"), _) | (Some("llama3" | "longrope"), "llama") => Ok(()),
        (Some("longrope" | "su"), "phi3") => {
            let [context, original] = contexts(model, scaling, architecture)?;
            put("rope.scaling.type", "longrope".into());
            put("rope.scaling.original_context_length", (original as u32).into());
            let size = longrope_size(context, original) as f32;
            put("rope.scaling.attn_factor", size.into());
            Ok(())
        }
        // As in mlx-lm, which does not stretch by other ways that come with such factors.
        (Some(_), "phi3") if kind(scaling) != Some("linear") && is_ignored(scaling) => Ok(()),
        (Some(kind @ ("linear" | "yarn")), _) => {
            put("rope.scaling.type", kind.into());
            put("rope.scaling.factor", (float("factor").unwrap_or(1.0) as f32).into());
            if kind == "linear" {
                return Ok(());
            }
            // Sizes of rotated features are llama.cpp's own.
            let computed = 0.1 * float("factor").unwrap_or(1.0).max(1.0).ln() + 1.0;
            let usual = [("mscale", 1.0), ("mscale_all_dim", 0.0), ("attention_factor", computed)];
            for (key, usual) in usual {
                if let Some(got) = float(key).filter(|got| (got - usual).abs() > 1e-6) {
                    let what = format!("GGUF cannot say that rope_scaling.{key} is {got}");
                    return Err(Error::invalid(model.path(), what));
                }
            }
            let length = float("original_max_position_embeddings").unwrap_or(4096.0);
            put("rope.scaling.original_context_length", (length as u32).into());
            for (key, usual) in [("beta_fast", 32.0), ("beta_slow", 1.0)] {
                if let Some(beta) = float(key).filter(|beta| *beta != usual) {
                    put(&format!("rope.scaling.yarn_{key}"), (beta as f32).into());
                }
            }
            Ok(())
        }
        (Some(other), _) => {
            let what = format!(
                "rope_scaling of type {other:?} is not known to be GGUF's of {architecture}"
            );
            Err(Error::invalid(model.path(), what))
        }
    }
}

/// Whether Phi-3 in mlx-lm takes a scaling of some other type for none.
fn is_ignored(scaling: &Json) -> bool {
    scaling.get("type").is_some() && scaling.get("long_factor").is_some()
}

/// The factors that GGUF has as tensors. `kept` has those of the file that a folder was made of: they are taken
/// while the configuration is what was made of them.
pub(super) fn tensors(
    model: &Model<'_>,
    architecture: &str,
    head_dim: usize,
    kept: impl Fn(&str) -> Option<Array>,
) -> Result<Vec<(&'static str, Array)>> {
    let rope = rope(model, architecture);
    let Some(scaling) = rope.stretch() else { return Ok(Vec::new()) };
    let pairs = dims(model, architecture, head_dim) / 2;
    let made = |name: &'static str, factors: Vec<f32>| {
        if factors.len() != pairs {
            let what = format!("{name}: expected {pairs} factors, got {}", factors.len());
            return Err(Error::invalid(model.path(), what));
        }
        Ok((name, Array::from_slice_on(&factors, &[pairs], &Device::cpu())?))
    };
    match (kind(scaling), architecture) {
        (Some("llama3" | "longrope"), "llama") => {
            if let Some(factors) = kept(LLAMA)
                && let Ok(numbers) = numbers(&factors)
                && of_llama(&numbers, theta(&rope, architecture), positions(model)) == *scaling
            {
                return Ok(vec![(LLAMA, factors)]);
            }
            if kind(scaling) == Some("llama3") {
                let factors = Llama3::of(scaling).factors(theta(&rope, architecture), pairs);
                let factors = factors.into_iter().map(|factor| factor as f32).collect();
                return Ok(vec![made(LLAMA, factors)?]);
            }
            let [context, original] = contexts(model, scaling, architecture)?;
            if context > original {
                let what = format!(
                    "GGUF cannot say that rope_scaling of llama is longrope for {context} positions, \
                     more than {original}"
                );
                return Err(Error::invalid(model.path(), what));
            }
            Ok(vec![made(LLAMA, listed(scaling, "long_factor"))?])
        }
        (Some("longrope" | "su"), "phi3") => {
            if let (Some(long), Some(short)) = (kept(LONG), kept(SHORT))
                && let (Ok(of_long), Ok(of_short)) = (numbers(&long), numbers(&short))
            {
                let of_both = of_phi3(&of_long, &of_short, contexts(model, scaling, architecture)?);
                if ["long_factor", "short_factor"].iter().all(|key| of_both[key] == scaling[key]) {
                    return Ok(vec![(LONG, long), (SHORT, short)]);
                }
            }
            let of = |key: &str| listed(scaling, key);
            Ok(vec![made(LONG, of("long_factor"))?, made(SHORT, of("short_factor"))?])
        }
        _ => Ok(Vec::new()),
    }
}

/// Makes of a GGUF file's factors what MLX computes them from, or lists them.
pub(super) fn take(model: &mut Model<'_>, architecture: &str) -> Result<()> {
    let mut factors = |name: &str| -> Result<Option<Vec<f32>>> {
        match model.tensors.remove(name) {
            Some(Tensor::Dense(array)) => {
                let found = numbers(&array)?;
                model.kept.push((name.to_string(), array));
                Ok(Some(found))
            }
            Some(Tensor::Quantized(_)) => {
                Err(Error::invalid(model.checkpoint.path(), format!("{name}: expected numbers")))
            }
            None => Ok(None),
        }
    };
    if architecture == "llama"
        && let Some(factors) = factors(LLAMA)?
    {
        if let Some(other) = model.get("rope_scaling") {
            let what = format!("MLX has no rotation with both {LLAMA} and {other}");
            return Err(Error::invalid(model.path(), what));
        }
        let base = model.float("rope_theta").unwrap_or(10000.0);
        let scaling = of_llama(&factors, base, positions(model));
        model.config.insert("rope_scaling".into(), scaling);
        return Ok(());
    }
    if architecture != "phi3" {
        return Ok(());
    }
    let (long, short) = (factors(LONG)?, factors(SHORT)?);
    let Some(long) = long else { return Ok(()) };
    let short = short.unwrap_or_else(|| long.clone());
    let scaling = model.get("rope_scaling").cloned().unwrap_or_default();
    let [context, original] = contexts(model, &scaling, architecture)?;
    let (size, own) =
        (longrope_size(context, original), scaling["attention_factor"].as_f64().unwrap_or(1.0));
    if (size - own).abs() > 1e-5 {
        let what = format!("phi3.rope.scaling.attn_factor: MLX computes {size}, got {own}");
        return Err(Error::invalid(model.path(), what));
    }
    let scaling = of_phi3(&long, &short, [context, original]);
    model.config.insert("rope_scaling".into(), scaling);
    Ok(())
}

fn numbers(factors: &Array) -> Result<Vec<f32>> {
    Ok(factors.astype(DType::F32)?.to_vec::<f32>()?)
}

fn positions(model: &Model<'_>) -> u64 {
    model.number("max_position_embeddings").unwrap_or(2048) as u64
}

fn list(factors: &[f32]) -> Json {
    factors.iter().map(|factor| shortest(f64::from(*factor))).collect()
}

/// What the configuration says for factors of Phi-3. mlx-lm always takes the long ones, so that those of a model
/// for no more tokens than it first saw are the short ones.
fn of_phi3(long: &[f32], short: &[f32], [context, original]: [u64; 2]) -> Json {
    let used = if context > original { long } else { short };
    json!({ "type": "longrope", "long_factor": list(used), "short_factor": list(short) })
}

/// What the configuration says for factors of Llama: numbers of Llama 3's kind that give them, else all of them, as
/// Phi-3 has them.
fn of_llama(factors: &[f32], base: f64, positions: u64) -> Json {
    let largest = factors.iter().fold(1.0f32, |most, factor| most.max(*factor));
    let originals = std::iter::once(8192).chain((4..24).map(|power| 1u64 << power));
    let known = originals
        .map(|original| Llama3 { factor: shortest(largest.into()), low: 1.0, high: 4.0, original })
        .find(|known| {
            // As near as single precision on the way to them.
            let near = |(a, b): (&f32, f64)| (f64::from(*a) - b).abs() <= 1e-5 * b;
            factors.iter().zip(known.factors(base, factors.len())).all(near)
        });
    match known {
        Some(Llama3 { factor, low, high, original }) => json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": low,
            "high_freq_factor": high, "original_max_position_embeddings": original,
        }),
        None => json!({
            "rope_type": "longrope", "long_factor": list(factors), "short_factor": list(factors),
            "original_max_position_embeddings": positions,
        }),
    }
}

/// How Llama 3 stretches positions.
struct Llama3 {
    factor: f64,
    low: f64,
    high: f64,
    original: u64,
}

impl Llama3 {
    fn of(scaling: &Json) -> Llama3 {
        let float = |key: &str| scaling.get(key).and_then(Json::as_f64);
        Llama3 {
            factor: float("factor").unwrap_or(1.0),
            low: float("low_freq_factor").unwrap_or(1.0),
            high: float("high_freq_factor").unwrap_or(4.0),
            original: float("original_max_position_embeddings").unwrap_or(8192.0) as u64,
        }
    }

    /// What it divides its frequencies by.
    fn factors(&self, base: f64, count: usize) -> Vec<f64> {
        let Llama3 { factor, low, high, .. } = *self;
        let original = self.original as f64;
        let of = |i: usize| {
            let wavelength = 2.0 * PI * base.powf(i as f64 / count as f64);
            if wavelength < original / high {
                1.0
            } else if wavelength > original / low {
                factor
            } else {
                let smooth = (original / wavelength - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        };
        (0..count).map(of).collect()
    }
}
