//! Writes a GGUF file.

use std::collections::BTreeMap;
use std::path::Path;

use wootz::io::gguf::{Gguf, TensorType, Value, Writer};
use wootz::quant::{Format, Scheme};
use wootz::{Array, DType, Device, Quantized, dequantize, quantize};

use super::companions::{METADATA, TENSORS};
use super::model::{Model, Order, Tensor, lowered, raised, same};
use super::recipe::has_more_bits;
use super::{ConvertOptions, Quantize, Report, blocks, metadata, nested, rotation};
use crate::checkpoint::gguf as names;
use crate::models::architecture_of;
use crate::{Error, Result};

/// What is known of the GGUF file that a model was.
#[derive(Default)]
struct Origin {
    version: u32,
    metadata: Vec<(String, Value)>,
    /// Names and types, in their order.
    tensors: Vec<(String, String)>,
    /// What is still known of their numbers, where MLX has others.
    kept: BTreeMap<String, Array>,
}

impl Origin {
    fn of(model: &Model<'_>) -> Result<Option<Origin>> {
        if let Some(file) = model.checkpoint.gguf() {
            let tensors = file.tensors().map(|info| (info.name.to_string(), info.kind.to_string()));
            return Ok(Some(Origin::new(file, tensors.collect())?));
        }
        let path = model.path().join(METADATA);
        if !path.is_file() {
            return Ok(None);
        }
        let file = Gguf::open(&path)?;
        let wrong =
            || Error::invalid(&path, format!("the key {TENSORS} is missing or no list of tensors"));
        let listed = file.get(TENSORS).and_then(Value::as_array).and_then(|list| list.as_strings());
        let split = |line: &String| {
            line.rsplit_once(' ').map(|(name, kind)| (name.to_string(), kind.to_string()))
        };
        let tensors = listed.ok_or_else(wrong)?.iter().map(split).collect::<Option<_>>();
        Ok(Some(Origin::new(&file, tensors.ok_or_else(wrong)?)?))
    }

    fn new(file: &Gguf, tensors: Vec<(String, String)>) -> Result<Origin> {
        let ours = |key: &str| key == TENSORS || key.starts_with("split.");
        let metadata = file.metadata().iter().filter(|(key, _)| !ours(key)).cloned().collect();
        let mut kept = BTreeMap::new();
        for info in file.tensors() {
            let numbers = matches!(info.kind, TensorType::Numbers(_));
            if numbers && (info.name.ends_with("norm.weight") || rotation::is_factors(info.name)) {
                let array = file.tensor_on(info.name, &Device::cpu())?.data;
                kept.insert(info.name.to_string(), array);
            }
        }
        Ok(Origin { version: file.version(), metadata, tensors, kept })
    }

    /// The numbers of a norm of gemma, if MLX's weight is still what was made of them.
    fn norm(&self, name: &str, weight: &Array) -> Result<Option<Array>> {
        let Some(kept) = self.kept.get(name) else { return Ok(None) };
        let made = lowered(kept, Some(weight.dtype()))?;
        Ok(same(&made, weight)?.then(|| kept.clone()))
    }

    /// The type that a tensor had.
    fn kind(&self, name: &str) -> Option<&str> {
        self.tensors.iter().find(|(known, _)| known == name).map(|(_, kind)| kind.as_str())
    }
}

/// A tensor as the file has it.
enum Encoded {
    Numbers(Array),
    Blocks(Format, Array),
}

