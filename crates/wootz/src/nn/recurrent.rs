//! Recurrent layers over `[…, length, features]`.

use super::linear::{affine, uniform};
use super::{Function, Module};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::ops::*;
use crate::tree::Parameter;

/// The simplest recurrent layer: `h = tanh(Wxh x + Whh h + b)`.
///
/// ```
/// use wootz::{Array, DType, nn::{Module, RNN}};
/// let layer = RNN::new(4, 8, true)?;
/// assert_eq!(layer.forward(&Array::ones(&[2, 3, 4], DType::F32)?)?.shape(), [2, 3, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct RNN {
    /// `[hidden_size, input_size]`.
    #[wootz(rename = "Wxh")]
    pub wxh: Parameter,
    /// `[hidden_size, hidden_size]`.
    #[wootz(rename = "Whh")]
    pub whh: Parameter,
    /// `[hidden_size]`.
    pub bias: Option<Parameter>,
    nonlinearity: Function,
}

impl RNN {
    /// Values spread evenly over `±1/√hidden_size`.
    pub fn new(input_size: usize, hidden_size: usize, bias: bool) -> Result<RNN> {
        RNN::with(input_size, hidden_size, bias, Function::new(super::tanh))
    }

    /// With another function than the hyperbolic tangent.
    pub fn with(
        input_size: usize,
        hidden_size: usize,
        bias: bool,
        nonlinearity: Function,
    ) -> Result<RNN> {
        let scale = 1.0 / (hidden_size as f64).sqrt();
        Ok(RNN {
            wxh: uniform(&[hidden_size, input_size], scale)?,
            whh: uniform(&[hidden_size, hidden_size], scale)?,
            bias: bias.then(|| uniform(&[hidden_size], scale)).transpose()?,
            nonlinearity,
        })
    }

    /// The hidden states of all steps, from a first one.
    pub fn forward_from(&self, x: &Array, hidden: Option<&Array>) -> Result<Array> {
        let x = affine(x, &self.wxh, self.bias.as_deref())?;
        let mut hidden = hidden.cloned();
        let all = steps("RNN", &x)?.map(|step| {
            let mut next = step?;
            if let Some(hidden) = &hidden {
                next = affine_to(&next, hidden, &self.whh)?;
            }
            let next = self.nonlinearity.call(&next)?;
            hidden = Some(next.clone());
            Ok(next)
        });
        stack(&all.collect::<Result<Vec<_>>>()?, -2)
    }
}

impl Module for RNN {
    fn forward(&self, x: &Array) -> Result<Array> {
        self.forward_from(x, None)
    }
}

/// Gated recurrent units.
///
/// ```
/// use wootz::{Array, DType, nn::{GRU, Module}};
/// let layer = GRU::new(4, 8, true)?;
/// assert_eq!(layer.forward(&Array::ones(&[2, 3, 4], DType::F32)?)?.shape(), [2, 3, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct GRU {
    /// `[3 · hidden_size, input_size]`: reset, update and new.
    #[wootz(rename = "Wx")]
    pub wx: Parameter,
    /// `[3 · hidden_size, hidden_size]`.
    #[wootz(rename = "Wh")]
    pub wh: Parameter,
    /// `[3 · hidden_size]`.
    pub b: Option<Parameter>,
    /// `[hidden_size]`, inside the reset of the new state.
    pub bhn: Option<Parameter>,
    hidden_size: usize,
}

impl GRU {
    /// Values spread evenly over `±1/√hidden_size`.
    pub fn new(input_size: usize, hidden_size: usize, bias: bool) -> Result<GRU> {
        let scale = 1.0 / (hidden_size as f64).sqrt();
        Ok(GRU {
            wx: uniform(&[3 * hidden_size, input_size], scale)?,
            wh: uniform(&[3 * hidden_size, hidden_size], scale)?,
            b: bias.then(|| uniform(&[3 * hidden_size], scale)).transpose()?,
            bhn: bias.then(|| uniform(&[hidden_size], scale)).transpose()?,
            hidden_size,
        })
    }

    /// The hidden states of all steps, from a first one.
    pub fn forward_from(&self, x: &Array, hidden: Option<&Array>) -> Result<Array> {
        let x = affine(x, &self.wx, self.b.as_deref())?;
        let mut hidden = hidden.cloned();
        let all = steps("GRU", &x)?.map(|step| {
            let next = self.step(&step?, hidden.as_ref())?;
            hidden = Some(next.clone());
            Ok(next)
        });
        stack(&all.collect::<Result<Vec<_>>>()?, -2)
    }

