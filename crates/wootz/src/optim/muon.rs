//! Muon.

use super::core::{has_core, remembered, zeros};
use super::{Core, LearningRate, ParameterState, PerParameter};
use crate::array::Array;
use crate::error::Result;
use crate::ops::{add, addmm, divide, matmul, multiply, sqrt, square, subtract, sum};

/// Muon: momentum made orthogonal by a few Newton-Schulz iterations. Meant for matrices inside a
/// network; arrays of more axes count as matrices of rows, others get plain momentum.
///
/// ```
/// use wootz::{Array, optim::{Muon, Optimizer}};
/// let mut w = vec![Array::new([[1.0f32, 0.0], [0.0, 1.0]])?];
/// Muon::new(0.02)?.update(&mut w, &vec![Array::new([[1.0f32, 2.0], [3.0, 4.0]])?])?;
/// assert!(w[0].to_vec::<f32>()?[3] < 1.0);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Muon {
    core: Core,
    momentum: f64,
    weight_decay: f64,
    nesterov: bool,
    ns_steps: usize,
}

impl Muon {
    /// MLX's defaults: momentum 0.95, weight decay 0.01, Nesterov's, 5 iterations.
    pub fn new(learning_rate: impl Into<LearningRate>) -> Result<Muon> {
        let core = Core::new(Some(learning_rate.into()))?;
        Ok(Muon { core, momentum: 0.95, weight_decay: 0.01, nesterov: true, ns_steps: 5 })
    }

    /// Momentum, plain or Nesterov's.
    pub fn momentum(mut self, momentum: f64, nesterov: bool) -> Muon {
        (self.momentum, self.nesterov) = (momentum, nesterov);
        self
    }

    /// Adds a multiple of the parameter to its gradient.
    pub fn weight_decay(mut self, weight_decay: f64) -> Muon {
        self.weight_decay = weight_decay;
        self
    }

    /// Newton-Schulz iterations.
    pub fn ns_steps(mut self, ns_steps: usize) -> Muon {
        self.ns_steps = ns_steps;
        self
    }
}

impl PerParameter for Muon {
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
        let fresh = multiply(1.0 - self.momentum, &gradient)?;
        let v = add(multiply(self.momentum, remembered(state, "v")?)?, fresh)?;
        state.insert("v".into(), v.clone());
        let mut update = match self.nesterov {
            true => {
                add(multiply(gradient.clone(), 1.0 - self.momentum)?, multiply(v, self.momentum)?)?
            }
            false => v,
        };
        let mut rate = self.core.rate(gradient.dtype())?;
        if let &[first, .., last] = update.shape() {
            let shape = update.shape().to_vec();
            let rows = update.reshape(&[first, update.size() / first.max(1)])?;
            update = orthogonal(&rows, self.ns_steps)?.reshape(&shape)?;
            let before_last = shape[shape.len() - 2];
            rate = multiply(rate, (before_last as f64 / last as f64).max(1.0).sqrt())?;
        }
        subtract(parameter, multiply(rate, update)?)
    }
}

/// Brings the singular values of a matrix near 1.
fn orthogonal(x: &Array, steps: usize) -> Result<Array> {
    const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
    let [a, b, c] = COEFFICIENTS;
    let tall = x.shape()[0] > x.shape()[1];
    let mut x = if tall { x.transpose()? } else { x.clone() };
    let norm = sqrt(sum(&square(&x)?, (), true)?)?;
    x = divide(&x, add(norm, 1e-7)?)?;
    for _ in 0..steps {
        let product = matmul(&x, &x.transpose()?)?;
        let polynomial = addmm(&multiply(b, &product)?, &product, &product, c, 1.0)?;
        x = addmm(&multiply(a, &x)?, &polynomial, &x, 1.0, 1.0)?;
    }
    if tall { x.transpose() } else { Ok(x) }
}
