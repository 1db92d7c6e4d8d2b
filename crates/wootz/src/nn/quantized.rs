//! Layers whose weights are quantized, and how a model gets them.

use std::any::Any;

use super::{Embedding, Linear, Module};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::ops::{Quantized, add, quantized_matmul, zeros};
use crate::quant::Scheme;
use crate::tree::{Parameter, Path, Slot, Tree};

/// [`Linear`] with quantized weights, which are not trained, also when a model is
/// [unfrozen](Tree::unfreeze); gradients of its input are.
///
/// ```
/// use wootz::nn::{Linear, Module, QuantizedLinear};
/// use wootz::{Array, DType, Tree, quant::Scheme};
/// let linear = Linear::new(64, 2, true)?;
/// // nn.QuantizedLinear.from_linear(linear, group_size=32, bits=8)
/// let layer = QuantizedLinear::from_linear(&linear, Scheme::new("affine", Some(32), Some(8))?)?;
/// let x = Array::ones(&[1, 64], DType::F32)?;
/// let (y, exact) = (layer.forward(&x)?, linear.forward(&x)?);
/// assert!(wootz::allclose(&y, &exact, 0.0, 0.05, false)?.item::<bool>()?);
/// assert!(layer.parameters().into_keys().eq(["bias", "biases", "scales", "weight"]));
/// assert!(layer.trainable_parameters().into_keys().eq(["bias"]));
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct QuantizedLinear {
    /// Codes.
    pub weight: Parameter,
    /// Of groups of weights, if the scheme has them.
    pub scales: Option<Parameter>,
    /// Of groups of weights, if the scheme has them.
    pub biases: Option<Parameter>,
    /// `[output_dims]`.
    pub bias: Option<Parameter>,
    #[wootz(value)]
    scheme: Scheme,
}

impl QuantizedLinear {
    /// Values as [`Linear`]'s, and a bias of zeros; all are frozen.
    pub fn new(
        input_dims: usize,
        output_dims: usize,
        bias: bool,
        scheme: impl Into<Scheme>,
    ) -> Result<QuantizedLinear> {
        let linear = Linear::new(input_dims, output_dims, false)?;
        let bias = bias.then(|| zeros(&[output_dims], DType::F32)).transpose()?;
        let layer = QuantizedLinear::from_linear(&linear, scheme)?;
        Ok(QuantizedLinear { bias: bias.as_ref().map(frozen), ..layer })
    }

    /// Of a layer that is there, whose bias it keeps.
    pub fn from_linear(linear: &Linear, scheme: impl Into<Scheme>) -> Result<QuantizedLinear> {
        let q = linear.weight.quantize(scheme)?;
        Ok(QuantizedLinear {
            weight: fixed(q.codes()),
            scales: q.scales().map(fixed),
            biases: q.biases().map(fixed),
            bias: linear.bias.clone(),
            scheme: q.scheme(),
        })
    }

    /// How the weights are quantized.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }
}

impl Module for QuantizedLinear {
    fn forward(&self, x: &Array) -> Result<Array> {
        let q = joined(self.scheme, &self.weight, &self.scales, &self.biases)?;
        let y = quantized_matmul(x, &q, true)?;
        self.bias.as_ref().map_or(Ok(y.clone()), |bias| add(&y, bias))
    }
}

/// [`Embedding`] with a quantized table, which is not trained.
///
/// ```
/// use wootz::nn::{Embedding, Module, QuantizedEmbedding};
/// use wootz::{Array, DType, quant::Scheme};
/// let table = Embedding::new(10, 64)?;
/// // nn.QuantizedEmbedding.from_embedding(table, group_size=64, bits=4)
/// let layer = QuantizedEmbedding::from_embedding(&table, Scheme::new("affine", Some(64), Some(4))?)?;
/// assert_eq!(layer.forward(&Array::new([[1, 9, 0]])?)?.shape(), [1, 3, 64]);
/// assert_eq!(layer.as_linear(&Array::ones(&[2, 64], DType::F32)?)?.shape(), [2, 10]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct QuantizedEmbedding {
    /// Codes.
    pub weight: Parameter,
    /// Of groups of weights, if the scheme has them.
    pub scales: Option<Parameter>,
    /// Of groups of weights, if the scheme has them.
    pub biases: Option<Parameter>,
    #[wootz(value)]
    scheme: Scheme,
}

