//! Text from a model, token by token.
//!
//! [`TextModel`] is a model with its tokenizer; [`TextModel::generate`] gives a [`Generation`], an
//! iterator of [`Piece`]s. Underneath, a [`Session`] is a model with a cache, and a
//! [`TokenSampler`] draws from its logits.

mod batch;
mod chat;
mod options;
mod perplexity;
mod pieces;
mod prefill;
mod prompt_cache;
mod sampler;
mod session;
mod speculative;
mod statistics;
mod stop;
mod stream;
mod text_model;
mod tokens;

pub use batch::BatchGeneration;
pub use chat::{Conversation, Reply};
pub use options::GenerateOptions;
pub use perplexity::{Convention, Perplexity, PerplexityOptions};
pub use pieces::{FinishReason, Piece};
pub use prefill::Progress;
pub use prompt_cache::{Kept, PromptCache};
pub use sampler::{Draw, SamplerState, Token, TokenSampler};
pub use session::Session;
pub use statistics::{Statistics, peak_memory};
pub use stream::{Generation, Request};
pub use text_model::TextModel;