/// Writes a model to a file. Nobody else may hold its tensors, or what is made of one to write it would stay.
pub(super) fn write(mut model: Model<'_>, path: &Path, options: &ConvertOptions) -> Result<Report> {
    let architecture = architecture(&model)?;
    let origin = Origin::of(&model)?;
    nested::flatten(&mut model);
    let tied = !model.tensors.contains_key("lm_head.weight");
    let mut tensors = renamed(&mut model, architecture, origin.as_ref())?;
    let model = &model;
    let encoder = Encoder { model, architecture, options, tied, origin: origin.as_ref() };
    let mut encoded = Vec::new();
    let (mut refused, mut parameters) = (Vec::new(), 0u64);
    for name in ordered(&tensors, origin.as_ref()) {
        let Some(tensor) = tensors.remove(&name) else { continue };
        parameters += tensor.shape().iter().map(|&length| length as u64).product::<u64>();
        match encoder.encode(&name, &tensor)? {
            Some(made) => encoded.push((name, made)),
            None => refused.push(name),
        }
    }
    if let Some(first) = refused.first() {
        let what = format!(
            "GGUF has no format that holds {} tensors without loss, as {first}: requantize, or dequantize",
            refused.len()
        );
        return Err(Error::invalid(model.path(), what));
    }
    let mut writer = Writer::new();
    let file_type = file_type(&encoded);
    match &origin {
        Some(origin) => {
            writer.version(origin.version)?;
            let same = encoded.iter().all(|(name, made)| origin.kind(name) == Some(&made.kind()));
            for (key, value) in &origin.metadata {
                let value = match key.as_str() {
                    "general.file_type" if !same => Value::from(file_type),
                    _ => value.clone(),
                };
                writer.metadata(key, value)?;
            }
        }
        None => {
            for (key, value) in metadata::of(model, architecture, file_type)? {
                writer.metadata(&key, value)?;
            }
        }
    }
    let report_bytes = encoded.iter().map(|(_, made)| made.bytes()).sum();
    let count = encoded.len();
    for (name, made) in encoded {
        match made {
            Encoded::Numbers(array) => writer.tensor(&name, array)?,
            Encoded::Blocks(format, array) => writer.blocks(&name, format, array)?,
        };
    }
    writer.write(path)?;
    Ok(Report { path: path.to_path_buf(), tensors: count, bytes: report_bytes, parameters })
}

