//! Products with weights that are dense or quantized in any way, and rows of them by index.

use wootz::quant::Scheme;
use wootz::{
    Array, DType, Factor, Gate, Parameter, Quantized, Result, Tree, add, addmm, expand_dims,
    gather_mm, gather_qmm, matmul, matmul_each, matmul_glu, quantized_matmul, take,
};

use crate::checkpoint::loader::Weight;

/// `x Wᵀ + b`, with a weight of `[outputs, inputs]`.
#[derive(Clone, Debug, Tree)]
pub struct Linear {
    /// Numbers, or codes.
    pub weight: Parameter,
    /// Of quantized weights that have them.
    pub scales: Option<Parameter>,
    /// Of quantized weights that have them.
    pub biases: Option<Parameter>,
    /// `[outputs]`.
    pub bias: Option<Parameter>,
    #[wootz(value)]
    scheme: Option<Scheme>,
    /// Whether activations are rounded to narrower weights, instead of widening those.
    narrow: bool,
}

impl Linear {
    pub(crate) fn new(weight: Weight, bias: Option<Parameter>, narrow: bool) -> Linear {
        let (weight, scales, biases, scheme) = parts(weight);
        Linear { weight, scales, biases, bias, scheme, narrow }
    }

    /// How the weights are quantized.
    pub fn scheme(&self) -> Option<Scheme> {
        self.scheme
    }

    /// For `x` of `[…, inputs]`.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let quantized = joined(self.scheme, &self.weight, &self.scales, &self.biases)?;
        match (quantized, self.bias.as_deref()) {
            (Some(weights), None) => quantized_matmul(x, &weights, true),
            (Some(_), Some(_)) => Linear::forward_each([self], x).map(|[y]| y),
            (None, bias) if self.narrow && self.weight.dtype() != x.dtype() => {
                let y = matmul(&x.astype(self.weight.dtype())?, &self.weight.transpose()?)?;
                let y = y.astype(x.dtype())?;
                bias.map_or(Ok(y.clone()), |bias| add(&y, bias))
            }
            (None, Some(bias)) => addmm(bias, x, &self.weight.transpose()?, 1.0, 1.0),
            (None, None) => matmul(x, &self.weight.transpose()?),
        }
    }
}

impl Linear {
    /// The results of several layers, which all read `x`: in one pass, where `x` is few rows.
    pub fn forward_each<const N: usize>(layers: [&Linear; N], x: &Array) -> Result<[Array; N]> {
        let mut results = layers.map(|_| x.clone());
        match with_factors(&layers, x, |factors| matmul_each(x, factors))? {
            Some(products) => {
                results.iter_mut().zip(products).for_each(|(result, y)| *result = y);
            }
            None => {
                for (result, layer) in results.iter_mut().zip(layers) {
                    *result = layer.forward(x)?;
                }
            }
        }
        Ok(results)
    }

