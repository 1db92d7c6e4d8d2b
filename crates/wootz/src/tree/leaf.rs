//! What a tree's leaves can be beside plain arrays: parameters that can be frozen, state that a
//! forward pass changes, and the switch between training and inference.

use std::ops::Deref;
use std::sync::{PoisonError, RwLock};

use crate::array::{Arg, Array};

/// An array that is trained unless it is frozen. It can be used where an array is wanted.
#[derive(Clone, Debug)]
pub struct Parameter {
    array: Array,
    trainable: bool,
}

impl Parameter {
    /// A trainable parameter.
    pub fn new(array: Array) -> Parameter {
        Parameter { array, trainable: true }
    }

    /// The array.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Stores another array.
    pub fn set(&mut self, array: Array) {
        self.array = array;
    }

    /// Whether it is trained.
    pub fn is_trainable(&self) -> bool {
        self.trainable
    }

    /// Freezes it, or makes it trainable again.
    pub fn set_trainable(&mut self, trainable: bool) {
        self.trainable = trainable;
    }
}

impl From<Array> for Parameter {
    fn from(array: Array) -> Parameter {
        Parameter::new(array)
    }
}

impl Deref for Parameter {
    type Target = Array;

    fn deref(&self) -> &Array {
        &self.array
    }
}

impl From<&Parameter> for Arg {
    fn from(parameter: &Parameter) -> Arg {
        Arg::Array(parameter.array.clone())
    }
}

/// An array that the forward pass itself changes, such as a running mean: part of the checkpoint,
/// never trained.
#[derive(Debug)]
pub struct State(RwLock<Array>);

impl State {
    /// State with a first value.
    pub fn new(array: Array) -> State {
        State(RwLock::new(array))
    }

    /// The present value.
    pub fn get(&self) -> Array {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores another value.
    pub fn set(&self, array: Array) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = array;
    }
}

impl Clone for State {
    fn clone(&self) -> State {
        State::new(self.get())
    }
}

/// Whether the part that holds it is being trained. [`set_training`](crate::Tree::set_training)
/// reaches every one in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub bool);

impl Mode {
    /// Whether this is training.
    pub fn is_training(self) -> bool {
        self.0
    }
}

impl Default for Mode {
    fn default() -> Mode {
        Mode(true)
    }
}
