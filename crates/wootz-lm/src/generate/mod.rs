//! Text from a model, token by token.

mod session;

pub use session::Session;