    fn step(&self, x: &Array, hidden: Option<&Array>) -> Result<Array> {
        let gates = 2 * self.hidden_size as i64;
        let (mut gate, mut new) = (x.index((Ellipsis, ..gates))?, x.index((Ellipsis, gates..))?);
        let mut inner = self.bhn.as_ref().map(|bhn| bhn.array().clone());
        if let Some(hidden) = hidden {
            let projected = affine(hidden, &self.wh, None)?;
            gate = add(gate, projected.index((Ellipsis, ..gates))?)?;
            let projected = projected.index((Ellipsis, gates..))?;
            inner = Some(inner.map_or(Ok(projected.clone()), |bhn| add(&projected, bhn))?);
        }
        let gate = sigmoid(gate)?.split(2, -1)?;
        let (reset, update) = (&gate[0], &gate[1]);
        if let Some(inner) = inner {
            new = add(new, multiply(reset, inner)?)?;
        }
        let fresh = multiply(subtract(1, update)?, tanh(new)?)?;
        match hidden {
            Some(hidden) => add(fresh, multiply(update, hidden)?),
            None => Ok(fresh),
        }
    }
}

impl Module for GRU {
    fn forward(&self, x: &Array) -> Result<Array> {
        self.forward_from(x, None)
    }
}

/// Long short-term memory.
///
/// ```
/// use wootz::{Array, DType, nn::LSTM};
/// let layer = LSTM::new(4, 8, true)?;
/// let (hidden, cell) = layer.forward(&Array::ones(&[2, 3, 4], DType::F32)?, None, None)?;
/// assert_eq!((hidden.shape(), cell.shape()), (&[2, 3, 8][..], &[2, 3, 8][..]));
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct LSTM {
    /// `[4 · hidden_size, input_size]`: input, forget, cell and output.
    #[wootz(rename = "Wx")]
    pub wx: Parameter,
    /// `[4 · hidden_size, hidden_size]`.
    #[wootz(rename = "Wh")]
    pub wh: Parameter,
    /// `[4 · hidden_size]`.
    pub bias: Option<Parameter>,
}

impl LSTM {
    /// Values spread evenly over `±1/√hidden_size`.
    pub fn new(input_size: usize, hidden_size: usize, bias: bool) -> Result<LSTM> {
        let scale = 1.0 / (hidden_size as f64).sqrt();
        Ok(LSTM {
            wx: uniform(&[4 * hidden_size, input_size], scale)?,
            wh: uniform(&[4 * hidden_size, hidden_size], scale)?,
            bias: bias.then(|| uniform(&[4 * hidden_size], scale)).transpose()?,
        })
    }

    /// The hidden states and the cells of all steps, from first ones.
    pub fn forward(
        &self,
        x: &Array,
        hidden: Option<&Array>,
        cell: Option<&Array>,
    ) -> Result<(Array, Array)> {
        let x = affine(x, &self.wx, self.bias.as_deref())?;
        let (mut hidden, mut cell) = (hidden.cloned(), cell.cloned());
        let (mut all_hidden, mut all_cell) = (Vec::new(), Vec::new());
        for step in steps("LSTM", &x)? {
            let mut gates = step?;
            if let Some(hidden) = &hidden {
                gates = affine_to(&gates, hidden, &self.wh)?;
            }
            let gates = gates.split(4, -1)?;
            let mut next = multiply(sigmoid(&gates[0])?, tanh(&gates[2])?)?;
            if let Some(cell) = &cell {
                next = add(multiply(sigmoid(&gates[1])?, cell)?, next)?;
            }
            let output = multiply(sigmoid(&gates[3])?, tanh(&next)?)?;
            all_cell.push(next.clone());
            all_hidden.push(output.clone());
            (hidden, cell) = (Some(output), Some(next));
        }
        Ok((stack(&all_hidden, -2)?, stack(&all_cell, -2)?))
    }
}

/// `start + hidden · weightᵀ`.
fn affine_to(start: &Array, hidden: &Array, weight: &Array) -> Result<Array> {
    addmm(start, hidden, &weight.transpose()?, 1.0, 1.0)
}

/// The slices of `x` along the axis before the last, of which there must be some.
fn steps(layer: &'static str, x: &Array) -> Result<impl Iterator<Item = Result<Array>>> {
    if x.rank() < 2 || x.dim(-2)? == 0 {
        return Err(Error::shape(layer, "x", "[…, at least one step, features]", x.shape()));
    }
    let (x, length) = (x.clone(), x.dim(-2)? as i64);
    Ok((0..length).map(move |step| x.index((Ellipsis, step, ..))))
}
