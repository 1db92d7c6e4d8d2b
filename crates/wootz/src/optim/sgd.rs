//! Gradient descent.

use super::core::{has_core, remembered, zeros};
use super::{Core, LearningRate, ParameterState, PerParameter};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::ops::{add, multiply, subtract};

/// Stochastic gradient descent: `v = momentum · v + (1 - dampening) · g`, `w -= rate · v`.
///
/// ```
/// use wootz::{Array, optim::{Optimizer, SGD}};
/// let mut w = vec![Array::new([1.0f32])?];
/// SGD::new(0.1)?.update(&mut w, &vec![Array::new([2.0f32])?])?;
/// assert!((w[0].item::<f32>()? - 0.8).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SGD {
    core: Core,
    momentum: f64,
    weight_decay: f64,
    dampening: f64,
    nesterov: bool,
}

impl SGD {
    /// MLX's defaults: no momentum, decay or dampening, not Nesterov's.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Result<SGD> {
        let core = Core::new(Some(learning_rate.into()))?;
        Ok(SGD { core, momentum: 0.0, weight_decay: 0.0, dampening: 0.0, nesterov: false })
    }

    /// Momentum with dampening of the gradient, or Nesterov's, which allows none.
    pub fn momentum(mut self, momentum: f64, dampening: f64, nesterov: bool) -> Result<SGD> {
        if nesterov && (momentum <= 0.0 || dampening != 0.0) {
            let expected = "a momentum and no dampening";
            let got = format!("momentum {momentum}, dampening {dampening}");
            return Err(Error::argument("SGD", "nesterov", expected, got));
        }
        (self.momentum, self.dampening, self.nesterov) = (momentum, dampening, nesterov);
        Ok(self)
    }

    /// Adds a multiple of the parameter to its gradient.
    pub fn weight_decay(mut self, weight_decay: f64) -> SGD {
        self.weight_decay = weight_decay;
        self
    }
}

impl PerParameter for SGD {
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
        let mut gradient = gradient.clone();
        if self.weight_decay != 0.0 {
            gradient = add(&gradient, multiply(self.weight_decay, parameter)?)?;
        }
        let rate = self.core.rate(gradient.dtype())?;
        if self.momentum <= 0.0 {
            return subtract(parameter, multiply(rate, gradient)?);
        }
        let fresh = match self.dampening > 0.0 {
            true => multiply(1.0 - self.dampening, &gradient)?,
            false => gradient.clone(),
        };
        let v = add(multiply(self.momentum, remembered(state, "v")?)?, fresh)?;
        let update = match self.nesterov {
            true => add(&gradient, multiply(self.momentum, &v)?)?,
            false => v.clone(),
        };
        state.insert("v".into(), v);
        subtract(parameter, multiply(rate, update)?)
    }
}
