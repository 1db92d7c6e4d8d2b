//! Adam and its relatives.

use super::core::{check, check_betas, has_core, remembered, zeros};
use super::schedule::power_of;
use super::{Core, LearningRate, ParameterState, PerParameter};
use crate::array::Array;
use crate::error::Result;
use crate::ops::{abs, add, divide, maximum, multiply, rsqrt, sqrt, square, subtract};

/// Adam: running means of the gradient and of its square.
///
/// ```
/// use wootz::{Array, optim::{Adam, Optimizer}};
/// let mut w = vec![Array::new([1.0f32])?];
/// let mut adam = Adam::new(0.1)?.betas([0.9, 0.95])?.bias_correction(true);
/// adam.update(&mut w, &vec![Array::new([2.0f32])?])?;
/// assert!((w[0].item::<f32>()? - 0.9).abs() < 1e-4);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Adam {
    core: Core,
    betas: [f64; 2],
    eps: f64,
    bias_correction: bool,
}

impl Adam {
    /// MLX's defaults: betas 0.9 and 0.999, `eps` 1e-8, no bias correction.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Result<Adam> {
        let core = Core::new(Some(learning_rate.into()))?;
        Ok(Adam { core, betas: [0.9, 0.999], eps: 1e-8, bias_correction: false })
    }

    /// How much of the running means is kept, in [0, 1).
    pub fn betas(mut self, betas: [f64; 2]) -> Result<Adam> {
        check_betas("Adam", betas)?;
        self.betas = betas;
        Ok(self)
    }

    /// Added to the denominator.
    pub fn eps(mut self, eps: f64) -> Result<Adam> {
        check("Adam", "eps", eps, "a number that is not negative", eps >= 0.0)?;
        self.eps = eps;
        Ok(self)
    }

    /// Whether to make up for the running means' start at zero.
    pub fn bias_correction(mut self, bias_correction: bool) -> Adam {
        self.bias_correction = bias_correction;
        self
    }
}

impl PerParameter for Adam {
    has_core!();

    fn init_single(&self, parameter: &Array) -> Result<ParameterState> {
        zeros(parameter, &["m", "v"])
    }

    fn apply_single(
        &self,
        gradient: &Array,
        parameter: &Array,
        state: &mut ParameterState,
    ) -> Result<Array> {
        let dtype = gradient.dtype();
        let rate = self.core.rate(dtype)?;
        let [b1, b2] = self.betas;
        let m = running(b1, &remembered(state, "m")?, gradient)?;
        let v = running(b2, &remembered(state, "v")?, &square(gradient)?)?;
        state.insert("m".into(), m.clone());
        state.insert("v".into(), v.clone());
        if !self.bias_correction {
            return subtract(parameter, divide(multiply(rate, m)?, add(sqrt(v)?, self.eps)?)?);
        }
        let rest = |beta: f64| subtract(1, power_of(beta, self.core.step())?);
        let first = self.core.shared("first", dtype, || divide(rate, rest(b1)?)?.astype(dtype))?;
        let second = self.core.shared("second", dtype, || rsqrt(rest(b2)?)?.astype(dtype))?;
        let denominator = add(multiply(sqrt(v)?, second)?, self.eps)?;
        subtract(parameter, divide(multiply(first, m)?, denominator)?)
    }
}

/// [`Adam`] with weight decay that does not pass through the running means.
///
/// ```
/// use wootz::{Array, optim::{AdamW, Optimizer}};
/// let mut w = vec![Array::new([1.0f32])?];
/// AdamW::new(0.1)?.weight_decay(0.5).update(&mut w, &vec![Array::new([0.0f32])?])?;
/// assert!((w[0].item::<f32>()? - 0.95).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AdamW {
    adam: Adam,
    weight_decay: f64,
}