    /// What a gate lets through: in one pass, where `x` is few rows.
    pub fn forward_gated(gate: &Linear, up: &Linear, x: &Array, by: Gate) -> Result<Array> {
        let layers = [gate, up];
        let one = |factors: &[Factor<'_>]| matmul_glu(x, factors[0], factors[1], by);
        match with_factors(&layers, x, one)? {
            Some(result) => Ok(result),
            None => {
                let [gate, up] = Linear::forward_each(layers, x)?;
                by.apply(&gate, &up)
            }
        }
    }
}

/// Calls a function with the weights and biases of layers, if none wants other activations than `x`.
fn with_factors<R>(
    layers: &[&Linear],
    x: &Array,
    product: impl FnOnce(&[Factor<'_>]) -> Result<R>,
) -> Result<Option<R>> {
    let rounds = |layer: &&Linear| layer.narrow && layer.weight.dtype() != x.dtype();
    if layers.iter().any(|layer| layer.scheme.is_none() && rounds(layer)) {
        return Ok(None);
    }
    let quantized = (layers.iter())
        .map(|layer| joined(layer.scheme, &layer.weight, &layer.scales, &layer.biases))
        .collect::<Result<Vec<_>>>()?;
    let factors: Vec<Factor<'_>> = (layers.iter().zip(&quantized))
        .map(|(layer, quantized)| {
            let factor = match quantized {
                Some(weights) => Factor::quantized(weights),
                None => Factor::dense(&layer.weight),
            };
            layer.bias.as_deref().map_or(factor, |bias| factor.plus(bias))
        })
        .collect();
    product(&factors).map(Some)
}

/// A row of a table `[count, dims]` for each integer.
#[derive(Clone, Debug, Tree)]
pub struct Embedding {
    /// Numbers, or codes.
    pub weight: Parameter,
    /// Of quantized weights that have them.
    pub scales: Option<Parameter>,
    /// Of quantized weights that have them.
    pub biases: Option<Parameter>,
    #[wootz(value)]
    scheme: Option<Scheme>,
    narrow: bool,
}

impl Embedding {
    pub(crate) fn new(weight: Weight, narrow: bool) -> Embedding {
        let (weight, scales, biases, scheme) = parts(weight);
        Embedding { weight, scales, biases, scheme, narrow }
    }

    /// The dtype of its rows, which is that of the model's activations.
    pub fn dtype(&self) -> DType {
        match (self.scheme, &self.scales) {
            (None, _) if self.narrow => DType::F32,
            (None, _) => self.weight.dtype(),
            (Some(Scheme::Blocks(_)), _) => DType::F32,
            (Some(Scheme::Affine { .. }), Some(scales)) => scales.dtype(),
            _ => DType::BF16,
        }
    }

    /// The rows of tokens.
    pub fn forward(&self, tokens: &Array) -> Result<Array> {
        let rows = match joined(self.scheme, &self.weight, &self.scales, &self.biases)? {
            Some(weights) => weights.take(tokens, self.dtype())?,
            None => take(&self.weight, tokens, Some(0))?,
        };
        rows.astype(self.dtype())
    }

    /// `x Wᵀ`: the table as the output layer of a model whose two are the same.
    pub fn as_linear(&self, x: &Array) -> Result<Array> {
        match joined(self.scheme, &self.weight, &self.scales, &self.biases)? {
            Some(weights) => quantized_matmul(x, &weights, true),
            None if self.narrow && self.weight.dtype() != x.dtype() => {
                matmul(&x.astype(self.weight.dtype())?, &self.weight.transpose()?)?
                    .astype(x.dtype())
            }
            None => matmul(x, &self.weight.transpose()?),
        }
    }
}

/// A [`Linear`] for each expert: `x Wᵀ + b` with the weight that an index chooses.
#[derive(Clone, Debug, Tree)]
pub struct SwitchLinear {
    /// `[experts, outputs, inputs]`: numbers, or codes.
    pub weight: Parameter,
    /// Of quantized weights that have them.
    pub scales: Option<Parameter>,
    /// Of quantized weights that have them.
    pub biases: Option<Parameter>,
    /// `[experts, outputs]`.
    pub bias: Option<Parameter>,
    #[wootz(value)]
    scheme: Option<Scheme>,
}

impl SwitchLinear {
    pub(crate) fn new(weight: Weight, bias: Option<Parameter>) -> SwitchLinear {
        let (weight, scales, biases, scheme) = parts(weight);
        SwitchLinear { weight, scales, biases, bias, scheme }
    }

    /// For `x` of `[…, rows, inputs]` and experts that broadcast with the axes before the last two.
    pub fn forward(&self, x: &Array, experts: &Array) -> Result<Array> {
        let y = match joined(self.scheme, &self.weight, &self.scales, &self.biases)? {
            Some(weights) => gather_qmm(x, &weights, None, Some(experts), true, false)?,
            None => gather_mm(x, &self.weight.swapaxes(-1, -2)?, None, Some(experts), false)?,
        };
        match &self.bias {
            Some(bias) => add(y, expand_dims(&take(bias, experts, Some(0))?, -2)?),
            None => Ok(y),
        }
    }
}

type Parts = (Parameter, Option<Parameter>, Option<Parameter>, Option<Scheme>);

/// The arrays of weights; quantized ones are not trained.
fn parts(weight: Weight) -> Parts {
    let frozen = |array: &Array| {
        let mut parameter = Parameter::new(array.clone());
        parameter.set_trainable(false);
        parameter
    };
    match weight {
        Weight::Dense(weight) => (weight, None, None, None),
        Weight::Quantized(weights) => (
            frozen(weights.codes()),
            weights.scales().map(frozen),
            weights.biases().map(frozen),
            Some(weights.scheme()),
        ),
    }
}

/// Quantized weights of their arrays.
fn joined(
    scheme: Option<Scheme>,
    weight: &Parameter,
    scales: &Option<Parameter>,
    biases: &Option<Parameter>,
) -> Result<Option<Quantized>> {
    let Some(scheme) = scheme else { return Ok(None) };
    Quantized::new(scheme, weight, scales.as_deref(), biases.as_deref()).map(Some)
}
