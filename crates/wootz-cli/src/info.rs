//! `wootz info`: what a model is, and what it needs.

use std::collections::BTreeMap;

use serde_json::json;
use wootz::Device;
use wootz_lm::cache::LayerKind;
use wootz_lm::checkpoint::{Checkpoint, gguf};
use wootz_lm::models::{LanguageModel, LoadOptions, ModelInfo, load};
use wootz_lm::tokenizer::Tokenizer;

use crate::common::Common;
use crate::source::ModelOptions;
use crate::text::{bytes, count, print_table};

/// The context whose memory is reckoned if nobody tells one.
const UNTOLD_CONTEXT: usize = 4096;

/// Options of `wootz info`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wootz info -m model.gguf
  wootz info -m qwen3-0.6b --context 32768
  wootz info -m ./folder --tensors")]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelOptions,

    /// Tokens of a context whose memory is reckoned [default: the model's own, or 4096].
    #[arg(long, short = 'c', value_name = "N")]
    context: Option<usize>,

    /// List every tensor.
    #[arg(long)]
    tensors: bool,

    /// Print JSON (docs/json.md).
    #[arg(long)]
    json: bool,
}

/// A tensor, as it is stored.
struct Stored {
    name: String,
    shape: Vec<usize>,
    kind: String,
    bytes: u64,
    /// Whether the model takes it: there may be parts of others, as those that see images.
    used: bool,
}

pub(crate) fn run(options: &Options, common: &Common) -> anyhow::Result<()> {
    let path = options.model.resolve(common)?;
    let checkpoint = Checkpoint::open(&path)?;
    // Weights stay in the file: this reads headers only.
    let model = load(&checkpoint, &LoadOptions { device: Device::cpu() })?;
    let info = model.info();
    for warning in &info.warnings {
        common.say(format!("Warning: {warning}."));
    }
    let tensors = stored(&checkpoint, info);
    let tokenizer = Tokenizer::open(&path);
    let mut formats: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for tensor in tensors.iter().filter(|tensor| tensor.used) {
        let entry = formats.entry(&tensor.kind).or_default();
        *entry = (entry.0 + 1, entry.1 + tensor.bytes);
    }
    let weights: u64 = formats.values().map(|(_, bytes)| bytes).sum();
    let unused = || tensors.iter().filter(|tensor| !tensor.used);
    let (left, left_bytes) = (unused().count(), unused().map(|tensor| tensor.bytes).sum::<u64>());
    let context = options.context.or(info.context_length).unwrap_or(UNTOLD_CONTEXT);
    let cache = cache_bytes(model.as_ref(), context);
    let bits =
        if info.parameters == 0 { 0.0 } else { weights as f64 * 8.0 / info.parameters as f64 };
    if options.json {
        let object = json!({
            "model": options.model.name(), "path": path, "architecture": info.architecture,
            "parameters": info.parameters, "layers": info.layers, "hidden_size": info.hidden_size,
            "vocab_size": info.vocab_size, "context_length": info.context_length,
            "bits_per_weight": bits, "weights_bytes": weights,
            "formats": formats.iter().map(|(kind, (tensors, bytes))| {
                json!({ "format": kind, "tensors": tensors, "bytes": bytes })
            }).collect::<Vec<_>>(),
            "unused": { "tensors": left, "bytes": left_bytes },
            "context": context, "cache_bytes": cache, "memory_bytes": weights + cache,
            "chat_template": tokenizer.as_ref().is_ok_and(|tokenizer| tokenizer.has_chat_template()),
            "tensors": options.tensors.then(|| tensors.iter().map(|tensor| {
                json!({ "name": tensor.name, "shape": tensor.shape, "format": tensor.kind, "bytes": tensor.bytes, "used": tensor.used })
            }).collect::<Vec<_>>()),
        });
        println!("{}", serde_json::to_string_pretty(&object)?);
        return Ok(());
    }
    println!("Path:          {}", path.display());
    println!("Architecture:  {}", info.architecture);
    println!("Parameters:    {} ({})", info.parameters, count(info.parameters));
    println!("Layers:        {}, {} features", info.layers, info.hidden_size);
    println!("Vocabulary:    {} tokens", info.vocab_size);
    match info.context_length {
        Some(length) => println!("Context:       {length} tokens"),
        None => println!("Context:       not told, any length"),
    }
    let template = match &tokenizer {
        Ok(tokenizer) if tokenizer.has_chat_template() => "yes".to_string(),
        Ok(_) => "no: it continues texts".to_string(),
        Err(error) => format!("unknown: {error}"),
    };
    println!("Chat template: {template}");
    println!("Weights:       {}, {bits:.2} bits per weight", bytes(weights));
    for (kind, (tensors, size)) in &formats {
        println!("  {kind:<28} {tensors:>5} tensors  {:>10}", bytes(*size));
    }
    if left > 0 {
        println!("Left out:      {left} tensors of parts that are not used, {}", bytes(left_bytes));
    }
    println!(
        "Memory:        {} for weights and a context of {context} tokens ({})",
        bytes(weights + cache),
        bytes(cache)
    );
    if options.tensors {
        println!();
        let mut rows = vec![["TENSOR", "SHAPE", "FORMAT", "SIZE"].map(String::from)];
        for tensor in tensors {
            let kind = if tensor.used { tensor.kind } else { tensor.kind + " (left out)" };
            rows.push([tensor.name, format!("{:?}", tensor.shape), kind, bytes(tensor.bytes)]);
        }
        print_table(&rows);
    }
    Ok(())
}

/// The tensors as the files have them; of quantized weights in MLX's layout the codes with how they are
/// quantized.
fn stored(checkpoint: &Checkpoint, model: &ModelInfo) -> Vec<Stored> {
    if let Some(file) = checkpoint.gguf() {
        let architecture = gguf::architecture(file).unwrap_or_default();
        let tensors = file.tensors().map(|info| Stored {
            name: info.name.to_string(),
            shape: info.shape.to_vec(),
            kind: info.kind.to_string(),
            bytes: info.bytes as u64,
            used: !model.unused.contains(&gguf::mlx_name(architecture, info.name)),
        });
        return tensors.collect();
    }
    let Some(files) = checkpoint.safetensors() else { return Vec::new() };
    let tensors = files.names().map(|name| {
        let path = [".weight", ".scales", ".biases"].iter().find_map(|end| name.strip_suffix(end));
        let scheme = path.and_then(|path| model.schemes.get(path));
        let shape = files.shape(name).unwrap_or_default().to_vec();
        let size = files.dtype(name).map_or(1, |dtype| dtype.size());
        let elements: usize = shape.iter().product();
        Stored {
            name: name.to_string(),
            kind: match scheme {
                Some(scheme) => scheme.to_string(),
                None => files.stored_dtype(name).unwrap_or_default(),
            },
            bytes: (elements * size) as u64,
            used: !model.unused.contains(name),
            shape,
        }
    });
    tensors.collect()
}

/// Bytes that a model remembers so many tokens in.
fn cache_bytes(model: &dyn LanguageModel, tokens: usize) -> u64 {
    let of = |kind: LayerKind| match kind {
        LayerKind::Attention { heads, keys, values, window, dtype, .. } => {
            let seen = window.map_or(tokens, |window| window.min(tokens));
            heads * (keys + values) * seen * dtype.size()
        }
        LayerKind::Recurrent(states) => {
            states.iter().map(|(shape, dtype)| shape.iter().product::<usize>() * dtype.size()).sum()
        }
    };
    model.layers().into_iter().map(of).sum::<usize>() as u64
}
