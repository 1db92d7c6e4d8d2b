//! Optimizers that divide by a mean or sum of squared gradients.

use super::adam::running;
use super::core::{check, has_core, remembered, zeros};
use super::{Core, LearningRate, ParameterState, PerParameter};
use crate::array::Array;
use crate::error::Result;
use crate::ops::{add, divide, multiply, sqrt, square, subtract};

/// RMSprop: steps divided by a running root mean square.
///
/// ```
/// use wootz::{Array, optim::{Optimizer, RMSprop}};
/// let mut w = vec![Array::new([1.0f32])?];
/// RMSprop::new(0.01)?.update(&mut w, &vec![Array::new([2.0f32])?])?;
/// assert!((w[0].item::<f32>()? - 0.9).abs() < 1e-5);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RMSprop {
    core: Core,
    alpha: f64,
    eps: f64,
}

impl RMSprop {
    /// MLX's defaults: `alpha` 0.99, `eps` 1e-8.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Result<RMSprop> {
        Ok(RMSprop { core: Core::new(Some(learning_rate.into()))?, alpha: 0.99, eps: 1e-8 })
    }

    /// How much of the running mean is kept.
    pub fn alpha(mut self, alpha: f64) -> Result<RMSprop> {
        check("RMSprop", "alpha", alpha, "a number that is not negative", alpha >= 0.0)?;
        self.alpha = alpha;
        Ok(self)
    }

    /// Added to the denominator.
    pub fn eps(mut self, eps: f64) -> Result<RMSprop> {
        check("RMSprop", "eps", eps, "a positive number", eps > 0.0)?;
        self.eps = eps;
        Ok(self)
    }
}

impl PerParameter for RMSprop {
    has_core!();

    fn init_single(&self, parameter: &Array) -> Result<ParameterState> {
        zeros(parameter, &["v"])
    }

    fn apply_single(
        &self,
        gradient: &Array,
        parameter: &Array,
        state: &mut ParameterState,
    ) -> Result<Array> {
        let v = running(self.alpha, &remembered(state, "v")?, &square(gradient)?)?;
        state.insert("v".into(), v.clone());
        divided_step(&self.core, gradient, parameter, &v, self.eps)
    }
}

/// Adagrad: steps divided by the root of the sum of all squares.
///
/// ```
/// use wootz::{Array, optim::{Adagrad, Optimizer}};
/// let mut w = vec![Array::new([1.0f32])?];
/// Adagrad::new(0.1)?.update(&mut w, &vec![Array::new([2.0f32])?])?;
/// assert!((w[0].item::<f32>()? - 0.9).abs() < 1e-5);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Adagrad {
    core: Core,
    eps: f64,
}

impl Adagrad {
    /// MLX's default `eps` is 1e-8.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Result<Adagrad> {
        Ok(Adagrad { core: Core::new(Some(learning_rate.into()))?, eps: 1e-8 })
    }

    /// Added to the denominator.
    pub fn eps(mut self, eps: f64) -> Result<Adagrad> {
        check("Adagrad", "eps", eps, "a positive number", eps > 0.0)?;
        self.eps = eps;
        Ok(self)
    }
}

impl PerParameter for Adagrad {
    has_core!();

    fn init_single(&self, parameter: &Array) -> Result<ParameterState> {
        zeros(parameter, &["v"])
    }

    fn apply_single(
        &self,
        gradient: &Array,
        parameter: &Array,
        state: &mut ParameterState,
    ) -> Result<Array> {
        let v = add(remembered(state, "v")?, square(gradient)?)?;
        state.insert("v".into(), v.clone());
        divided_step(&self.core, gradient, parameter, &v, self.eps)
    }
}

/// AdaDelta: steps as large as recent steps were, relative to recent gradients.
///
/// ```
/// use wootz::{Array, optim::{AdaDelta, Optimizer}};
/// let mut w = vec![Array::new([1.0f32])?];
/// AdaDelta::new(1.0)?.update(&mut w, &vec![Array::new([2.0f32])?])?;
/// assert!(w[0].item::<f32>()? < 1.0);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AdaDelta {
    core: Core,
    rho: f64,
    eps: f64,
}

impl AdaDelta {
    /// MLX's defaults: `rho` 0.9, `eps` 1e-6.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Result<AdaDelta> {
        Ok(AdaDelta { core: Core::new(Some(learning_rate.into()))?, rho: 0.9, eps: 1e-6 })
    }

    /// How much of the running means is kept.
    pub fn rho(mut self, rho: f64) -> Result<AdaDelta> {
        check("AdaDelta", "rho", rho, "a number that is not negative", rho >= 0.0)?;
        self.rho = rho;
        Ok(self)
    }

    /// Added below the roots.
    pub fn eps(mut self, eps: f64) -> Result<AdaDelta> {
        check("AdaDelta", "eps", eps, "a positive number", eps > 0.0)?;
        self.eps = eps;
        Ok(self)
    }
}

impl PerParameter for AdaDelta {
    has_core!();

    fn init_single(&self, parameter: &Array) -> Result<ParameterState> {
        zeros(parameter, &["u", "v"])
    }

    fn apply_single(
        &self,
        gradient: &Array,
        parameter: &Array,
        state: &mut ParameterState,
    ) -> Result<Array> {
        let rate = self.core.rate(gradient.dtype())?;
        let u = remembered(state, "u")?;
        let v = running(self.rho, &remembered(state, "v")?, &square(gradient)?)?;
        let root = |x: &Array| sqrt(add(x, self.eps)?);
        let step = multiply(divide(root(&u)?, root(&v)?)?, gradient)?;
        state.insert("u".into(), running(self.rho, &u, &square(&step)?)?);
        state.insert("v".into(), v);
        subtract(parameter, multiply(rate, step)?)
    }
}

/// `parameter - rate · gradient / (√v + eps)`.
fn divided_step(
    core: &Core,
    gradient: &Array,
    parameter: &Array,
    v: &Array,
    eps: f64,
) -> Result<Array> {
    let step = multiply(core.rate(gradient.dtype())?, gradient)?;
    subtract(parameter, divide(step, add(sqrt(v)?, eps)?)?)
}
