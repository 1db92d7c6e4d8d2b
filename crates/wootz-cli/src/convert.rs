//! `wootz convert`: quantized copies, and other layouts.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::json;
use wootz::DType;
use wootz::quant::Format;
use wootz_lm::convert::{ConvertOptions, Quantize, Recipe, convert};

use crate::common::Common;
use crate::failure::{hinted, usage};
use crate::source::ModelOptions;
use crate::text::{bytes, count};

/// Options of `wootz convert`.
#[derive(clap::Args)]
#[command(after_help = "\
The output is a folder in MLX's layout, or a GGUF file if its name ends in .gguf. It appears when it is
complete; what is there already stays if anything fails.

GGUF's Q4_0, Q4_1 and Q8_0 become MLX's affine weights in groups of 32 without loss, and the same file
again. Other formats are decoded and quantized again only with --requantize.

Examples:
  wootz convert -m Qwen/Qwen3-0.6B -o qwen3-4bit -q
  wootz convert -m Qwen/Qwen3-0.6B -o qwen3-mixed -q --quant-predicate mixed_4_6
  wootz convert -m ./folder -o folder-mxfp4 -q --q-mode mxfp4
  wootz convert -m model.Q4_1.gguf -o model-mlx
  wootz convert -m model-mlx -o model.gguf
  wootz convert -m ./folder -o model.Q4_K_M.gguf --gguf-type Q4_K_M
  wootz convert -m ./folder-4bit -o folder-bf16 -d --dtype bfloat16")]
pub(crate) struct Options {
    /// A folder, a .gguf file, a short name, or a Hugging Face repository.
    #[arg(long, short = 'm', visible_alias = "hf-path", value_name = "MODEL")]
    model: String,

    /// The .gguf file of a folder or a repository that has several.
    #[arg(long, value_name = "FILE")]
    gguf_file: Option<String>,

    /// The branch, tag or commit of a Hugging Face repository [default: main].
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,

    /// The folder, or .gguf file, to write.
    #[arg(
        long,
        short = 'o',
        visible_alias = "mlx-path",
        value_name = "PATH",
        default_value = "mlx_model"
    )]
    output: PathBuf,

    /// Quantize the weights.
    #[arg(long, short = 'q')]
    quantize: bool,

    /// Bits of a weight [default: 4, or what the mode has].
    #[arg(long, value_name = "BITS", requires = "quantize")]
    q_bits: Option<usize>,

    /// Weights that share a scale [default: 64, or what the mode has].
    #[arg(long, value_name = "N", requires = "quantize")]
    q_group_size: Option<usize>,

    /// How weights are quantized.
    #[arg(long, value_name = "MODE", requires = "quantize", default_value = "affine",
        value_parser = ["affine", "mxfp4", "nvfp4", "mxfp8"])]
    q_mode: String,

    /// A recipe with more bits for layers that need them.
    #[arg(long, value_name = "RECIPE", requires = "quantize", conflicts_with = "q_bits",
        value_parser = ["mixed_2_6", "mixed_3_4", "mixed_3_6", "mixed_4_6"])]
    quant_predicate: Option<String>,

    /// The type of a GGUF file's weights: F32, F16, BF16, Q8_0, Q6_K, Q4_K, Q4_K_M, …
    #[arg(long, value_name = "TYPE", conflicts_with_all = ["quantize", "dequantize"])]
    gguf_type: Option<String>,

    /// The type of weights that are not quantized [default: the configuration's].
    #[arg(long, value_name = "DTYPE", value_parser = ["float16", "bfloat16", "float32"])]
    dtype: Option<String>,

    /// Decode quantized weights.
    #[arg(long, short = 'd', conflicts_with = "quantize")]
    dequantize: bool,

    /// Decode weights that the output cannot hold as they are, and quantize them again, with loss.
    #[arg(long)]
    requantize: bool,

    /// Replace an output that is there.
    #[arg(long)]
    overwrite: bool,

    /// Print JSON (docs/json.md).
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options, common: &Common) -> anyhow::Result<()> {
    let to_gguf =
        options.output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let settings = settings(options, to_gguf)?;
    common.apply()?;
    let source = ModelOptions {
        model: Some(options.model.clone()),
        gguf_file: options.gguf_file.clone(),
        revision: options.revision.clone(),
    };
    let from = source.resolve(common)?;
    if is_within(&from, &options.output) {
        return Err(usage(format!(
            "{}: the output would replace the model, which is read from there",
            options.output.display()
        )));
    }
    let started = Instant::now();
    let bar = match common.quiet {
        true => ProgressBar::hidden(),
        false => ProgressBar::new_spinner().with_message(format!("converting {}", from.display())),
    };
    bar.enable_steady_tick(Duration::from_millis(200));
    let done = convert(&from, &options.output, &settings);
    bar.finish_and_clear();
    let report = done.map_err(|error| explain(error, options))?;
    if options.json {
        let object = json!({
            "model": source.name(), "path": report.path, "tensors": report.tensors, "bytes": report.bytes,
            "parameters": report.parameters, "bits_per_weight": report.bits_per_weight(),
            "seconds": started.elapsed().as_secs_f64(),
        });
        println!("{}", serde_json::to_string_pretty(&object)?);
        return Ok(());
    }
    common.say(format!(
        "{}: {} parameters in {}, {:.3} bits per weight ({:.1} s)",
        report.path.display(),
        count(report.parameters),
        bytes(report.bytes),
        report.bits_per_weight(),
        started.elapsed().as_secs_f64()
    ));
    Ok(())
}

