//! A model to convert: its configuration, and its tensors with MLX's names and in MLX's order, made when
//! they are needed.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};
use wootz::io::gguf::Gguf;
use wootz::quant::Scheme;
use wootz::{Array, DType, Device, Quantized, add, dequantize, reshape, subtract, swapaxes};

use super::{ConvertOptions, blocks, rotation};
use crate::checkpoint::{Checkpoint, gguf as names};
use crate::models::{LoadOptions, load};
use crate::{Error, Result};

/// A tensor, in whatever form.
#[derive(Clone, Debug)]
pub(super) enum Tensor {
    Dense(Array),
    Quantized(Quantized),
}

impl Tensor {
    pub(super) fn shape(&self) -> Vec<usize> {
        match self {
            Tensor::Dense(array) => array.shape().to_vec(),
            Tensor::Quantized(weights) => weights.shape(),
        }
    }

    /// The same with every array of it changed.
    pub(super) fn each(&self, change: impl Fn(&Array) -> wootz::Result<Array>) -> Result<Tensor> {
        Ok(match self {
            Tensor::Dense(array) => Tensor::Dense(change(array)?),
            Tensor::Quantized(weights) => {
                let arrays =
                    weights.arrays().iter().map(change).collect::<wootz::Result<Vec<_>>>()?;
                let scheme = weights.scheme();
                let made = match &arrays[..] {
                    [codes] => Quantized::new(scheme, codes, None, None),
                    [codes, scales] => Quantized::new(scheme, codes, Some(scales), None),
                    [codes, scales, biases, ..] => {
                        Quantized::new(scheme, codes, Some(scales), Some(biases))
                    }
                    [] => return Ok(self.clone()),
                };
                Tensor::Quantized(made?)
            }
        })
    }
}

/// A model as MLX has it.
pub(super) struct Model<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) config: Map<String, Value>,
    /// By name; a quantized one by that of its codes.
    pub(super) tensors: BTreeMap<String, Tensor>,
    /// Tensors of a GGUF file, by GGUF's names, that cannot be computed again from what MLX has of them.
    pub(super) kept: Vec<(String, Array)>,
}

