//! What optimizers that treat each parameter by itself have in common.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{LearningRate, Optimizer, Schedule};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::{add, multiply, subtract, zeros_like};
use crate::tree::{Strictness, check_keys};

/// What an optimizer remembers of one parameter, by MLX's names.
pub type ParameterState = BTreeMap<String, Array>;

/// An optimizer that treats each parameter by itself. Implement it to write your own: the rest of
/// [`Optimizer`] follows.
pub trait PerParameter {
    /// Step, learning rate and state.
    fn core(&self) -> &Core;

    /// Step, learning rate and state.
    fn core_mut(&mut self) -> &mut Core;

    /// The state of a parameter that has not been changed yet.
    fn init_single(&self, parameter: &Array) -> Result<ParameterState>;

    /// The parameter's new value. The state is changed, too.
    fn apply_single(
        &self,
        gradient: &Array,
        parameter: &Array,
        state: &mut ParameterState,
    ) -> Result<Array>;
}

/// The number of steps taken, the learning rate, and the state of every parameter.
#[derive(Clone, Debug)]
pub struct Core {
    step: Array,
    learning_rate: Option<Array>,
    schedule: Option<Schedule>,
    states: BTreeMap<String, ParameterState>,
    /// Scalars of the step being taken, by name.
    shared: Arc<Mutex<BTreeMap<(&'static str, DType), Array>>>,
    /// Whether states came from outside and were not compared with parameters yet.
    unchecked: bool,
}

impl Core {
    /// No steps taken yet. Without a learning rate the optimizer finds its own.
    pub fn new(rate: Option<LearningRate>) -> Result<Core> {
        let mut core = Core {
            step: Array::scalar(0, DType::U64)?,
            learning_rate: None,
            schedule: None,
            states: BTreeMap::new(),
            shared: Arc::default(),
            unchecked: false,
        };
        if let Some(rate) = rate {
            core.set_learning_rate(rate)?;
        }
        Ok(core)
    }

    /// The number of the step being taken, from 1; a `uint64` scalar.
    pub fn step(&self) -> &Array {
        &self.step
    }

    /// The learning rate in a dtype.
    pub fn rate(&self, dtype: DType) -> Result<Array> {
        match &self.learning_rate {
            Some(rate) => self.shared("rate", dtype, || rate.astype(dtype)),
            None => {
                let expected = "a number or a schedule";
                Err(Error::argument("optimizer", "learning_rate", expected, "none"))
            }
        }
    }

    /// A scalar that is the same for all parameters of a step: the first one makes it, so that it is
    /// computed once.
    pub(super) fn shared(
        &self,
        name: &'static str,
        dtype: DType,
        make: impl FnOnce() -> Result<Array>,
    ) -> Result<Array> {
        let known = || self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known().get(&(name, dtype)) {
            return Ok(known.clone());
        }
        let made = make()?;
        known().insert((name, dtype), made.clone());
        Ok(made)
    }

    /// The part of a parameter that a step with weight decay keeps.
    pub(super) fn kept(&self, dtype: DType, weight_decay: f64) -> Result<Array> {
        self.shared("kept", dtype, || subtract(1, multiply(self.rate(dtype)?, weight_decay)?))
    }

    fn set_learning_rate(&mut self, rate: LearningRate) -> Result<()> {
        self.shared = Arc::default();
        (self.learning_rate, self.schedule) = match rate {
            LearningRate::Constant(rate) => (Some(Array::scalar(rate, DType::F32)?), None),
            LearningRate::Schedule(schedule) => (Some(schedule.at(&self.step)?), Some(schedule)),
        };
        Ok(())
    }

