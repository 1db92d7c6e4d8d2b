//! Learning rates that change with the step.

use std::fmt;
use std::sync::Arc;

use crate::array::Array;
use crate::error::{Error, Result};
use crate::ops::*;

/// A number, or a schedule.
#[derive(Clone, Debug)]
pub enum LearningRate {
    /// The same at every step.
    Constant(f64),
    /// A function of the step.
    Schedule(Schedule),
}

impl From<f64> for LearningRate {
    fn from(rate: f64) -> LearningRate {
        LearningRate::Constant(rate)
    }
}

impl From<Schedule> for LearningRate {
    fn from(schedule: Schedule) -> LearningRate {
        LearningRate::Schedule(schedule)
    }
}

/// A function from the step, an integer array, to a number.
///
/// ```
/// use wootz::{Array, DType, add, multiply, optim::Schedule};
/// let rising = Schedule::new(|step| add(multiply(step, 0.5)?, 1.0));
/// assert_eq!(rising.at(&Array::scalar(4, DType::I32)?)?.item::<f32>()?, 3.0);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone)]
pub struct Schedule(Arc<dyn Fn(&Array) -> Result<Array> + Send + Sync>);

impl Schedule {
    /// A schedule of your own.
    pub fn new(function: impl Fn(&Array) -> Result<Array> + Send + Sync + 'static) -> Schedule {
        Schedule(Arc::new(function))
    }

    /// The value at a step.
    pub fn at(&self, step: &Array) -> Result<Array> {
        (self.0)(step)
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schedule")
    }
}

/// `init · decay_rate^step`.
///
/// ```
/// use wootz::{Array, DType, optim::exponential_decay};
/// let rate = exponential_decay(0.1, 0.9).at(&Array::scalar(2, DType::I32)?)?;
/// assert!((rate.item::<f32>()? - 0.081).abs() < 1e-7);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn exponential_decay(init: f64, decay_rate: f64) -> Schedule {
    Schedule::new(move |step| multiply(init, power_of(decay_rate, step)?))
}

/// `init`, multiplied by `decay_rate` every `step_size` steps.
///
/// ```
/// use wootz::{Array, DType, optim::step_decay};
/// let rate = step_decay(0.1, 0.9, 10)?.at(&Array::scalar(21, DType::I32)?)?;
/// assert!((rate.item::<f32>()? - 0.081).abs() < 1e-7);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn step_decay(init: f64, decay_rate: f64, step_size: usize) -> Result<Schedule> {
    at_least_one("step_decay", "step_size", step_size)?;
    Ok(Schedule::new(move |step| {
        multiply(init, power_of(decay_rate, &floor_divide(step, step_size)?)?)
    }))
}

/// Half a cosine from `init` to `end`, which stays after `decay_steps`. MLX's default end is 0.
///
/// ```
/// use wootz::{Array, DType, optim::cosine_decay};
/// let rate = cosine_decay(0.1, 1000, 0.0)?.at(&Array::scalar(500, DType::I32)?)?;
/// assert!((rate.item::<f32>()? - 0.05).abs() < 1e-7);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn cosine_decay(init: f64, decay_steps: usize, end: f64) -> Result<Schedule> {
    at_least_one("cosine_decay", "decay_steps", decay_steps)?;
    Ok(Schedule::new(move |step| {
        let step = minimum(step, decay_steps)?;
        let angle = multiply(std::f64::consts::PI / decay_steps as f64, step)?;
        let decay = multiply(0.5, add(1.0, cos(angle)?)?)?;
        add(end, multiply(decay, init - end)?)
    }))
}

/// A line from `init` to `end`, which stays after `steps`.
///
/// ```
/// use wootz::{Array, DType, optim::linear_schedule};
/// let rate = linear_schedule(0.0, 0.1, 100)?.at(&Array::scalar(50, DType::I32)?)?;
/// assert!((rate.item::<f32>()? - 0.05).abs() < 1e-7);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn linear_schedule(init: f64, end: f64, steps: usize) -> Result<Schedule> {
    at_least_one("linear_schedule", "steps", steps)?;
    Ok(Schedule::new(move |step| {
        let step = minimum(step, steps)?;
        add(multiply(step, (end - init) / steps as f64)?, init)
    }))
}

/// Schedules one after the other, each counting its steps from its boundary. There is one
/// boundary less than schedules.
///
/// ```
/// use wootz::{Array, DType, optim::{cosine_decay, join_schedules, linear_schedule}};
/// let parts = vec![linear_schedule(0.0, 0.1, 10)?, cosine_decay(0.1, 200, 0.0)?];
/// let joined = join_schedules(parts, vec![10])?;
/// assert_eq!(joined.at(&Array::scalar(10, DType::I32)?)?.item::<f32>()?, 0.1);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn join_schedules(schedules: Vec<Schedule>, boundaries: Vec<usize>) -> Result<Schedule> {
    if schedules.len() != boundaries.len() + 1 {
        let expected = format!("{} of them", schedules.len().saturating_sub(1));
        return Err(Error::argument("join_schedules", "boundaries", expected, boundaries.len()));
    }
    Ok(Schedule::new(move |step| {
        let mut value = schedules[0].at(step)?;
        for (&boundary, schedule) in boundaries.iter().zip(&schedules[1..]) {
            let later = schedule.at(&subtract(step, boundary)?)?;
            value = where_(less(step, boundary)?, value, later)?;
        }
        Ok(value)
    }))
}

/// A number to the power of an integer array, as a float.
pub(super) fn power_of(base: f64, exponent: &Array) -> Result<Array> {
    power(base, exponent)
}

fn at_least_one(op: &'static str, argument: &str, steps: usize) -> Result<()> {
    match steps {
        0 => Err(Error::argument(op, argument, "a positive number", steps)),
        _ => Ok(()),
    }
}