impl<'a> Model<'a> {
    /// Takes stock of a checkpoint: nothing is read before it is written.
    pub(super) fn open(
        checkpoint: &'a Checkpoint,
        to_gguf: bool,
        options: &ConvertOptions,
    ) -> Result<Model<'a>> {
        let config = checkpoint.config().as_object().cloned().unwrap_or_default();
        let mut model = Model { checkpoint, config, tensors: BTreeMap::new(), kept: Vec::new() };
        model.collect()?;
        if let Some(file) = checkpoint.gguf() {
            model.translate(file, to_gguf, options)?;
            // Numbers are decoded from the blocks themselves, which rounds them once.
            if !to_gguf && !options.dequantize {
                model.make_affine(options)?;
            }
        }
        if options.dequantize {
            let dtype = options.dtype;
            for tensor in model.tensors.values_mut() {
                if let Tensor::Quantized(weights) = tensor {
                    let own = matches!(weights.scheme(), Scheme::Blocks(_)).then_some(DType::F16);
                    *tensor = Tensor::Dense(dequantize(weights, dtype.or(own))?);
                }
            }
            model.config.remove("quantization");
            model.config.remove("quantization_config");
        }
        Ok(model)
    }

    /// The architecture, in MLX's words.
    pub(super) fn architecture(&self) -> &str {
        self.config.get("model_type").and_then(Value::as_str).unwrap_or_default()
    }

    /// A value of the configuration, or of the part about the text model.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        let text = || self.config.get("text_config").and_then(|text| text.get(key));
        self.config.get(key).or_else(text).filter(|value| !value.is_null())
    }

    pub(super) fn number(&self, key: &str) -> Option<usize> {
        self.get(key).and_then(Value::as_u64).map(|number| number as usize)
    }

    pub(super) fn float(&self, key: &str) -> Option<f64> {
        self.get(key).and_then(Value::as_f64)
    }

    /// A number that there must be.
    pub(super) fn require(&self, key: &str) -> Result<usize> {
        let missing =
            || Error::invalid(self.checkpoint.path(), format!("the configuration lacks {key}"));
        self.number(key).ok_or_else(missing)
    }

    pub(super) fn path(&self) -> &Path {
        self.checkpoint.path()
    }

    /// An error about a tensor.
    pub(super) fn error_of(&self, name: &str, error: wootz::Error) -> Error {
        Error::invalid(self.path(), format!("{name}: {error}"))
    }

    /// All tensors as MLX has them, quantized ones put together.
    fn collect(&mut self) -> Result<()> {
        let cpu = Device::cpu();
        if self.checkpoint.gguf().is_some() {
            for name in self.checkpoint.names() {
                let tensor = self.checkpoint.tensor(name, &cpu)?;
                let made = match tensor.blocks {
                    Some(format) => {
                        let made = Quantized::new(format, &tensor.array, None, None);
                        Tensor::Quantized(made.map_err(|error| self.error_of(name, error))?)
                    }
                    None => Tensor::Dense(tensor.array),
                };
                self.tensors.insert(name.to_string(), made);
            }
            return Ok(());
        }
        // Loading checks every tensor, and brings Hugging Face's into MLX's order.
        let model = load(self.checkpoint, &LoadOptions { device: cpu })?;
        let (mut arrays, schemes) = (model.parameters(), &model.info().schemes);
        let coded: Vec<String> = arrays
            .keys()
            .filter_map(|name| Some(name.strip_suffix(".scales")?.to_string()))
            .collect();
        for path in coded {
            let name = format!("{path}.weight");
            let (Some(codes), Some(scales), Some(&scheme)) = (
                arrays.remove(&name),
                arrays.remove(&format!("{path}.scales")),
                schemes.get(&path),
            ) else {
                let what = format!("{path} has scales, but no quantized weight");
                return Err(Error::invalid(self.checkpoint.path(), what));
            };
            let biases = arrays.remove(&format!("{path}.biases"));
            let made = Quantized::new(scheme, &codes, Some(&scales), biases.as_ref());
            let made = made.map_err(|error| self.error_of(&name, error))?;
            self.tensors.insert(name, Tensor::Quantized(made));
        }
        self.tensors.extend(arrays.into_iter().map(|(name, array)| (name, Tensor::Dense(array))));
        Ok(())
    }

    /// What GGUF has otherwise than MLX: the order of rows that are rotated, and norms of gemma.
    fn translate(&mut self, file: &Gguf, to_gguf: bool, options: &ConvertOptions) -> Result<()> {
        let architecture = names::architecture(file).unwrap_or_default().to_string();
        if architecture == "llama" {
            self.config.remove("rope_traditional");
            self.rotate(Order::Halves)?;
            self.fill_biases()?;
        }
        rotation::take(self, &architecture)?;
        if architecture.starts_with("gemma") {
            self.lower_norms(&architecture, options)?;
        }
        let cap = self.float("final_logit_softcapping").filter(|cap| *cap != 0.0);
        if let Some(cap) = cap.filter(|_| architecture == "gemma3" && !to_gguf) {
            let what = format!("MLX has no Gemma 3 with final_logit_softcapping, here {cap}");
            return Err(Error::invalid(self.checkpoint.path(), what));
        }
        let strange: Vec<&str> = self
            .tensors
            .keys()
            .map(String::as_str)
            .filter(|name| names::gguf_name(&architecture, name).is_none())
            .collect();
        if !strange.is_empty() {
            let what = format!("MLX has no name for the tensors {}", strange.join(", "));
            return Err(Error::invalid(self.checkpoint.path(), what));
        }
        Ok(())
    }

    /// Blocks as MLX's affine arrays; those that it cannot hold are refused.
    fn make_affine(&mut self, options: &ConvertOptions) -> Result<()> {
        let mut refused: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, tensor) in &mut self.tensors {
            let Tensor::Quantized(weights) = tensor else { continue };
            let Scheme::Blocks(format) = weights.scheme() else { continue };
            if let Some(affine) = blocks::to_affine(format, weights.codes())? {
                *weights = affine;
            } else if !options.requantize {
                refused.entry(format.name()).or_default().push(name.clone());
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        let listed: Vec<String> = refused
            .iter()
            .map(|(format, names)| format!("{format} ({} tensors, as {})", names.len(), names[0]))
            .collect();
        let what = format!(
            "MLX cannot hold {} without loss: requantize, or dequantize",
            listed.join(", ")
        );
        Err(Error::invalid(self.checkpoint.path(), what))
    }

    /// Brings the rows of queries and keys into another order.
    pub(super) fn rotate(&mut self, order: Order) -> Result<()> {
        let heads = self.require("num_attention_heads")?;
        let key_heads = self.number("num_key_value_heads").unwrap_or(heads);
        for (name, tensor) in &mut self.tensors {
            let heads = match name {
                _ if name.contains("self_attn.q_proj.") => heads,
                _ if name.contains("self_attn.k_proj.") => key_heads,
                _ => continue,
            };
            let rows = tensor.shape().first().copied().unwrap_or(0);
            if heads == 0 || !rows.is_multiple_of(2 * heads) {
                let what = format!("{name}: {rows} rows for {heads} heads");
                return Err(Error::invalid(self.checkpoint.path(), what));
            }
            *tensor = tensor.each(|array| rotated(array, heads, order))?;
        }
        Ok(())
    }

    /// Takes 1 from the weights of gemma's norms. What that rounds is kept as it was.
    fn lower_norms(&mut self, architecture: &str, options: &ConvertOptions) -> Result<()> {
        for (name, tensor) in &mut self.tensors {
            let Tensor::Dense(array) = tensor else { continue };
            if !name.ends_with("norm.weight") {
                continue;
            }
            let weight = lowered(array, None)?;
            let written = lowered(array, options.dtype)?;
            if !same(&raised(&written, array.dtype())?, array)?
                && let Some(theirs) = names::gguf_name(architecture, name)
            {
                self.kept.push((theirs, array.clone()));
            }
            *array = weight;
        }
        Ok(())
    }

    /// Llama has biases on all of its projections or on none, in MLX: those that a file lacks are zeros.
    fn fill_biases(&mut self) -> Result<()> {
        let attention =
            ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"];
        for group in [&attention[..], &["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]] {
            let of = |name: &str, kind: &str| {
                let path = name.strip_suffix(kind);
                path.is_some_and(|path| group.iter().any(|part| path.ends_with(part)))
            };
            if !self.tensors.keys().any(|name| of(name, ".bias")) {
                continue;
            }
            let mut zeros = Vec::new();
            for (name, tensor) in self.tensors.iter().filter(|(name, _)| of(name, ".weight")) {
                let bias = name.replace(".weight", ".bias");
                let rows = tensor.shape().first().copied().unwrap_or(0);
                if !self.tensors.contains_key(&bias) {
                    let none = vec![0.0f32; rows];
                    zeros.push((bias, Array::from_slice_on(&none, &[rows], &Device::cpu())?));
                }
            }
            self.tensors.extend(zeros.into_iter().map(|(name, zero)| (name, Tensor::Dense(zero))));
        }
        Ok(())
    }
}

/// A norm's weight of gemma as MLX has it, without the 1 that GGUF adds.
pub(super) fn lowered(weight: &Array, dtype: Option<DType>) -> wootz::Result<Array> {
    let lowered = subtract(weight, 1.0)?;
    dtype.map_or(Ok(lowered.clone()), |dtype| lowered.astype(dtype))
}

/// The reverse, in a dtype. Without the 1 there may be more digits than a narrow type holds with it.
pub(super) fn raised(weight: &Array, dtype: DType) -> wootz::Result<Array> {
    add(weight.astype(DType::F32)?, 1.0)?.astype(dtype)
}

/// Whether two arrays are the same, bit by bit.
pub(super) fn same(a: &Array, b: &Array) -> wootz::Result<bool> {
    Ok(a.dtype() == b.dtype() && a.shape() == b.shape() && a.to_bytes()? == b.to_bytes()?)
}

/// How the two numbers that are rotated together lie in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// One in each half, as MLX and Hugging Face have it.
    Halves,
    /// Beside each other, as GGUF's llama has it.
    Neighbours,
}

fn rotated(array: &Array, heads: usize, to: Order) -> wootz::Result<Array> {
    let shape = array.shape().to_vec();
    let half = shape[0] / heads / 2;
    let split = match to {
        Order::Halves => [heads, half, 2],
        Order::Neighbours => [heads, 2, half],
    };
    let parts = reshape(array, &[&split[..], &shape[1..]].concat())?;
    reshape(&swapaxes(&parts, 1, 2)?, &shape)
}