/// GGUF's word for the architecture.
fn architecture(model: &Model<'_>) -> Result<&'static str> {
    let ours = match architecture_of(model.architecture()) {
        "mistral" => "llama",
        "gemma3" => "gemma3_text",
        other => other,
    };
    let known = names::ARCHITECTURES.iter().find(|(_, name)| *name == ours);
    known.map(|(theirs, _)| *theirs).ok_or_else(|| Error::Architecture {
        name: model.architecture().to_string(),
        supported: names::ARCHITECTURES.map(|(_, ours)| ours).join(", ") + " (as GGUF)",
    })
}

/// The model's tensors by GGUF's names, as it has them.
fn renamed(
    model: &mut Model<'_>,
    architecture: &str,
    origin: Option<&Origin>,
) -> Result<BTreeMap<String, Tensor>> {
    if architecture == "llama" {
        model.rotate(Order::Neighbours)?;
    }
    let is_gemma = architecture.starts_with("gemma");
    let mut tensors = BTreeMap::new();
    let mut strange = Vec::new();
    for (name, tensor) in std::mem::take(&mut model.tensors) {
        let Some(theirs) = names::gguf_name(architecture, &name) else {
            strange.push(name);
            continue;
        };
        let tensor = match tensor {
            Tensor::Dense(weight) if is_gemma && name.ends_with("norm.weight") => {
                Tensor::Dense(norm(&theirs, &weight, origin)?)
            }
            // Zeros that only MLX needs.
            Tensor::Dense(bias) if was_added(&theirs, &bias, origin)? => continue,
            other => other,
        };
        tensors.insert(theirs, tensor);
    }
    if !strange.is_empty() {
        let what = format!("GGUF has no name for the tensors {}", strange.join(", "));
        return Err(Error::invalid(model.path(), what));
    }
    let head_dim = metadata::head_dim(model, architecture)?;
    let kept = |name: &str| origin?.kept.get(name).cloned();
    for (name, factors) in rotation::tensors(model, architecture, head_dim, kept)? {
        tensors.insert(name.into(), Tensor::Dense(factors));
    }
    Ok(tensors)
}

/// A norm of gemma with the 1 that GGUF adds, in the type that it had.
fn norm(name: &str, weight: &Array, origin: Option<&Origin>) -> Result<Array> {
    if let Some(kept) = origin.map(|origin| origin.norm(name, weight)).transpose()?.flatten() {
        return Ok(kept);
    }
    let kind = origin.and_then(|origin| origin.kind(name)).unwrap_or("F32");
    let narrow = [DType::F16, DType::BF16];
    let dtype = narrow.into_iter().find(|of| TensorType::Numbers(*of).to_string() == kind);
    Ok(raised(weight, dtype.unwrap_or(DType::F32))?)
}

/// Whether a bias was added to a model that was a GGUF file without it, and says nothing.
fn was_added(name: &str, bias: &Array, origin: Option<&Origin>) -> Result<bool> {
    let absent = origin.is_some_and(|origin| origin.kind(name).is_none());
    if !absent || !name.ends_with(".bias") {
        return Ok(false);
    }
    Ok(bias.astype(DType::F32)?.to_vec::<f32>()?.iter().all(|number| *number == 0.0))
}

/// The names in the order of the original file; else as llama.cpp has them, layer by layer.
fn ordered(tensors: &BTreeMap<String, Tensor>, origin: Option<&Origin>) -> Vec<String> {
    if let Some(origin) = origin
        && origin.tensors.len() == tensors.len()
        && origin.tensors.iter().all(|(name, _)| tensors.contains_key(name))
    {
        return origin.tensors.iter().map(|(name, _)| name.clone()).collect();
    }
    let key = |name: &str| {
        let number = name
            .strip_prefix("blk.")
            .and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        match (name, number) {
            ("token_embd.weight", _) => (0, 0),
            (_, Some(number)) => (1, number),
            _ => (2, 0),
        }
    };
    let mut names: Vec<String> = tensors.keys().cloned().collect();
    names.sort_by_key(|name| key(name));
    names
}

struct Encoder<'a> {
    model: &'a Model<'a>,
    architecture: &'a str,
    options: &'a ConvertOptions,
    /// Whether the embedding is the output as well.
    tied: bool,
    origin: Option<&'a Origin>,
}

