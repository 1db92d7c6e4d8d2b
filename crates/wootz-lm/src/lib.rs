//! Language models on [wootz]: MLX and GGUF checkpoints, tokenizers, caches and generation.
//!
//! - [`checkpoint`]: a model's files, in either layout, as one configuration and named tensors
//! - [`layers`]: what models are made of, dense or quantized
//! - [`models`]: one file for each architecture
//! - [`cache`]: what a model remembers of the tokens it has seen
//! - [`tokenizer`]: text to tokens and back, and chat templates
//! - [`generate`]: text from a model, token by token
//! - [`convert`]: checkpoints from one layout or format to another

pub mod cache;
pub mod checkpoint;
pub mod convert;
mod error;
pub mod generate;
pub mod layers;
pub mod models;
pub mod tokenizer;

pub use error::{Error, Result};
