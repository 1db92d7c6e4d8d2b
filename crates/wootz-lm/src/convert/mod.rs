//! Checkpoints from one layout or format to another: Hugging Face's to MLX's, quantized or not, and
//! MLX's to GGUF and back.
//!
//! ```no_run
//! use wootz_lm::convert::{ConvertOptions, Quantize, convert};
//! let options = ConvertOptions {
//!     quantize: Some(Quantize::Mlx { mode: "affine".into(), group_size: None, bits: Some(4), recipe: None }),
//!     ..ConvertOptions::default()
//! };
//! let report = convert("Qwen3-0.6B", "Qwen3-0.6B-4bit", &options)?;
//! println!("{:.2} bits per weight", report.bits_per_weight());
//! # Ok::<(), wootz_lm::Error>(())
//! ```

mod blocks;
mod companions;
mod gguf;
mod metadata;
mod mlx;
mod model;
mod nested;
mod place;
mod recipe;
mod rotation;
mod vocabulary;

use std::path::{Path, PathBuf};

use wootz::quant::Format;
use wootz::{DType, Device, with_device};

use self::model::Model;
use self::place::Place;
pub use self::recipe::Recipe;
use crate::checkpoint::Checkpoint;
use crate::{Error, Result};

/// What a conversion is to do.
#[derive(Clone, Debug, Default)]
pub struct ConvertOptions {
    /// How weights are quantized; without it they stay as they are.
    pub quantize: Option<Quantize>,
    /// Whether quantized weights become numbers.
    pub dequantize: bool,
    /// The dtype of numbers: `float16`, `bfloat16` or `float32`. Without it that of the configuration.
    pub dtype: Option<DType>,
    /// Whether weights that are quantized in a way that the output cannot hold are quantized again, with
    /// loss; and whether `quantize` also holds for quantized weights.
    pub requantize: bool,
    /// Whether an output that is there is replaced, at the end.
    pub overwrite: bool,
    /// The most bytes of a file of weights; 0 for mlx-lm's 5 GiB.
    pub max_shard_bytes: usize,
}

/// How weights are quantized.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Quantize {
    /// One of MLX's modes, for MLX's layout.
    Mlx {
        /// `affine`, `mxfp4`, `mxfp8` or `nvfp4`.
        mode: String,
        /// Weights that share a scale; without it as many as usual in the mode.
        group_size: Option<usize>,
        /// Bits of a weight; without it as many as usual in the mode.
        bits: Option<usize>,
        /// More bits for layers that matter more.
        recipe: Option<Recipe>,
    },
    /// A format of GGUF's, for GGUF files.
    Gguf {
        /// The format.
        format: Format,
        /// Whether layers that matter more have a larger one, as in llama.cpp's `Q4_K_M`.
        mixed: bool,
    },
}

/// What a conversion did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The folder or file.
    pub path: PathBuf,
    /// Tensors that were written.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The model's parameters.
    pub parameters: u64,
}

impl Report {
    /// Bits that a parameter takes on the average.
    pub fn bits_per_weight(&self) -> f64 {
        if self.parameters == 0 { 0.0 } else { self.bytes as f64 * 8.0 / self.parameters as f64 }
    }
}

/// Converts a model: from a folder or a .gguf file to a folder in MLX's layout, or to a .gguf file if
/// the output's name ends so.
///
/// Tensors are made when they are written, one after the other. The output appears when all of it is
/// there; what was there before stays if anything fails.
pub fn convert(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: &ConvertOptions,
) -> Result<Report> {
    let (from, to) = (from.as_ref(), to.as_ref());
    options.check(is_gguf(to))?;
    let checkpoint = Checkpoint::open(from)?;
    place::expect_apart(from, to)?;
    let place = Place::claim(to, options.overwrite)?;
    with_device(&Device::cpu(), || {
        let model = Model::open(&checkpoint, is_gguf(to), options)?;
        let report = match is_gguf(to) {
            true => gguf::write(model, &place.draft(), options)?,
            false => mlx::write(model, &place.draft(), options)?,
        };
        place.finish()?;
        Ok(Report { path: to.to_path_buf(), ..report })
    })
}

/// Whether a name is that of a GGUF file.
fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

impl ConvertOptions {
    fn check(&self, to_gguf: bool) -> Result<()> {
        if self.quantize.is_some() && self.dequantize {
            return Err(Error::argument("dequantize", "either this or quantize", "both"));
        }
        if let Some(dtype) = self.dtype
            && !matches!(dtype, DType::F16 | DType::BF16 | DType::F32)
        {
            return Err(Error::argument("dtype", "float16, bfloat16 or float32", dtype));
        }
        match &self.quantize {
            Some(Quantize::Mlx { mode, .. }) if to_gguf => {
                let expected = "a format of GGUF's for a .gguf file, as Q4_K or Q8_0";
                Err(Error::argument("quantize", expected, mode))
            }
            Some(Quantize::Gguf { format, .. }) if !to_gguf => {
                let expected =
                    "one of MLX's modes for a folder, as affine, or an output named .gguf";
                Err(Error::argument("quantize", expected, format))
            }
            _ => Ok(()),
        }
    }
}
