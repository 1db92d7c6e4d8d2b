//! A model's files, in MLX's and Hugging Face's layout or as GGUF: one configuration and named tensors.
//!
//! Opening reads what the files say. Tensors stay where they lie, mapped, until somebody uses them.

mod config;
mod convention;
pub mod gguf;
pub(crate) mod loader;
mod quantization;
mod shards;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) use config::{WHOLE, blame, count, given_truth, said, truth, whole};
pub use loader::{Bias, Loader};
pub use quantization::Quantization;
use serde_json::Value;
pub use shards::Shards;
use wootz::io::gguf::{Gguf, TensorType};
use wootz::quant::Format;
use wootz::{Array, Device};

use crate::{Error, Result};

/// The files of a model, opened.
///
/// ```no_run
/// use wootz_lm::checkpoint::Checkpoint;
/// let checkpoint = Checkpoint::open("SmolLM2-135M-Instruct.Q4_1.gguf")?;
/// println!("{}", checkpoint.config()["model_type"]);
/// for name in checkpoint.names() {
///     println!("{name} {:?}", checkpoint.shape(name));
/// }
/// # Ok::<(), wootz_lm::Error>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    config: Value,
    files: Files,
    /// MLX's names, with those in the files.
    names: BTreeMap<String, String>,
}

#[derive(Debug)]
enum Files {
    Safetensors(Shards),
    Gguf(Gguf),
}

/// A tensor of a checkpoint: numbers, or the bytes of blocks.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Numbers; or bytes, whose last axis has those of a row.
    pub array: Array,
    /// The format of the blocks, if they are such.
    pub blocks: Option<Format>,
}

impl Checkpoint {
    /// Opens a folder with `config.json` and safetensors, or a GGUF file (the first, if there are several).
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path.as_ref();
        if path.is_dir() {
            return Checkpoint::open_folder(path);
        }
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
            return Checkpoint::from_gguf(path, Gguf::open(path)?);
        }
        // What is not there is an error of the system's, which says so.
        std::fs::metadata(path).map_err(|error| Error::file(path, error))?;
        Err(Error::invalid(path, "neither a folder with config.json nor a .gguf file"))
    }

    fn open_folder(folder: &Path) -> Result<Checkpoint> {
        let config = config::read(&folder.join("config.json"))?;
        let tensors = Shards::open(folder)?;
        let names = tensors.names().map(|name| (name.to_string(), name.to_string())).collect();
        let path = folder.to_path_buf();
        Ok(Checkpoint { path, config, files: Files::Safetensors(tensors), names })
    }

    fn from_gguf(path: &Path, file: Gguf) -> Result<Checkpoint> {
        let config = gguf::config(&file).map_err(|what| Error::invalid(path, what))?;
        let architecture = gguf::architecture(&file).unwrap_or_default().to_string();
        let mlx_name = |name: &str| gguf::mlx_name(&architecture, name);
        let names = file.tensors().map(|info| (mlx_name(info.name), info.name.to_string()));
        let names = names.collect();
        Ok(Checkpoint { path: path.to_path_buf(), config, files: Files::Gguf(file), names })
    }

    /// What `config.json` says; for GGUF the same, made of the metadata.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// The GGUF file, if it is one.
    pub fn gguf(&self) -> Option<&Gguf> {
        if let Files::Gguf(file) = &self.files { Some(file) } else { None }
    }

    /// The safetensors, if it is a folder.
    pub fn safetensors(&self) -> Option<&Shards> {
        if let Files::Safetensors(files) = &self.files { Some(files) } else { None }
    }

    /// The folder or file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tensors' names, as MLX has them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// The shape of a tensor, of its numbers if it is quantized blocks.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        let name = self.names.get(name)?;
        match &self.files {
            Files::Safetensors(files) => files.shape(name),
            Files::Gguf(file) => file.info(name).map(|info| info.shape),
        }
    }

    /// A tensor, on a device. On the CPU nothing is read before it is used.
    pub fn tensor(&self, name: &str, device: &Device) -> Result<Tensor> {
        let Some(name) = self.names.get(name) else {
            return Err(Error::invalid(&self.path, format!("no tensor {name:?}")));
        };
        Ok(match &self.files {
            Files::Safetensors(files) => {
                // Its bytes would be taken for numbers.
                if files.stored_dtype(name).as_deref() == Some("F8_E4M3") {
                    let what = format!("tensor {name:?}: nothing computes with F8_E4M3");
                    return Err(Error::invalid(&self.path, what));
                }
                Tensor { array: files.tensor_on(name, device)?, blocks: None }
            }
            Files::Gguf(file) => {
                let tensor = file.tensor_on(name, device)?;
                let blocks = match tensor.kind {
                    TensorType::Blocks(format) => Some(format),
                    TensorType::Numbers(_) => None,
                    kind => {
                        let what = format!("tensor {name:?}: nothing computes with {kind:?}");
                        return Err(Error::invalid(&self.path, what));
                    }
                };
                Tensor { array: tensor.data, blocks }
            }
        })
    }

    /// How the configuration says that weights are quantized.
    pub fn quantization(&self) -> Result<Option<Quantization>> {
        Quantization::of(&self.config).map_err(|what| Error::invalid(&self.path, what))
    }
}
