//! `load` and `save`: files whose format the extension of their name tells.

use std::collections::BTreeMap;
use std::path::Path;

use super::gguf::{GgufTensor, TensorType};
use super::{
    Safetensors, load_gguf, load_npy, load_npz, save_gguf, save_npy, save_safetensors, savez,
};
use crate::array::Array;
use crate::error::{Error, Result};

/// What is in a file: one array without a name, or several with names.
#[derive(Clone, Debug)]
pub enum Contents {
    /// One array, as npy files have it.
    Array(Array),
    /// Arrays by name, as all others have them.
    Arrays(BTreeMap<String, Array>),
}

impl Contents {
    /// The one array; an error if there are names.
    pub fn array(self) -> Result<Array> {
        match self {
            Contents::Array(array) => Ok(array),
            Contents::Arrays(arrays) => {
                let got = format!("arrays by {} names", arrays.len());
                Err(Error::argument("load", "file", "one array without a name", got))
            }
        }
    }

    /// The arrays by name; an error if there is one without.
    pub fn arrays(self) -> Result<BTreeMap<String, Array>> {
        match self {
            Contents::Arrays(arrays) => Ok(arrays),
            Contents::Array(_) => {
                let got = "one array without a name";
                Err(Error::argument("load", "file", "arrays by name", got))
            }
        }
    }
}

impl From<&Array> for Contents {
    fn from(array: &Array) -> Contents {
        Contents::Array(array.clone())
    }
}

impl From<&BTreeMap<String, Array>> for Contents {
    fn from(arrays: &BTreeMap<String, Array>) -> Contents {
        Contents::Arrays(arrays.clone())
    }
}

/// The formats, by the extension of a file's name.
#[derive(Clone, Copy)]
enum Format {
    Npy,
    Npz,
    Safetensors,
    Gguf,
}

impl Format {
    fn of(op: &'static str, file: &Path) -> Result<Format> {
        let extension = file.extension().and_then(|extension| extension.to_str());
        match extension {
            Some("npy") => Ok(Format::Npy),
            Some("npz") => Ok(Format::Npz),
            Some("safetensors") => Ok(Format::Safetensors),
            Some("gguf") => Ok(Format::Gguf),
            _ => {
                let expected = "a name that ends with .npy, .npz, .safetensors or .gguf";
                Err(Error::argument(op, "file", expected, file.display()))
            }
        }
    }
}

/// What is in a file, on the default device, read as its extension says: `.npy`, `.npz`, `.safetensors` or
/// `.gguf`. Metadata is left out, as in MLX; so are no tensors: quantized ones of a GGUF file, which are
/// not arrays, are an error, and [`load_gguf`] reads them.
///
/// ```
/// use wootz::{Array, io};
/// let file = std::env::temp_dir().join("wootz-doc-any.npy");
/// io::save(&file, &Array::new([1, 2])?)?;
/// // mx.load("any.npy")
/// assert_eq!(io::load(&file)?.array()?.to_vec::<i32>()?, [1, 2]);
/// assert!(io::load("any.txt").is_err());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn load(file: impl AsRef<Path>) -> Result<Contents> {
    let file = file.as_ref();
    Ok(match Format::of("load", file)? {
        Format::Npy => Contents::Array(load_npy(file)?),
        Format::Npz => Contents::Arrays(load_npz(file)?),
        Format::Safetensors => {
            let opened = Safetensors::open(file)?;
            let tensor = |name: &str| Ok((name.to_string(), opened.tensor(name)?));
            Contents::Arrays(opened.names().map(tensor).collect::<Result<_>>()?)
        }
        Format::Gguf => {
            let (tensors, _) = load_gguf(file)?;
            let number = |(name, tensor): (String, GgufTensor)| {
                if !matches!(tensor.kind, TensorType::Numbers(_)) {
                    let got = format!("{name:?} of {}, which load_gguf reads", tensor.kind);
                    return Err(Error::argument("load", "file", "tensors of numbers", got));
                }
                Ok((name, tensor.data))
            };
            Contents::Arrays(tensors.into_iter().map(number).collect::<Result<_>>()?)
        }
    })
}

/// Writes an array, or arrays by name, to a file of the format that its extension says. A `.npy` file holds
/// one array without a name; in an `.npz` file such a one is called `arr_0`; other files hold arrays with
/// names only.
///
/// ```
/// use std::collections::BTreeMap;
/// use wootz::{Array, io};
/// let arrays = BTreeMap::from([("x".to_string(), Array::new([1, 2])?)]);
/// // mx.save_safetensors("all.safetensors", {"x": x})
/// let file = std::env::temp_dir().join("wootz-doc-all.safetensors");
/// io::save(&file, &arrays)?;
/// assert_eq!(io::load(&file)?.arrays()?["x"].to_vec::<i32>()?, [1, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn save(file: impl AsRef<Path>, contents: impl Into<Contents>) -> Result<()> {
    let file = file.as_ref();
    let refused = |expected: &str, got: &str| {
        let expected = format!("{expected} for {}", file.display());
        Err(Error::argument("save", "contents", expected, got))
    };
    match (Format::of("save", file)?, contents.into()) {
        (Format::Npy, Contents::Array(array)) => save_npy(file, &array),
        (Format::Npy, Contents::Arrays(_)) => refused("one array", "arrays by name"),
        (Format::Npz, Contents::Array(array)) => {
            savez(file, &BTreeMap::from([("arr_0".to_string(), array)]))
        }
        (Format::Npz, Contents::Arrays(arrays)) => savez(file, &arrays),
        (_, Contents::Array(_)) => refused("arrays by name", "one array"),
        (Format::Safetensors, Contents::Arrays(arrays)) => save_safetensors(file, &arrays),
        (Format::Gguf, Contents::Arrays(arrays)) => save_gguf(file, &arrays, &[]),
    }
}
