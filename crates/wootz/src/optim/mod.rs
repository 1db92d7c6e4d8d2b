//! Optimizers with MLX's names, formulas and defaults, [schedules](Schedule) of learning rates, and
//! clipping.
//!
//! ```
//! use wootz::{Array, Tree, grad_of, optim::{AdamW, Optimizer, cosine_decay}};
//!
//! let mut point = vec![Array::new([3.0f32, -2.0])?];
//! let distance = grad_of(|point: &Vec<Array>| point[0].square()?.sum(()));
//! let mut optimizer = AdamW::new(cosine_decay(0.1, 200, 0.0)?)?.weight_decay(0.0);
//! for _ in 0..200 {
//!     let gradients = distance(&point)?;
//!     optimizer.update(&mut point, &gradients)?;
//!     // Nothing has run yet; this computes the new point and the optimizer's state.
//!     wootz::eval(&optimizer.arrays(&point))?;
//! }
//! assert!(point[0].abs()?.max(())?.item::<f32>()? < 0.1);
//! # Ok::<(), wootz::Error>(())
//! ```
//!
//! Everything that changes from step to step is in arrays: the step's number and the learning
//! rate are scalars, and what an optimizer remembers of a parameter has its name.
//! [`Optimizer::state`] gives all of it and [`Optimizer::set_state`] puts it back, to the last bit.

mod adafactor;
mod adam;
mod adaptive;
mod clip;
mod core;
mod lion;
mod multi;
mod muon;
mod schedule;
mod sgd;

use std::collections::BTreeMap;

pub use adafactor::Adafactor;
pub use adam::{Adam, AdamW, Adamax};
pub use adaptive::{AdaDelta, Adagrad, RMSprop};
pub use clip::clip_grad_norm;
pub use core::{Core, ParameterState, PerParameter};
pub use lion::Lion;
pub use multi::MultiOptimizer;
pub use muon::Muon;
pub use schedule::{
    LearningRate, Schedule, cosine_decay, exponential_decay, join_schedules, linear_schedule,
    step_decay,
};
pub use sgd::SGD;

use crate::array::Array;
use crate::error::Result;
use crate::tree::{Strictness, Tree, check_keys, check_names, replace};

/// Changes parameters by their gradients.
pub trait Optimizer {
    /// Makes the state for parameters that have none. [`update`](Optimizer::update) does it by
    /// itself.
    fn init(&mut self, parameters: &BTreeMap<String, Array>) -> Result<()>;

    /// The new values of the parameters that have gradients, by name.
    fn apply_gradients(
        &mut self,
        gradients: &BTreeMap<String, Array>,
        parameters: &BTreeMap<String, Array>,
    ) -> Result<BTreeMap<String, Array>>;

    /// Everything the optimizer remembers: `step`, `learning_rate`, and for each parameter what
    /// MLX remembers of it, such as `layers.0.weight.m`.
    fn state(&self) -> BTreeMap<String, Array>;

    /// Goes on from a [state](Optimizer::state) of another optimizer of the same kind.
    fn set_state(&mut self, state: &BTreeMap<String, Array>) -> Result<()>;

    /// The present learning rate, a scalar.
    fn learning_rate(&self) -> Option<Array>;

    /// Replaces the learning rate, and a schedule if there is one.
    fn set_learning_rate(&mut self, rate: LearningRate) -> Result<()>;

    /// Takes one step: changes the parameters of `model` that have gradients. Gradients are those
    /// of [`value_and_grad_of`](crate::value_and_grad_of) or a map by name; frozen ones are
    /// left out. Nothing runs before it is [evaluated](Optimizer::arrays); drop the gradients before that,
    /// so that the memory of each is free when its parameter is changed.
    fn update(&mut self, model: &mut dyn Tree, gradients: &dyn Tree) -> Result<()> {
        check_names("update", model)?;
        check_names("update", gradients)?;
        let (parameters, gradients) = (model.parameters(), gradients.trainable_parameters());
        check_keys("update", &parameters, &gradients, Strictness::MayLack)?;
        let updated = self.apply_gradients(&gradients, &parameters)?;
        replace(model, &updated)
    }

    /// The arrays of a model and of the optimizer's state, to hand to [`eval`](crate::eval()) after
    /// a step.
    fn arrays(&self, model: &dyn Tree) -> Vec<Array> {
        model.parameters().into_values().chain(self.state().into_values()).collect()
    }
}