impl AdamW {
    /// MLX's defaults: those of [`Adam`], weight decay 0.01.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Result<AdamW> {
        Ok(AdamW { adam: Adam::new(learning_rate)?, weight_decay: 0.01 })
    }

    /// See [`Adam::betas`].
    pub fn betas(mut self, betas: [f64; 2]) -> Result<AdamW> {
        self.adam = self.adam.betas(betas)?;
        Ok(self)
    }

    /// See [`Adam::eps`].
    pub fn eps(mut self, eps: f64) -> Result<AdamW> {
        self.adam = self.adam.eps(eps)?;
        Ok(self)
    }

    /// See [`Adam::bias_correction`].
    pub fn bias_correction(mut self, bias_correction: bool) -> AdamW {
        self.adam = self.adam.bias_correction(bias_correction);
        self
    }

    /// The part of a parameter, times the rate, that each step takes off.
    pub fn weight_decay(mut self, weight_decay: f64) -> AdamW {
        self.weight_decay = weight_decay;
        self
    }
}

impl PerParameter for AdamW {
    fn core(&self) -> &Core {
        &self.adam.core
    }

    fn core_mut(&mut self) -> &mut Core {
        &mut self.adam.core
    }

    fn init_single(&self, parameter: &Array) -> Result<ParameterState> {
        self.adam.init_single(parameter)
    }

    fn apply_single(
        &self,
        gradient: &Array,
        parameter: &Array,
        state: &mut ParameterState,
    ) -> Result<Array> {
        let kept = self.core().kept(gradient.dtype(), self.weight_decay)?;
        self.adam.apply_single(gradient, &multiply(parameter, kept)?, state)
    }
}

/// [`Adam`] with the largest recent gradient in the place of the mean square.
///
/// ```
/// use wootz::{Array, optim::{Adamax, Optimizer}};
/// let mut w = vec![Array::new([1.0f32])?];
/// Adamax::new(0.1)?.update(&mut w, &vec![Array::new([2.0f32])?])?;
/// assert!((w[0].item::<f32>()? - 0.99).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Adamax {
    core: Core,
    betas: [f64; 2],
    eps: f64,
}

impl Adamax {
    /// MLX's defaults: betas 0.9 and 0.999, `eps` 1e-8.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Result<Adamax> {
        let core = Core::new(Some(learning_rate.into()))?;
        Ok(Adamax { core, betas: [0.9, 0.999], eps: 1e-8 })
    }

    /// How much of the running mean and of the largest gradient is kept, in [0, 1).
    pub fn betas(mut self, betas: [f64; 2]) -> Result<Adamax> {
        check_betas("Adamax", betas)?;
        self.betas = betas;
        Ok(self)
    }

    /// Added to the denominator.
    pub fn eps(mut self, eps: f64) -> Result<Adamax> {
        check("Adamax", "eps", eps, "a number that is not negative", eps >= 0.0)?;
        self.eps = eps;
        Ok(self)
    }
}

impl PerParameter for Adamax {
    has_core!();

    fn init_single(&self, parameter: &Array) -> Result<ParameterState> {
        zeros(parameter, &["m", "v"])
    }

    fn apply_single(
        &self,
        gradient: &Array,
        parameter: &Array,
        state: &mut ParameterState,
    ) -> Result<Array> {
        let rate = self.core.rate(gradient.dtype())?;
        let [b1, b2] = self.betas;
        let m = running(b1, &remembered(state, "m")?, gradient)?;
        let v = maximum(multiply(b2, remembered(state, "v")?)?, abs(gradient)?)?;
        state.insert("m".into(), m.clone());
        state.insert("v".into(), v.clone());
        subtract(parameter, divide(multiply(rate, m)?, add(v, self.eps)?)?)
    }
}

/// `keep · mean + (1 - keep) · value`.
pub(super) fn running(keep: f64, mean: &Array, value: &Array) -> Result<Array> {
    add(multiply(keep, mean)?, multiply(1.0 - keep, value)?)
}
