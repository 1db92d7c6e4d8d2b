//! MLX's transformer: layers of an encoder and of a decoder, stacks of them, and both together.

use super::{Dropout, Function, LayerNorm, Linear, Module, MultiHeadAttention, relu};
use crate::array::Array;
use crate::error::Result;
use crate::fast::Mask;
use crate::ops::add;
use crate::tree::checkpoint_of;

/// What layers of a transformer can be asked for. The default is MLX's: a network four times as wide as
/// the layer, no dropout, ReLU, inputs normalised, no checkpoints.
///
/// ```
/// use wootz::nn::{self, Function, TransformerEncoder, TransformerOptions};
/// // nn.TransformerEncoder(2, 8, 2, dropout=0.1, activation=nn.gelu)
/// let activation = Function::new(nn::gelu);
/// let options = TransformerOptions { dropout: 0.1, activation, ..Default::default() };
/// assert_eq!(TransformerEncoder::with(2, 8, 2, &options)?.layers.len(), 2);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TransformerOptions {
    /// The width of the network inside; four times the layer's if none.
    pub mlp_dims: Option<usize>,
    /// The probability that an element is zeroed while training.
    pub dropout: f64,
    /// Between the network's two layers.
    pub activation: Function,
    /// Whether inputs are normalised, or sums.
    pub norm_first: bool,
    /// Whether a stack runs its layers again for gradients instead of keeping what they computed.
    pub checkpoint: bool,
}

impl Default for TransformerOptions {
    fn default() -> TransformerOptions {
        TransformerOptions {
            mlp_dims: None,
            dropout: 0.0,
            activation: Function::new(relu),
            norm_first: true,
            checkpoint: false,
        }
    }
}

/// A mask that can be kept for a second run.
#[derive(Clone, Debug)]
enum KeptMask {
    None,
    Causal,
    Array,
}

/// A mask, and the array that it is made of.
fn keep(mask: Mask<'_>) -> (KeptMask, Option<Array>) {
    match mask {
        Mask::None => (KeptMask::None, None),
        Mask::Causal => (KeptMask::Causal, None),
        Mask::Array(array) => (KeptMask::Array, Some(array.clone())),
    }
}

fn kept<'a>(kind: &KeptMask, array: &'a Option<Array>) -> Mask<'a> {
    match (kind, array) {
        (KeptMask::Array, Some(array)) => Mask::Array(array),
        (KeptMask::Causal, _) => Mask::Causal,
        _ => Mask::None,
    }
}

/// `x` and what `part` makes of it, added and normalised: of the input before, or of the sum after.
fn added(
    x: &Array,
    norm: &LayerNorm,
    norm_first: bool,
    part: impl FnOnce(&Array) -> Result<Array>,
) -> Result<Array> {
    match norm_first {
        true => add(x, part(&norm.forward(x)?)?),
        false => norm.forward(&add(x, part(x)?)?),
    }
}

/// Attention and a two-layer network, each added to its input: MLX's `TransformerEncoderLayer`.
///
/// ```
/// use wootz::{Array, DType, fast::Mask, nn::TransformerEncoderLayer};
/// // nn.TransformerEncoderLayer(8, 2)(x, None)
/// let layer = TransformerEncoderLayer::new(8, 2)?;
/// let x = Array::ones(&[1, 5, 8], DType::F32)?;
/// assert_eq!(layer.forward(&x, Mask::None)?.shape(), [1, 5, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct TransformerEncoderLayer {
    /// Among the positions.
    pub attention: MultiHeadAttention,
    /// Of the attention.
    pub ln1: LayerNorm,
    /// Of the network.
    pub ln2: LayerNorm,
    /// The network's first layer.
    pub linear1: Linear,
    /// The network's second layer.
    pub linear2: Linear,
    dropout1: Dropout,
    dropout2: Dropout,
    activation: Function,
    norm_first: bool,
}

