//! Language models on [wootz]: MLX and GGUF checkpoints, tokenizers, caches and generation.
//!
//! ```no_run
//! use wootz_lm::generate::TextModel;
//! use wootz_lm::models::LoadOptions;
//!
//! let model = TextModel::open("SmolLM2-135M-Instruct.Q4_1.gguf", &LoadOptions::default())?;
//! let mut generation = model.generate("The capital of France is", model.default_options())?;
//! for piece in &mut generation {
//!     print!("{}", piece?.text);
//! }
//! println!("\n{}", generation.statistics());
//! # Ok::<(), wootz_lm::Error>(())
//! ```
//!
//! # Map
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