impl Encoder<'_> {
    /// A tensor in the form that is asked for, or the one that loses nothing. Nothing if there is none.
    fn encode(&self, name: &str, tensor: &Tensor) -> Result<Option<Encoded>> {
        let wanted = self.wanted(name, &tensor.shape());
        Ok(match (tensor, wanted) {
            (Tensor::Dense(array), Some(format)) => Some(self.blocks_of(name, array, format)?),
            (Tensor::Dense(array), None) => Some(Encoded::Numbers(self.numbers(name, array)?)),
            (Tensor::Quantized(weights), Some(format)) if self.options.requantize => {
                let numbers = dequantize(weights, Some(DType::F32))?;
                Some(self.blocks_of(name, &numbers, format)?)
            }
            (Tensor::Quantized(weights), _) => self.lossless(name, weights)?,
        })
    }

    /// The format that a tensor is to be quantized to.
    fn wanted(&self, name: &str, shape: &[usize]) -> Option<Format> {
        let Some(Quantize::Gguf { format, mixed }) = self.options.quantize else { return None };
        let [_, columns] = *shape else { return None };
        if !name.ends_with(".weight") || name.contains("norm") {
            return None;
        }
        let format = if mixed && self.matters(name) { Format::Q6_K } else { format };
        let fits = |format: Format| columns.is_multiple_of(format.block_elements());
        // As llama.cpp, where rows are no multiple of 256.
        let small = match format {
            Format::Q2_K | Format::Q3_K | Format::IQ4_XS => Format::IQ4_NL,
            Format::Q4_K => Format::Q5_0,
            Format::Q5_K => Format::Q5_1,
            _ => Format::Q8_0,
        };
        [format, small].into_iter().find(|format| fits(*format))
    }

    /// Whether a mixed format has more bits for a tensor.
    fn matters(&self, name: &str) -> bool {
        if name == "output.weight" || (self.tied && name == "token_embd.weight") {
            return true;
        }
        let number = name
            .strip_prefix("blk.")
            .and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        let (Some(number), layers) = (number, self.model.number("num_hidden_layers").unwrap_or(0))
        else {
            return false;
        };
        let some = has_more_bits(number, layers);
        some && (name.contains("attn_v.") || name.contains("ffn_down."))
    }

    /// Numbers in the dtype that is asked for. Vectors are in single precision, as llama.cpp wants them.
    fn numbers(&self, name: &str, array: &Array) -> Result<Array> {
        let kept = self.origin.and_then(|origin| origin.kind(name))
            == Some(TensorType::Numbers(array.dtype()).to_string().as_str());
        let dtype = match self.options.dtype {
            _ if array.rank() <= 1 && kept => array.dtype(),
            _ if array.rank() <= 1 => DType::F32,
            Some(dtype) => dtype,
            None => array.dtype(),
        };
        Ok(array.astype(dtype)?)
    }

    /// The same weights in a format of GGUF's.
    fn lossless(&self, name: &str, weights: &Quantized) -> Result<Option<Encoded>> {
        let had = self.origin.and_then(|origin| origin.kind(name)?.parse().ok());
        if let Scheme::Blocks(format) = weights.scheme() {
            return Ok(Some(Encoded::Blocks(format, weights.codes().clone())));
        }
        if let Some((format, array)) = blocks::from_affine(weights, had)? {
            return Ok(Some(Encoded::Blocks(format, array)));
        }
        if !self.options.requantize {
            return Ok(None);
        }
        let format = match weights.scheme() {
            Scheme::Affine { bits: 1..=4, .. } => Format::Q4_1,
            Scheme::Affine { bits: 5, .. } => Format::Q5_1,
            Scheme::Mxfp4 if self.architecture != "phi3" => Format::MXFP4,
            _ => Format::Q8_0,
        };
        self.blocks_of(name, &dequantize(weights, Some(DType::F32))?, format).map(Some)
    }

    /// Numbers, quantized.
    fn blocks_of(&self, name: &str, array: &Array, format: Format) -> Result<Encoded> {
        let weights = quantize(&array.astype(DType::F32)?, format);
        let weights = weights.map_err(|error| self.model.error_of(name, error))?;
        Ok(Encoded::Blocks(format, weights.codes().clone()))
    }
}

impl Encoded {
    fn kind(&self) -> String {
        match self {
            Encoded::Numbers(array) => TensorType::Numbers(array.dtype()).to_string(),
            Encoded::Blocks(format, _) => format.to_string(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Encoded::Numbers(array) | Encoded::Blocks(_, array) => array.nbytes() as u64,
        }
    }
}

/// llama.cpp's number for the type of most weights.
fn file_type(tensors: &[(String, Encoded)]) -> u32 {
    let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
    for (_, made) in tensors {
        *bytes.entry(made.kind()).or_default() += made.bytes();
    }
    let most = bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(kind, _)| kind);
    let known = [
        ("F32", 0),
        ("F16", 1),
        ("Q4_0", 2),
        ("Q4_1", 3),
        ("Q8_0", 7),
        ("Q5_0", 8),
        ("Q5_1", 9),
        ("Q2_K", 10),
        ("Q3_K", 12),
        ("Q4_K", 15),
        ("Q5_K", 17),
        ("Q6_K", 18),
        ("IQ4_NL", 25),
        ("IQ4_XS", 30),
        ("BF16", 32),
        ("MXFP4", 38),
    ];
    let found = most
        .and_then(|most| known.iter().find(|(kind, _)| *kind == most).map(|(_, number)| *number));
    found.unwrap_or(1)
}
