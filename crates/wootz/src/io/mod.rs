//! Arrays in files.

mod safetensors;

pub use safetensors::{load_safetensors, save_safetensors};