    /// What comes before the parameters of a step.
    fn advance(&mut self) -> Result<()> {
        if let Some(schedule) = &self.schedule {
            self.learning_rate = Some(schedule.at(&self.step)?);
        }
        self.step = add(&self.step, 1)?;
        self.shared = Arc::default();
        Ok(())
    }
}

impl<T: PerParameter> Optimizer for T {
    fn init(&mut self, parameters: &BTreeMap<String, Array>) -> Result<()> {
        for (name, parameter) in parameters {
            if !self.core().states.contains_key(name) {
                let state = self.init_single(parameter)?;
                self.core_mut().states.insert(name.clone(), state);
            }
        }
        Ok(())
    }

    fn apply_gradients(
        &mut self,
        gradients: &BTreeMap<String, Array>,
        parameters: &BTreeMap<String, Array>,
    ) -> Result<BTreeMap<String, Array>> {
        check_floats(gradients, parameters)?;
        if self.core().unchecked {
            check_states(self, parameters)?;
            self.core_mut().unchecked = false;
        }
        // An error leaves the optimizer as it was.
        let before = self.core().clone();
        let updated = self.init(gradients).and_then(|()| advance_all(self, gradients, parameters));
        if updated.is_err() {
            *self.core_mut() = before;
        }
        updated
    }

    fn state(&self) -> BTreeMap<String, Array> {
        let core = self.core();
        let mut state = BTreeMap::from([(STEP.to_string(), core.step.clone())]);
        state.extend(core.learning_rate.iter().map(|rate| (RATE.to_string(), rate.clone())));
        for (name, arrays) in &core.states {
            let dot = if name.is_empty() { "" } else { "." };
            let named =
                |(key, array): (&String, &Array)| (format!("{name}{dot}{key}"), array.clone());
            state.extend(arrays.iter().map(named));
        }
        state
    }

    fn set_state(&mut self, state: &BTreeMap<String, Array>) -> Result<()> {
        let core = self.core_mut();
        let mut wanted = BTreeMap::from([(STEP.to_string(), core.step.clone())]);
        wanted.extend(core.learning_rate.iter().map(|rate| (RATE.to_string(), rate.clone())));
        let scalar = |(name, _): &(&String, &Array)| *name == STEP || *name == RATE;
        let scalars = state.iter().filter(scalar).map(|(name, x)| (name.clone(), x.clone()));
        let scalars = scalars.collect();
        check_keys("set_state", &wanted, &scalars, Strictness::Exact)?;
        check_dtypes(&wanted, &scalars)?;
        core.step = state[STEP].clone();
        core.learning_rate = state.get(RATE).cloned();
        core.states.clear();
        core.shared = Arc::default();
        for (name, array) in state.iter().filter(|item| !scalar(item)) {
            let (parameter, key) = name.rsplit_once('.').unwrap_or(("", name));
            let arrays = core.states.entry(parameter.to_string()).or_default();
            arrays.insert(key.to_string(), array.clone());
        }
        core.unchecked = true;
        Ok(())
    }

    fn learning_rate(&self) -> Option<Array> {
        self.core().learning_rate.clone()
    }