impl TransformerEncoderLayer {
    /// With MLX's defaults.
    pub fn new(dims: usize, num_heads: usize) -> Result<TransformerEncoderLayer> {
        TransformerEncoderLayer::with(dims, num_heads, &TransformerOptions::default())
    }

    /// With others.
    pub fn with(
        dims: usize,
        num_heads: usize,
        options: &TransformerOptions,
    ) -> Result<TransformerEncoderLayer> {
        let mlp_dims = options.mlp_dims.unwrap_or(4 * dims);
        Ok(TransformerEncoderLayer {
            attention: MultiHeadAttention::new(dims, num_heads, false)?,
            ln1: LayerNorm::new(dims)?,
            ln2: LayerNorm::new(dims)?,
            linear1: Linear::new(dims, mlp_dims, true)?,
            linear2: Linear::new(mlp_dims, dims, true)?,
            dropout1: Dropout::new(options.dropout)?,
            dropout2: Dropout::new(options.dropout)?,
            activation: options.activation.clone(),
            norm_first: options.norm_first,
        })
    }

    /// The output for `[batch, positions, dims]`.
    pub fn forward(&self, x: &Array, mask: Mask<'_>) -> Result<Array> {
        let x = added(x, &self.ln1, self.norm_first, |x| {
            self.dropout1.forward(&self.attention.forward(x, x, x, mask)?)
        })?;
        added(&x, &self.ln2, self.norm_first, |x| {
            let hidden = self.activation.call(&self.linear1.forward(x)?)?;
            self.linear2.forward(&self.dropout2.forward(&hidden)?)
        })
    }
}

/// Layers of an encoder one after the other, and a norm: MLX's `TransformerEncoder`.
///
/// ```
/// use wootz::{Array, DType, fast::Mask, nn::TransformerEncoder};
/// // nn.TransformerEncoder(num_layers=2, dims=8, num_heads=2)(x, None)
/// let encoder = TransformerEncoder::new(2, 8, 2)?;
/// let x = Array::ones(&[1, 5, 8], DType::F32)?;
/// assert_eq!(encoder.forward(&x, Mask::None)?.shape(), [1, 5, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct TransformerEncoder {
    /// The layers in the order they are called.
    pub layers: Vec<TransformerEncoderLayer>,
    /// Of the result.
    pub ln: LayerNorm,
    checkpoint: bool,
}

impl TransformerEncoder {
    /// With MLX's defaults.
    pub fn new(num_layers: usize, dims: usize, num_heads: usize) -> Result<TransformerEncoder> {
        TransformerEncoder::with(num_layers, dims, num_heads, &TransformerOptions::default())
    }

    /// With others.
    pub fn with(
        num_layers: usize,
        dims: usize,
        num_heads: usize,
        options: &TransformerOptions,
    ) -> Result<TransformerEncoder> {
        let layer = |_| TransformerEncoderLayer::with(dims, num_heads, options);
        Ok(TransformerEncoder {
            layers: (0..num_layers).map(layer).collect::<Result<_>>()?,
            ln: LayerNorm::new(dims)?,
            checkpoint: options.checkpoint,
        })
    }

    /// The output for `[batch, positions, dims]`.
    pub fn forward(&self, x: &Array, mask: Mask<'_>) -> Result<Array> {
        type Input = (TransformerEncoderLayer, Array, Option<Array>);
        let (kind, array) = keep(mask);
        let again =
            checkpoint_of(move |(layer, x, mask): &Input| layer.forward(x, kept(&kind, mask)));
        let y = self.layers.iter().try_fold(x.clone(), |x, layer| match self.checkpoint {
            true => again(&(layer.clone(), x, array.clone())),
            false => layer.forward(&x, mask),
        })?;
        self.ln.forward(&y)
    }
}

