//! Arrays in files: safetensors and GGUF, mapped into memory and read tensor by tensor; npy and npz.
//!
//! A file from anywhere may be given to the readers: whatever is wrong with it is an error that names
//! the tensor or key, and nothing is allocated that the file's size does not justify. What is
//! written appears whole or not at all.

mod by_extension;
pub mod gguf;
mod mapped;
mod npy;
mod npz;
mod replace;
mod safetensors;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

pub use by_extension::{Contents, load, save};
pub use gguf::{load_gguf, save_gguf};
pub use mapped::MappedFile;
pub use npy::{load_npy, read_npy, save_npy};
pub use npz::{Npz, load_npz, savez, savez_compressed};
pub use safetensors::{
    Safetensors, Sharding, load_safetensors, save_safetensors, save_safetensors_with, save_sharded,
};

use crate::error::Error;

/// An error about a tensor of a file, which it names. What is no fault of the tensor's, as too little memory, stays as
/// it is.
fn of_tensor(name: &str, error: Error) -> Error {
    let argument = format!("tensor {name}");
    match error {
        Error::Argument { op, expected, got, .. } => {
            Error::Argument { op, argument, expected, got }
        }
        Error::Shape { op, expected, got, .. } => Error::Shape { op, argument, expected, got },
        Error::Dtype { op, expected, got, .. } => Error::Dtype { op, argument, expected, got },
        Error::SizeOverflow { op, got, limit, .. } => {
            Error::SizeOverflow { op, argument, got, limit }
        }
        Error::NotOnDevice { op, device, reason } => {
            Error::NotOnDevice { op, device, reason: format!("{argument}: {reason}") }
        }
        Error::Format { path, reason } => {
            Error::Format { path, reason: format!("{argument}: {reason}") }
        }
        other => other,
    }
}

fn io_error(file: &Path, source: std::io::Error) -> Error {
    Error::Io { path: file.display().to_string(), source: Arc::new(source) }
}
