//! A model's files, in MLX's or GGUF's layout, as one configuration and named tensors.
