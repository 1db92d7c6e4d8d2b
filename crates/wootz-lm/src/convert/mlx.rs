//! Writes a folder in MLX's layout: weights in files of at most 5 GiB with an index, the configuration,
//! and whatever belongs to the tokenizer.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use wootz::io::{Sharding, save_sharded};
use wootz::quant::Scheme;
use wootz::{Array, DType, dequantize, quantize};

use super::model::{Model, Tensor};
use super::recipe::{Choice, bits, group_size, mode};
use super::{ConvertOptions, Quantize, Report, companions};
use crate::{Error, Result};

/// Writes a model to a folder. Nobody else may hold its tensors, or what is made of one to write it would stay.
pub(super) fn write(
    mut model: Model<'_>,
    folder: &Path,
    options: &ConvertOptions,
) -> Result<Report> {
    let choice = choice(&model, options)?;
    let dtype = options.dtype.or_else(|| configured_dtype(&model));
    let tensors = std::mem::take(&mut model.tensors);
    let model = &model;
    let mut arrays = Vec::new();
    let mut schemes = Schemes::default();
    let mut parameters = 0u64;
    for (name, tensor) in tensors {
        parameters += tensor.shape().iter().map(|&length| length as u64).product::<u64>();
        let path = name.strip_suffix(".weight");
        let chosen = path.and_then(|path| choice.as_ref()?.of(path, &tensor.shape()));
        let quantize = |array: &Array, scheme| {
            quantize(array, scheme).map_err(|error| model.error_of(&name, error))
        };
        match (tensor, path, chosen) {
            (Tensor::Dense(array), Some(path), Some(scheme)) => {
                let weights = quantize(&cast(&name, &array, dtype, model)?, scheme)?;
                schemes.add(path, scheme);
                push(&mut arrays, path, &weights);
            }
            (Tensor::Dense(array), ..) => {
                arrays.push((name.clone(), cast(&name, &array, dtype, model)?))
            }
            (Tensor::Quantized(weights), Some(path), chosen) => {
                let scheme = weights.scheme();
                let again = match (scheme, chosen) {
                    (Scheme::Blocks(_), chosen) => Some(chosen.unwrap_or_else(|| nearest(scheme))),
                    (_, Some(chosen)) if options.requantize => Some(chosen),
                    _ => None,
                };
                let weights = match again {
                    None => weights,
                    Some(scheme) => {
                        let numbers = dequantize(&weights, Some(dtype.unwrap_or(DType::F16)))?;
                        quantize(&numbers, scheme)?
                    }
                };
                schemes.add(path, weights.scheme());
                push(&mut arrays, path, &weights);
            }
            (Tensor::Quantized(_), None, _) => {
                return Err(Error::invalid(
                    model.path(),
                    format!("{name} is quantized, but not a weight"),
                ));
            }
        }
    }
    fs::create_dir_all(folder).map_err(|error| Error::file(folder, error))?;
    let report = Report {
        path: folder.to_path_buf(),
        tensors: arrays.len(),
        bytes: arrays.iter().map(|(_, array)| array.nbytes() as u64).sum(),
        parameters,
    };
    let mut sharding = Sharding { total_parameters: Some(parameters), ..Sharding::default() };
    if options.max_shard_bytes > 0 {
        sharding.max_bytes = options.max_shard_bytes;
    }
    save_sharded(folder, arrays, &sharding)?;
    let base = choice.map(|choice| choice.scheme);
    write_config(model, folder, schemes.config(base))?;
    match model.checkpoint.gguf() {
        Some(file) => companions::of_gguf(file, &model.kept, folder)?,
        None => companions::copy(model.path(), folder)?,
    }
    Ok(report)
}