impl QuantizedEmbedding {
    /// Values as [`Embedding`]'s, frozen.
    pub fn new(
        num_embeddings: usize,
        dims: usize,
        scheme: impl Into<Scheme>,
    ) -> Result<QuantizedEmbedding> {
        QuantizedEmbedding::from_embedding(&Embedding::new(num_embeddings, dims)?, scheme)
    }

    /// Of a table that is there.
    pub fn from_embedding(
        embedding: &Embedding,
        scheme: impl Into<Scheme>,
    ) -> Result<QuantizedEmbedding> {
        let q = embedding.weight.quantize(scheme)?;
        Ok(QuantizedEmbedding {
            weight: fixed(q.codes()),
            scales: q.scales().map(fixed),
            biases: q.biases().map(fixed),
            scheme: q.scheme(),
        })
    }

    /// How the table is quantized.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// `x · weightᵀ`: the layer as the output projection of a model with tied weights.
    pub fn as_linear(&self, x: &Array) -> Result<Array> {
        let q = joined(self.scheme, &self.weight, &self.scales, &self.biases)?;
        quantized_matmul(x, &q, true)
    }
}

impl Module for QuantizedEmbedding {
    fn forward(&self, x: &Array) -> Result<Array> {
        let q = joined(self.scheme, &self.weight, &self.scales, &self.biases)?;
        // MLX's dtypes of what is decoded.
        let dtype = match (self.scheme, &self.scales) {
            (Scheme::Affine { .. }, Some(scales)) => scales.dtype(),
            (Scheme::Blocks(_), _) => DType::F32,
            _ => DType::BF16,
        };
        q.take(x, dtype)
    }
}

/// Puts [`QuantizedLinear`] and [`QuantizedEmbedding`] in the places of the boxed [`Linear`] and [`Embedding`]
/// layers that `wanted` says, and gives their dotted names. A field of a type of its own cannot become one of
/// another type: box it, or assign to a field of the quantized type.
///
/// ```
/// use wootz::nn::{self, Linear, Module, ReLU, Sequential};
/// use wootz::{Array, DType, quant::Scheme};
/// let mut model = Sequential::new()
///     .then(Linear::new(32, 64, true)?)
///     .then(ReLU)
///     .then(Linear::new(64, 10, true)?);
/// // nn.quantize(model, group_size=32, bits=4, class_predicate=lambda path, _: path != "layers.2")
/// let scheme = Scheme::new("affine", Some(32), Some(4))?;
/// let names = nn::quantize(&mut model, scheme, |path, _| path != "layers.2")?;
/// assert_eq!(names, ["layers.0"]);
/// assert_eq!(model.forward(&Array::ones(&[1, 32], DType::F32)?)?.shape(), [1, 10]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn quantize(
    model: &mut dyn Tree,
    scheme: impl Into<Scheme>,
    wanted: impl Fn(&str, &dyn Module) -> bool,
) -> Result<Vec<String>> {
    let (scheme, mut names) = (scheme.into(), Vec::new());
    model.visit_mut(&mut Path::default(), &mut |name, slot| {
        let Slot::Module(place) = slot else { return Ok(()) };
        if !wanted(name, &**place) {
            return Ok(());
        }
        let layer: &dyn Any = &**place;
        let quantized: Box<dyn Module> = match (layer.downcast_ref(), layer.downcast_ref()) {
            (Some(linear), _) => Box::new(
                QuantizedLinear::from_linear(linear, scheme).map_err(|error| error.within(name))?,
            ),
            (_, Some(table)) => Box::new(
                QuantizedEmbedding::from_embedding(table, scheme)
                    .map_err(|error| error.within(name))?,
            ),
            _ => return Ok(()),
        };
        *place = quantized;
        names.push(name.to_string());
        Ok(())
    })?;
    Ok(names)
}

fn fixed(array: &Array) -> Parameter {
    Parameter::fixed(array.clone())
}

fn frozen(array: &Array) -> Parameter {
    let mut parameter = Parameter::new(array.clone());
    parameter.set_trainable(false);
    parameter
}

/// Quantized weights of their arrays.
fn joined(
    scheme: Scheme,
    weight: &Parameter,
    scales: &Option<Parameter>,
    biases: &Option<Parameter>,
) -> Result<Quantized> {
    Quantized::new(scheme, weight, scales.as_deref(), biases.as_deref())
}
