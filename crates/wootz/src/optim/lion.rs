//! Lion.

use super::adam::running;
use super::core::{check_betas, has_core, remembered, zeros};
use super::{Core, LearningRate, ParameterState, PerParameter};
use crate::array::Array;
use crate::error::Result;
use crate::ops::{multiply, sign, subtract};

/// Lion: steps of one size in the direction of a running mean's sign.
///
/// ```
/// use wootz::{Array, optim::{Lion, Optimizer}};
/// let mut w = vec![Array::new([1.0f32])?];
/// Lion::new(0.1)?.update(&mut w, &vec![Array::new([2.0f32])?])?;
/// assert!((w[0].item::<f32>()? - 0.9).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lion {
    core: Core,
    betas: [f64; 2],
    weight_decay: f64,
}

impl Lion {
    /// MLX's defaults: betas 0.9 and 0.99, no weight decay.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Result<Lion> {
        let core = Core::new(Some(learning_rate.into()))?;
        Ok(Lion { core, betas: [0.9, 0.99], weight_decay: 0.0 })
    }

    /// How much of the mean counts for the direction, and how much of it is kept; in [0, 1).
    pub fn betas(mut self, betas: [f64; 2]) -> Result<Lion> {
        check_betas("Lion", betas)?;
        self.betas = betas;
        Ok(self)
    }

    /// The part of a parameter, times the rate, that each step takes off.
    pub fn weight_decay(mut self, weight_decay: f64) -> Lion {
        self.weight_decay = weight_decay;
        self
    }
}

impl PerParameter for Lion {
    has_core!();

    fn init_single(&self, parameter: &Array) -> Result<ParameterState> {
        zeros(parameter, &["m"])
    }

    fn apply_single(
        &self,
        gradient: &Array,
        parameter: &Array,
        state: &mut ParameterState,
    ) -> Result<Array> {
        let rate = self.core.rate(gradient.dtype())?;
        let [b1, b2] = self.betas;
        let m = remembered(state, "m")?;
        let direction = sign(running(b1, &m, gradient)?)?;
        state.insert("m".into(), running(b2, &m, gradient)?);
        let mut parameter = parameter.clone();
        if self.weight_decay > 0.0 {
            let kept = self.core.kept(gradient.dtype(), self.weight_decay)?;
            parameter = multiply(kept, parameter)?;
        }
        subtract(parameter, multiply(rate, direction)?)
    }
}
