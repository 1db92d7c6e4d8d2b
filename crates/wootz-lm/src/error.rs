//! The one error type of the crate: what went wrong, in which file, and what would have been right.

use std::path::PathBuf;
use std::sync::Arc;

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with a language model.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An array operation failed.
    #[error(transparent)]
    Array(#[from] wootz::Error),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
    /// A file's contents are not what they should be.
    #[error("{path}: {what}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// An architecture that there is no model for.
    #[error("unsupported architecture {name:?}; supported are {supported}")]
    Architecture {
        /// As the configuration has it.
        name: String,
        /// All that there are.
        supported: String,
    },
    /// The tensors of a checkpoint are not those of its model.
    #[error("the checkpoint does not fit its configuration: {0}")]
    Weights(String),
    /// An argument or a configuration's value is not acceptable.
    #[error("{argument}: expected {expected}, got {got}")]
    Argument {
        /// Its name.
        argument: String,
        /// What would have been accepted.
        expected: String,
        /// What was given.
        got: String,
    },
    /// The caller ended the reading of a prompt.
    #[error("stopped after {done} of the prompt's {total} tokens")]
    Interrupted {
        /// Tokens that were read.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// A tokenizer failed.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A chat template failed.
    #[error("chat template: {0}")]
    Template(String),
}

impl Error {
    pub(crate) fn argument(
        argument: impl Into<String>,
        expected: impl ToString,
        got: impl ToString,
    ) -> Error {
        let (expected, got) = (expected.to_string(), got.to_string());
        Error::Argument { argument: argument.into(), expected, got }
    }

    pub(crate) fn file(path: impl Into<PathBuf>, source: std::io::Error) -> Error {
        Error::File { path: path.into(), source: Arc::new(source) }
    }

    pub(crate) fn invalid(path: impl Into<PathBuf>, what: impl ToString) -> Error {
        Error::Invalid { path: path.into(), what: what.to_string() }
    }
}