/// Attention, attention to an encoder's output, and a two-layer network, each added to its input: MLX's
/// `TransformerDecoderLayer`.
///
/// ```
/// use wootz::{Array, DType, fast::Mask, nn::TransformerDecoderLayer};
/// // nn.TransformerDecoderLayer(8, 2)(x, memory, "causal", None)
/// let layer = TransformerDecoderLayer::new(8, 2)?;
/// let (x, memory) = (Array::ones(&[1, 3, 8], DType::F32)?, Array::ones(&[1, 5, 8], DType::F32)?);
/// assert_eq!(layer.forward(&x, &memory, Mask::Causal, Mask::None)?.shape(), [1, 3, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct TransformerDecoderLayer {
    /// Among the positions.
    pub self_attention: MultiHeadAttention,
    /// To the encoder's output.
    pub cross_attention: MultiHeadAttention,
    /// Of the attention.
    pub ln1: LayerNorm,
    /// Of the attention to the encoder's output.
    pub ln2: LayerNorm,
    /// Of the network.
    pub ln3: LayerNorm,
    /// The network's first layer.
    pub linear1: Linear,
    /// The network's second layer.
    pub linear2: Linear,
    dropout1: Dropout,
    dropout2: Dropout,
    dropout3: Dropout,
    activation: Function,
    norm_first: bool,
}

impl TransformerDecoderLayer {
    /// With MLX's defaults.
    pub fn new(dims: usize, num_heads: usize) -> Result<TransformerDecoderLayer> {
        TransformerDecoderLayer::with(dims, num_heads, &TransformerOptions::default())
    }

    /// With others.
    pub fn with(
        dims: usize,
        num_heads: usize,
        options: &TransformerOptions,
    ) -> Result<TransformerDecoderLayer> {
        let mlp_dims = options.mlp_dims.unwrap_or(4 * dims);
        Ok(TransformerDecoderLayer {
            self_attention: MultiHeadAttention::new(dims, num_heads, false)?,
            cross_attention: MultiHeadAttention::new(dims, num_heads, false)?,
            ln1: LayerNorm::new(dims)?,
            ln2: LayerNorm::new(dims)?,
            ln3: LayerNorm::new(dims)?,
            linear1: Linear::new(dims, mlp_dims, true)?,
            linear2: Linear::new(mlp_dims, dims, true)?,
            dropout1: Dropout::new(options.dropout)?,
            dropout2: Dropout::new(options.dropout)?,
            dropout3: Dropout::new(options.dropout)?,
            activation: options.activation.clone(),
            norm_first: options.norm_first,
        })
    }

    /// The output for `[batch, positions, dims]` and the encoder's, `[batch, others, dims]`.
    pub fn forward(
        &self,
        x: &Array,
        memory: &Array,
        x_mask: Mask<'_>,
        memory_mask: Mask<'_>,
    ) -> Result<Array> {
        let x = added(x, &self.ln1, self.norm_first, |x| {
            self.dropout1.forward(&self.self_attention.forward(x, x, x, x_mask)?)
        })?;
        let x = added(&x, &self.ln2, self.norm_first, |x| {
            let y = self.cross_attention.forward(x, memory, memory, memory_mask)?;
            self.dropout2.forward(&y)
        })?;
        added(&x, &self.ln3, self.norm_first, |x| {
            let hidden = self.activation.call(&self.linear1.forward(x)?)?;
            self.linear2.forward(&self.dropout3.forward(&hidden)?)
        })
    }
}

/// Layers of a decoder one after the other, and a norm: MLX's `TransformerDecoder`.
///
/// ```
/// use wootz::{Array, DType, fast::Mask, nn::TransformerDecoder};
/// // nn.TransformerDecoder(num_layers=2, dims=8, num_heads=2)(x, memory, None, None)
/// let decoder = TransformerDecoder::new(2, 8, 2)?;
/// let (x, memory) = (Array::ones(&[1, 3, 8], DType::F32)?, Array::ones(&[1, 5, 8], DType::F32)?);
/// assert_eq!(decoder.forward(&x, &memory, Mask::None, Mask::None)?.shape(), [1, 3, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct TransformerDecoder {
    /// The layers in the order they are called.
    pub layers: Vec<TransformerDecoderLayer>,
    /// Of the result.
    pub ln: LayerNorm,
    checkpoint: bool,
}