/// How layers are to be quantized, if they are.
fn choice(model: &Model<'_>, options: &ConvertOptions) -> Result<Option<Choice>> {
    let Some(Quantize::Mlx { mode, group_size, bits, recipe }) = &options.quantize else {
        return Ok(None);
    };
    let scheme = Scheme::new(mode, *group_size, *bits)?;
    let layers = model.require("num_hidden_layers")?;
    let names = model.tensors.keys().map(String::as_str);
    let choice = Choice::new(scheme, *recipe, model.architecture(), layers, names)?;
    let chosen = |(name, tensor): (&String, &Tensor)| {
        let free = options.requantize || matches!(tensor, Tensor::Dense(_));
        let path = name.strip_suffix(".weight").filter(|_| free);
        path.is_some_and(|path| choice.of(path, &tensor.shape()).is_some())
    };
    if !model.tensors.iter().any(chosen) {
        if model.tensors.values().all(|tensor| matches!(tensor, Tensor::Dense(_))) {
            let what = format!("no weight has rows that {scheme} divides");
            return Err(Error::invalid(model.path(), what));
        }
        let what = "no weights are left to quantize; requantize to do it again with those that are";
        return Err(Error::invalid(model.path(), what));
    }
    Ok(Some(choice))
}

/// What comes next to a format that MLX does not have.
fn nearest(scheme: Scheme) -> Scheme {
    let bits = match scheme {
        Scheme::Blocks(format) => format.bits_per_weight().round() as usize,
        _ => 8,
    };
    let bits = [2, 3, 4, 5, 6, 8].into_iter().find(|known| *known >= bits).unwrap_or(8);
    Scheme::Affine { group_size: 32, bits }
}

/// The dtype that a configuration gives a model that is not quantized.
fn configured_dtype(model: &Model<'_>) -> Option<DType> {
    let quantized = model.tensors.values().any(|tensor| matches!(tensor, Tensor::Quantized(_)));
    if quantized || model.checkpoint.gguf().is_some() {
        return None;
    }
    let name = model.get("torch_dtype").or_else(|| model.get("dtype"))?.as_str()?;
    let dtype = DType::from_name(name)?;
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32).then_some(dtype)
}

fn cast(name: &str, array: &Array, dtype: Option<DType>, model: &Model<'_>) -> Result<Array> {
    // What decays is exponentiated twice, and stays precise.
    let kept = model.architecture().starts_with("qwen3_5") && name.ends_with("A_log");
    Ok(match dtype {
        Some(dtype) if array.dtype().is_float() && !kept => array.astype(dtype)?,
        _ => array.clone(),
    })
}

fn push(arrays: &mut Vec<(String, Array)>, path: &str, weights: &wootz::Quantized) {
    let names = ["weight", "scales", "biases"];
    for (name, array) in names.iter().zip(weights.arrays()) {
        arrays.push((format!("{path}.{name}"), array.clone()));
    }
}

/// The schemes of all quantized layers.
#[derive(Default)]
struct Schemes(Vec<(String, Scheme)>);

impl Schemes {
    fn add(&mut self, path: &str, scheme: Scheme) {
        self.0.push((path.to_string(), scheme));
    }

    /// The `quantization` of a configuration: the scheme of most layers, and the others by name.
    fn config(&self, base: Option<Scheme>) -> Option<Value> {
        let count = |scheme: Scheme| self.0.iter().filter(|(_, other)| *other == scheme).count();
        let most = self.0.iter().map(|(_, scheme)| *scheme).max_by_key(|scheme| count(*scheme))?;
        let base = base.unwrap_or(most);
        let of = |scheme: Scheme| json!({ "group_size": group_size(scheme), "bits": bits(scheme), "mode": mode(scheme) });
        let mut settings = of(base);
        if let Some(settings) = settings.as_object_mut() {
            for (path, scheme) in &self.0 {
                if *scheme != base {
                    settings.insert(path.clone(), of(*scheme));
                }
            }
        }
        Some(settings)
    }
}

fn write_config(model: &Model<'_>, folder: &Path, quantization: Option<Value>) -> Result<()> {
    let mut config: Map<String, Value> = model.config.clone();
    for key in ["_name_or_path", "vision_config", "quantization", "quantization_config"] {
        config.remove(key);
    }
    if let Some(quantization) = quantization {
        config.insert("quantization_config".into(), quantization.clone());
        config.insert("quantization".into(), quantization);
    }
    companions::write_json(&folder.join("config.json"), &Value::Object(config))
}
