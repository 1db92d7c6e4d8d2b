//! What models are made of, dense or quantized.
