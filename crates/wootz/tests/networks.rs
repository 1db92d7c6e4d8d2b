//! Trees, layers and optimizers: names, freezing, files, gradients, state.
#![allow(missing_docs)]

#[path = "networks/activations.rs"]
mod activations;
#[path = "networks/files.rs"]
mod files;
#[path = "networks/layers.rs"]
mod layers;
#[path = "networks/learning.rs"]
mod learning;
#[path = "networks/optimizers.rs"]
mod optimizers;
#[path = "networks/trees.rs"]
mod trees;
