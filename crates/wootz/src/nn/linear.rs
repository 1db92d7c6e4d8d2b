//! Affine layers and tables of vectors.

use super::{Module, init};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::{addmm, full, matmul, take};
use crate::tree::Parameter;

/// `x Wᵀ + b`, with `weight` of shape `[output_dims, input_dims]`.
///
/// ```
/// use wootz::{Array, nn::{Linear, Module}};
/// let layer = Linear::new(3, 2, true)?;
/// assert_eq!(layer.forward(&Array::new([[1.0f32, 2.0, 3.0]])?)?.shape(), [1, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct Linear {
    /// `[output_dims, input_dims]`.
    pub weight: Parameter,
    /// `[output_dims]`.
    pub bias: Option<Parameter>,
}

impl Linear {
    /// Values spread evenly over `±1/√input_dims`, which is at least 1.
    pub fn new(input_dims: usize, output_dims: usize, bias: bool) -> Result<Linear> {
        let scale = spread("Linear", "input_dims", input_dims)?;
        Ok(Linear {
            weight: uniform(&[output_dims, input_dims], scale)?,
            bias: bias.then(|| uniform(&[output_dims], scale)).transpose()?,
        })
    }
}

impl Module for Linear {
    fn forward(&self, x: &Array) -> Result<Array> {
        affine(x, &self.weight, self.bias.as_deref())
    }
}

/// A row of `weight` for each integer.
///
/// ```
/// use wootz::{Array, nn::{Embedding, Module}};
/// let table = Embedding::new(10, 4)?;
/// assert_eq!(table.forward(&Array::new([[1, 9, 0]])?)?.shape(), [1, 3, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct Embedding {
    /// `[num_embeddings, dims]`.
    pub weight: Parameter,
}

impl Embedding {
    /// Normally distributed values of deviation `1/√dims`.
    pub fn new(num_embeddings: usize, dims: usize) -> Result<Embedding> {
        let scale = (1.0 / dims as f64).sqrt();
        let weight = init::normal(&[num_embeddings, dims], 0.0, scale, DType::F32, None)?;
        Ok(Embedding { weight: weight.into() })
    }

    /// `x · weightᵀ`: the layer as the output projection of a model with tied weights.
    pub fn as_linear(&self, x: &Array) -> Result<Array> {
        affine(x, &self.weight, None)
    }
}

impl Module for Embedding {
    fn forward(&self, x: &Array) -> Result<Array> {
        take(&self.weight, x, Some(0))
    }
}

/// `x2ᵀ W x1 + b` for each output, with `weight` of shape
/// `[output_dims, input2_dims, input1_dims]`.
///
/// ```
/// use wootz::{Array, nn::Bilinear};
/// let layer = Bilinear::new(2, 3, 4, true)?;
/// let (x1, x2) = (Array::new([[1.0f32, 2.0]])?, Array::new([[1.0f32, 2.0, 3.0]])?);
/// assert_eq!(layer.forward(&x1, &x2)?.shape(), [1, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct Bilinear {
    /// `[output_dims, input2_dims, input1_dims]`.
    pub weight: Parameter,
    /// `[output_dims]`.
    pub bias: Option<Parameter>,
}

impl Bilinear {
    /// Values spread evenly over `±1/√input1_dims`, which is at least 1.
    pub fn new(
        input1_dims: usize,
        input2_dims: usize,
        output_dims: usize,
        bias: bool,
    ) -> Result<Bilinear> {
        let scale = spread("Bilinear", "input1_dims", input1_dims)?;
        Ok(Bilinear {
            weight: uniform(&[output_dims, input2_dims, input1_dims], scale)?,
            bias: bias.then(|| uniform(&[output_dims], scale)).transpose()?,
        })
    }

    /// The output for two inputs whose axes before the last are the same.
    pub fn forward(&self, x1: &Array, x2: &Array) -> Result<Array> {
        let &[out, in2, in1] = self.weight.shape() else {
            let expected = "[output_dims, input2_dims, input1_dims]";
            return Err(Error::shape("Bilinear", "weight", expected, self.weight.shape()));
        };
        let rows = x1.size() / in1.max(1);
        let w = self.weight.reshape(&[out * in2, in1])?;
        let y = matmul(&x1.reshape(&[rows, in1])?, &w.transpose()?)?;
        let y = y.reshape(&[rows, out, in2])?.swapaxes(-2, -1)?;
        let y = matmul(&x2.reshape(&[rows, 1, in2])?, &y)?;
        let mut shape = x1.shape().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = out;
        }
        let y = y.reshape(&shape)?;
        self.bias.as_ref().map_or(Ok(y.clone()), |bias| crate::ops::add(&y, bias))
    }
}

/// `x · weightᵀ + bias`.
pub(super) fn affine(x: &Array, weight: &Array, bias: Option<&Array>) -> Result<Array> {
    let weight = weight.transpose()?;
    match bias {
        Some(bias) => addmm(bias, x, &weight, 1.0, 1.0),
        None => matmul(x, &weight),
    }
}

/// How far from zero the parameters of a layer with so many inputs are.
fn spread(layer: &'static str, argument: &str, dims: usize) -> Result<f64> {
    match dims {
        0 => Err(Error::argument(layer, argument, "a positive number", dims)),
        _ => Ok((1.0 / dims as f64).sqrt()),
    }
}

/// A parameter with values spread evenly over `±scale`.
pub(super) fn uniform(shape: &[usize], scale: f64) -> Result<Parameter> {
    Ok(init::uniform(shape, -scale, scale, DType::F32, None)?.into())
}

/// A parameter with one value everywhere.
pub(super) fn filled(shape: &[usize], value: i32) -> Result<Parameter> {
    Ok(full(shape, value, DType::F32)?.into())
}