    fn set_learning_rate(&mut self, rate: LearningRate) -> Result<()> {
        self.core_mut().set_learning_rate(rate)
    }
}

const STEP: &str = "step";
const RATE: &str = "learning_rate";

fn advance_all<T: PerParameter>(
    optimizer: &mut T,
    gradients: &BTreeMap<String, Array>,
    parameters: &BTreeMap<String, Array>,
) -> Result<BTreeMap<String, Array>> {
    optimizer.core_mut().advance()?;
    let mut updated = BTreeMap::new();
    for (name, gradient) in gradients {
        let Some(parameter) = parameters.get(name) else {
            return Err(unexpected(vec![name.clone()]));
        };
        let mut state = optimizer.core().states.get(name).cloned().unwrap_or_default();
        updated.insert(name.clone(), optimizer.apply_single(gradient, parameter, &mut state)?);
        optimizer.core_mut().states.insert(name.clone(), state);
    }
    Ok(updated)
}

/// Checks that nothing is to be changed that a step would turn into floats.
fn check_floats(
    gradients: &BTreeMap<String, Array>,
    parameters: &BTreeMap<String, Array>,
) -> Result<()> {
    let changed = parameters.iter().filter(|(name, _)| gradients.contains_key(*name));
    for (name, parameter) in changed {
        if !parameter.dtype().is_inexact() {
            let expected = "floats, or no gradient (a Parameter of integers has none)";
            return Err(Error::dtype("update", name, expected, parameter.dtype()));
        }
    }
    Ok(())
}

/// Checks that the states are such as these parameters have.
fn check_states<T: PerParameter>(
    optimizer: &T,
    parameters: &BTreeMap<String, Array>,
) -> Result<()> {
    let states = &optimizer.core().states;
    let strangers = states.keys().filter(|name| !parameters.contains_key(*name));
    let strangers: Vec<String> = strangers.cloned().collect();
    if !strangers.is_empty() {
        return Err(unexpected(strangers));
    }
    for (name, state) in states {
        let prefixed = |state: &ParameterState| {
            state.iter().map(|(key, array)| (format!("{name}.{key}"), array.clone())).collect()
        };
        let fresh = optimizer.init_single(&parameters[name])?;
        let (fresh, given) = (prefixed(&fresh), prefixed(state));
        check_keys("set_state", &fresh, &given, Strictness::Exact)?;
        check_dtypes(&fresh, &given)?;
    }
    Ok(())
}

/// Checks that restored arrays hold what the optimizer's own do. They may be wider, as they are after
/// gradients that are wider than their parameters.
fn check_dtypes(own: &BTreeMap<String, Array>, given: &BTreeMap<String, Array>) -> Result<()> {
    let mismatched: Vec<String> = (own.iter())
        .filter_map(|(name, own)| Some((name, own.dtype(), given.get(name)?.dtype())))
        .filter(|&(_, own, given)| {
            let wider = own.is_float() && given.is_float() && DType::promote(own, given) == given;
            own != given && !wider
        })
        .map(|(name, own, given)| format!("{name}: expected {own}, got {given}"))
        .collect();
    if mismatched.is_empty() {
        return Ok(());
    }
    let (missing, unexpected) = (Vec::new(), Vec::new());
    Err(Error::Keys { op: "set_state", missing, unexpected, mismatched })
}

fn unexpected(names: Vec<String>) -> Error {
    Error::Keys { op: "update", missing: Vec::new(), unexpected: names, mismatched: Vec::new() }
}

/// Zeros of the parameter's shape under each of these names.
pub(super) fn zeros(parameter: &Array, names: &[&str]) -> Result<ParameterState> {
    names.iter().map(|name| Ok((name.to_string(), zeros_like(parameter)?))).collect()
}

/// An array of the state.
pub(super) fn remembered(state: &ParameterState, name: &str) -> Result<Array> {
    state.get(name).cloned().ok_or_else(|| Error::Keys {
        op: "update",
        missing: vec![name.to_string()],
        unexpected: Vec::new(),
        mismatched: Vec::new(),
    })
}

/// Implements the part of [`PerParameter`] that is the same for all.
macro_rules! has_core {
    () => {
        fn core(&self) -> &$crate::optim::Core {
            &self.core
        }

        fn core_mut(&mut self) -> &mut $crate::optim::Core {
            &mut self.core
        }
    };
}
pub(super) use has_core;

/// Checks a number of an optimizer's constructor.
pub(super) fn check(
    optimizer: &'static str,
    argument: &str,
    value: f64,
    expected: &str,
    good: bool,
) -> Result<()> {
    if good { Ok(()) } else { Err(Error::argument(optimizer, argument, expected, value)) }
}

/// Checks that decay rates lie in [0, 1).
pub(super) fn check_betas(optimizer: &'static str, betas: [f64; 2]) -> Result<()> {
    betas.into_iter().try_for_each(|beta| {
        check(optimizer, "betas", beta, "numbers of [0, 1)", (0.0..1.0).contains(&beta))
    })
}
