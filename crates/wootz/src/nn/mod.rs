//! Neural networks: layers with MLX's names, parameters and defaults, activation functions,
//! [losses] and [first values](init).
//!
//! A layer is a structure with public parameters that implements [`Tree`](crate::Tree), which
//! names them, freezes them, loads and saves them, and mostly [`Module`], a function from one
//! array to another. A model is a structure of layers that derives `Tree`.
//!
//! ```
//! use wootz::nn::{self, Linear, Module, losses::Reduction};
//! use wootz::optim::{Optimizer, SGD};
//! use wootz::{Array, Result};
//!
//! let mut model = Linear::new(1, 1, true)?;
//! let x = Array::new([[0.0f32], [1.0], [2.0]])?;
//! let y = &x * 3.0 - 1.0;
//! let loss = nn::value_and_grad(|model: &Linear| {
//!     nn::losses::mse_loss(&model.forward(&x)?, &y, Reduction::Mean)
//! });
//! let mut optimizer = SGD::new(0.2)?;
//! for _ in 0..200 {
//!     let (_, gradients) = loss(&model)?;
//!     optimizer.update(&mut model, &gradients)?;
//!     wootz::eval(&optimizer.arrays(&model))?;
//! }
//! assert!((model.weight.item::<f32>()? - 3.0).abs() < 1e-2);
//! # Ok::<(), wootz::Error>(())
//! ```

mod activation_layers;
mod activations;
mod attention;
mod containers;
mod convolution;
mod delta_net;
mod dropout;
mod experts;
pub mod init;
mod linear;
pub mod losses;
mod module;
mod normalization;
mod pooling;
mod positional;
mod quantized;
mod recurrent;
mod rotary;
mod transformer;
mod upsample;

pub use activation_layers::*;
pub use activations::*;
pub use attention::{AttentionDims, MultiHeadAttention};
pub use containers::{Function, Identity, Sequential};
pub use convolution::{
    Conv1d, Conv1dOptions, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,
    ConvTransposeOptions,
};
pub use delta_net::{ChannelConv, DeltaDims, DeltaInputs, DeltaState, DeltaWeights, GatedDeltaNet};
pub use dropout::Dropout;
pub use experts::{ExpertGate, GatedMlp, MoeDims, SparseMoe, SwitchGLU, SwitchLinear};
pub use linear::{Bilinear, Embedding, Linear};
pub use module::{CloneModule, Module};
pub use normalization::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm};
pub use pooling::{AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d};
pub use positional::{ALiBi, RoPE, SinusoidalPositionalEncoding};
pub use quantized::{QuantizedEmbedding, QuantizedLinear, quantize};
pub use recurrent::{GRU, LSTM, RNN};
pub use rotary::RotaryEmbedding;
pub use transformer::{
    Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
    TransformerEncoderLayer, TransformerOptions,
};
pub use upsample::{ScaleFactor, Upsample, UpsampleMode};

pub use crate::tree::value_and_grad_of as value_and_grad;

use crate::array::Array;
use crate::error::Result;
use crate::tree::Parameter;

/// [`prelu`] with slopes that are learnt.
///
/// ```
/// use wootz::{Array, nn::{Module, PReLU}};
/// let y = PReLU::new(1, 0.25)?.forward(&Array::new([-2.0f32, 3.0])?)?;
/// assert_eq!(y.to_vec::<f32>()?, [-0.5, 3.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct PReLU {
    /// `[num_parameters]`.
    pub weight: Parameter,
}

impl PReLU {
    /// MLX's defaults: one slope, 0.25.
    pub fn new(num_parameters: usize, init: f64) -> Result<PReLU> {
        let weight = init::constant(&[num_parameters], init, crate::array::DType::F32)?;
        Ok(PReLU { weight: weight.into() })
    }
}

impl Module for PReLU {
    fn forward(&self, x: &Array) -> Result<Array> {
        prelu(x, &self.weight)
    }
}