fn settings(options: &Options, to_gguf: bool) -> anyhow::Result<ConvertOptions> {
    let mut settings = ConvertOptions {
        dequantize: options.dequantize,
        requantize: options.requantize,
        overwrite: options.overwrite,
        dtype: options.dtype.as_deref().and_then(DType::from_name),
        ..ConvertOptions::default()
    };
    if options.quantize {
        if to_gguf {
            let error = usage("--quantize makes MLX's formats, but the output is a .gguf file");
            return Err(hinted(error, "choose GGUF's with --gguf-type, as Q4_K_M or Q8_0"));
        }
        let recipe = options.quant_predicate.as_deref().map(str::parse::<Recipe>).transpose()?;
        let (mode, group_size) = (options.q_mode.clone(), options.q_group_size);
        settings.quantize = Some(Quantize::Mlx { mode, group_size, bits: options.q_bits, recipe });
    }
    if let Some(name) = &options.gguf_type {
        if !to_gguf {
            return Err(usage(
                "--gguf-type is for GGUF files: give --output a name that ends in .gguf",
            ));
        }
        gguf_type(name, &mut settings)?;
    }
    Ok(settings)
}

/// GGUF's name of a type: numbers, a format, or a mixture of formats as llama.cpp names them.
fn gguf_type(name: &str, settings: &mut ConvertOptions) -> anyhow::Result<()> {
    let upper = name.to_uppercase();
    let numbers = [("F32", DType::F32), ("F16", DType::F16), ("BF16", DType::BF16)];
    if let Some((_, dtype)) = numbers.iter().find(|(known, _)| *known == upper) {
        settings.dtype = Some(*dtype);
        settings.dequantize = true;
        return Ok(());
    }
    let (base, mixed) = match upper.strip_suffix("_M") {
        Some(base) if ["Q4_K", "Q5_K"].contains(&base) => (base, true),
        _ => {
            (upper.strip_suffix("_S").filter(|base| base.ends_with("_K")).unwrap_or(&upper), false)
        }
    };
    let format = base.parse::<Format>().ok().filter(|format| format.encodes());
    let format = format.ok_or_else(|| {
        let known: Vec<&str> =
            Format::ALL.iter().filter(|f| f.encodes()).map(|f| f.name()).collect();
        usage(format!(
            "--gguf-type: expected F32, F16, BF16, Q4_K_M, Q5_K_M, {}, got {name}",
            known.join(", ")
        ))
    })?;
    settings.quantize = Some(Quantize::Gguf { format, mixed });
    Ok(())
}

fn is_within(model: &Path, place: &Path) -> bool {
    matches!((model.canonicalize(), place.canonicalize()), (Ok(model), Ok(place)) if model.starts_with(&place))
}

/// What may help.
fn explain(error: wootz_lm::Error, options: &Options) -> anyhow::Error {
    let text = error.to_string();
    let hint = if text.contains("which exists") && !options.overwrite {
        "--overwrite replaces it, or choose another --output"
    } else if text.contains("another process") {
        "wait for it to end, or choose another --output"
    } else if text.contains("no weight has rows") {
        "--q-group-size takes smaller groups: 32 is the smallest of affine, --q-mode nvfp4 has 16"
    } else if text.contains("requantize") {
        "--requantize decodes and quantizes again, with loss; --dequantize keeps every number"
    } else {
        return error.into();
    };
    hinted(error, hint)
}
