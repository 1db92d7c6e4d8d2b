//! Checkpoints from one layout or format to another.
