//! Adafactor.

use super::core::{has_core, remembered, zeros};
use super::{Core, LearningRate, ParameterState, PerParameter};
use crate::array::Array;
use crate::error::Result;
use crate::ops::*;

/// Adafactor: the mean squares of a matrix's gradients are remembered by row and by column only.
///
/// ```
/// use wootz::{Array, optim::{Adafactor, Optimizer}};
/// let mut w = vec![Array::new([[1.0f32, 2.0]])?];
/// Adafactor::new(None)?.update(&mut w, &vec![Array::new([[2.0f32, 1.0]])?])?;
/// assert!(w[0].to_vec::<f32>()?[0] < 1.0);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Adafactor {
    core: Core,
    eps: [f64; 2],
    clip_threshold: f64,
    decay_rate: f64,
    beta_1: Option<f64>,
    weight_decay: f64,
    scale_parameter: bool,
    relative_step: bool,
    warmup_init: bool,
}

impl Adafactor {
    /// MLX's defaults: `eps` 1e-30 and 1e-3, clipping at 1, decay rate -0.8, no first moment, no
    /// weight decay, steps relative to the parameter's size and to the step's number, no warm-up.
    /// The rate only matters without relative steps.
    pub fn new(learning_rate: Option<LearningRate>) -> Result<Adafactor> {
        Ok(Adafactor {
            core: Core::new(learning_rate)?,
            eps: [1e-30, 1e-3],
            clip_threshold: 1.0,
            decay_rate: -0.8,
            beta_1: None,
            weight_decay: 0.0,
            scale_parameter: true,
            relative_step: true,
            warmup_init: false,
        })
    }

    /// Added to squared gradients, and the least size of a parameter that counts.
    pub fn eps(mut self, eps: [f64; 2]) -> Adafactor {
        self.eps = eps;
        self
    }

    /// The largest root mean square of an update before scaling.
    pub fn clip_threshold(mut self, clip_threshold: f64) -> Adafactor {
        self.clip_threshold = clip_threshold;
        self
    }

    /// The exponent of the step by which the past fades.
    pub fn decay_rate(mut self, decay_rate: f64) -> Adafactor {
        self.decay_rate = decay_rate;
        self
    }

    /// How much of a running mean of updates is kept; none without it.
    pub fn beta_1(mut self, beta_1: Option<f64>) -> Adafactor {
        self.beta_1 = beta_1;
        self
    }

    /// The part of a parameter, times the rate, that each step takes off.
    pub fn weight_decay(mut self, weight_decay: f64) -> Adafactor {
        self.weight_decay = weight_decay;
        self
    }

    /// Whether steps are relative to the parameter's size.
    pub fn scale_parameter(mut self, scale_parameter: bool) -> Adafactor {
        self.scale_parameter = scale_parameter;
        self
    }

    /// Whether the rate follows from the step's number, rising slowly at first if `warmup_init`.
    pub fn relative_step(mut self, relative_step: bool, warmup_init: bool) -> Adafactor {
        (self.relative_step, self.warmup_init) = (relative_step, warmup_init);
        self
    }

    fn rate(&self, parameter_rms: &Array) -> Result<Array> {
        let dtype = parameter_rms.dtype();
        let step = self.core.step();
        let rate = match (self.relative_step, self.warmup_init) {
            (false, _) => self.core.rate(dtype)?,
            (true, true) => minimum(multiply(1e-6, step)?, rsqrt(step)?)?.astype(dtype)?,
            (true, false) => minimum(1e-2, rsqrt(step)?)?.astype(dtype)?,
        };
        match self.scale_parameter {
            true => multiply(maximum(self.eps[1], parameter_rms)?, rate),
            false => Ok(rate),
        }
    }
}

impl PerParameter for Adafactor {
    has_core!();

    fn init_single(&self, parameter: &Array) -> Result<ParameterState> {
        let mut state = if parameter.rank() >= 2 {
            let sum_of = |axis| zeros_like(&take(parameter, 0, Some(axis))?);
            ParameterState::from([
                ("exp_avg_sq_row".to_string(), sum_of(-1)?),
                ("exp_avg_sq_col".to_string(), sum_of(-2)?),
            ])
        } else {
            zeros(parameter, &["exp_avg_sq"])?
        };
        if self.beta_1.is_some() {
            state.extend(zeros(parameter, &["exp_avg"])?);
        }
        Ok(state)
    }

    fn apply_single(
        &self,
        gradient: &Array,
        parameter: &Array,
        state: &mut ParameterState,
    ) -> Result<Array> {
        let parameter_rms = rms(parameter)?;
        let rate = self.rate(&parameter_rms)?;
        let fading = power(self.core.step(), self.decay_rate)?.astype(parameter_rms.dtype())?;
        let beta_2 = subtract(1.0, fading)?;
        let mut follow = |name: &str, value: Array| {
            let kept = multiply(&beta_2, remembered(state, name)?)?;
            let mean = add(kept, multiply(subtract(1, &beta_2)?, value)?)?;
            state.insert(name.into(), mean.clone());
            Ok::<Array, crate::Error>(mean)
        };
        let squares = add(square(gradient)?, self.eps[0])?;
        let factor = if gradient.rank() >= 2 {
            let rows = follow("exp_avg_sq_row", mean(&squares, -1, false)?)?;
            let columns = follow("exp_avg_sq_col", mean(&squares, -2, false)?)?;
            let rows = rsqrt(divide(&rows, mean(&rows, -1, true)?)?)?;
            multiply(expand_dims(&rows, -1)?, expand_dims(&rsqrt(columns)?, -2)?)?
        } else {
            rsqrt(follow("exp_avg_sq", squares)?)?
        };
        let update = multiply(factor, gradient)?;
        let excess = maximum(1.0, divide(rms(&update)?, self.clip_threshold)?)?;
        let mut update = multiply(&rate, divide(update, excess)?)?;
        if let Some(beta_1) = self.beta_1 {
            update = super::adam::running(beta_1, &remembered(state, "exp_avg")?, &update)?;
            state.insert("exp_avg".into(), update.clone());
        }
        let mut parameter = parameter.clone();
        if self.weight_decay != 0.0 {
            let lost = multiply(&parameter, multiply(-self.weight_decay, rate)?)?;
            parameter = add(parameter, lost)?;
        }
        subtract(parameter, update)
    }
}

/// The root of the mean square of all elements.
fn rms(x: &Array) -> Result<Array> {
    sqrt(mean(&square(x)?, (), false)?)
}