impl TransformerDecoder {
    /// With MLX's defaults.
    pub fn new(num_layers: usize, dims: usize, num_heads: usize) -> Result<TransformerDecoder> {
        TransformerDecoder::with(num_layers, dims, num_heads, &TransformerOptions::default())
    }

    /// With others.
    pub fn with(
        num_layers: usize,
        dims: usize,
        num_heads: usize,
        options: &TransformerOptions,
    ) -> Result<TransformerDecoder> {
        let layer = |_| TransformerDecoderLayer::with(dims, num_heads, options);
        Ok(TransformerDecoder {
            layers: (0..num_layers).map(layer).collect::<Result<_>>()?,
            ln: LayerNorm::new(dims)?,
            checkpoint: options.checkpoint,
        })
    }

    /// The output for `[batch, positions, dims]` and the encoder's, `[batch, others, dims]`.
    pub fn forward(
        &self,
        x: &Array,
        memory: &Array,
        x_mask: Mask<'_>,
        memory_mask: Mask<'_>,
    ) -> Result<Array> {
        type Input = (TransformerDecoderLayer, [Array; 2], [Option<Array>; 2]);
        let ((x_kind, x_array), (memory_kind, memory_array)) = (keep(x_mask), keep(memory_mask));
        let again = checkpoint_of(move |(layer, [x, memory], masks): &Input| {
            let [x_mask, memory_mask] = masks;
            layer.forward(x, memory, kept(&x_kind, x_mask), kept(&memory_kind, memory_mask))
        });
        let y = self.layers.iter().try_fold(x.clone(), |x, layer| match self.checkpoint {
            true => {
                let masks = [x_array.clone(), memory_array.clone()];
                again(&(layer.clone(), [x, memory.clone()], masks))
            }
            false => layer.forward(&x, memory, x_mask, memory_mask),
        })?;
        self.ln.forward(&y)
    }
}

/// An encoder, and a decoder that attends to its output: MLX's `Transformer`. Another encoder or decoder of
/// the same kind is put in by assigning to the field.
///
/// ```
/// use wootz::{Array, DType, fast::Mask, nn::{Transformer, TransformerOptions}};
/// // nn.Transformer(8, 2, num_encoder_layers=2, num_decoder_layers=1)
/// let model = Transformer::new(8, 2, 2, 1, &TransformerOptions::default())?;
/// let (source, target) = (Array::ones(&[1, 5, 8], DType::F32)?, Array::ones(&[1, 3, 8], DType::F32)?);
/// // model(source, target, None, "causal", None)
/// let y = model.forward(&source, &target, Mask::None, Mask::Causal, Mask::None)?;
/// assert_eq!(y.shape(), [1, 3, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct Transformer {
    /// Reads the source.
    pub encoder: TransformerEncoder,
    /// Makes the target's next positions.
    pub decoder: TransformerDecoder,
}

impl Transformer {
    /// MLX's defaults are 512, 8, 6 and 6.
    pub fn new(
        dims: usize,
        num_heads: usize,
        num_encoder_layers: usize,
        num_decoder_layers: usize,
        options: &TransformerOptions,
    ) -> Result<Transformer> {
        Ok(Transformer {
            encoder: TransformerEncoder::with(num_encoder_layers, dims, num_heads, options)?,
            decoder: TransformerDecoder::with(num_decoder_layers, dims, num_heads, options)?,
        })
    }

    /// The decoder's output for a source and a target, each `[batch, positions, dims]`.
    pub fn forward(
        &self,
        source: &Array,
        target: &Array,
        source_mask: Mask<'_>,
        target_mask: Mask<'_>,
        memory_mask: Mask<'_>,
    ) -> Result<Array> {
        let memory = self.encoder.forward(source, source_mask)?;
        self.decoder.forward(target, &memory, target_mask, memory_mask)
    }
}
