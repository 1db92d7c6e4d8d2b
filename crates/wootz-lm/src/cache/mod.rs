//! What a model remembers of the tokens it has seen.
