//! Random numbers with MLX's keys and algorithms.
