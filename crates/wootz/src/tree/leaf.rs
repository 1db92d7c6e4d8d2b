//! What a tree's leaves can be beside plain arrays: parameters that can be frozen, state that a
//! forward pass changes, and the switch between training and inference.

use std::ops::Deref;
use std::sync::{PoisonError, RwLock};

use crate::array::{Arg, Array};
use crate::error::{Error, Result};

/// An array that is trained unless it is frozen or holds integers. It can be used where an array is wanted.
#[derive(Clone, Debug)]
pub struct Parameter {
    array: Array,
    trainable: bool,
    /// Whether it is frozen unless it is named.
    fixed: bool,
}

impl Parameter {
    /// A trainable parameter.
    pub fn new(array: Array) -> Parameter {
        Parameter { array, trainable: true, fixed: false }
    }

    /// A frozen parameter that [`unfreeze`](crate::Tree::unfreeze) of a tree leaves frozen, as quantized
    /// weights are. Who names it can train it.
    ///
    /// ```
    /// use wootz::{Array, Parameter, Tree};
    /// let mut parameter = Parameter::fixed(Array::new([1.0f32])?);
    /// parameter.unfreeze()?;
    /// assert!(!parameter.is_trainable());
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn fixed(array: Array) -> Parameter {
        Parameter { array, trainable: false, fixed: true }
    }

    /// Whether it was made to stay frozen.
    pub(super) fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// The array.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Stores another array.
    pub fn set(&mut self, array: Array) {
        self.array = array;
    }

    /// Whether it is trained. Integers never are.
    ///
    /// ```
    /// use wootz::{Array, Parameter};
    /// assert!(Parameter::new(Array::new([1.0f32])?).is_trainable());
    /// assert!(!Parameter::new(Array::new([1])?).is_trainable());
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn is_trainable(&self) -> bool {
        self.trainable && self.array.dtype().is_inexact()
    }

    /// Freezes it, or makes it trainable again, also if it is [fixed](Parameter::fixed).
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

    /// Stores another value. Inside of a transform that runs a function without values, as
    /// [`compile`](crate::compile) and [`vmap`](crate::vmap) do, the state must be an argument's: that of a
    /// module which the function captures would have no value afterwards.
    ///
    /// ```
    /// use wootz::{Array, compile, tree::State};
    /// let seen = State::new(Array::new([0.0f32])?);
    /// seen.set(Array::new([1.0f32])?)?;
    /// let remember = compile(|x: &[Array]| {
    ///     seen.set(x[0].clone())?;
    ///     Ok(x.to_vec())
    /// });
    /// assert!(remember.call(&[Array::new([2.0f32])?]).is_err());
    /// assert_eq!(seen.get().item::<f32>()?, 1.0);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn set(&self, array: Array) -> Result<()> {
        if let Some(transform) = array.node.marks.recorded_beside(&self.get().node.marks) {
            let reason = "the function changes the state of a module that is not its argument; make \
                          the module an argument, as compile_of and vmap_of do";
            return Err(Error::Transform { transform, reason: reason.into() });
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = array;
        Ok(())
    }

    /// Puts another value in its place.
    pub(super) fn replace(&mut self, array: Array) {
        *self.0.get_mut().unwrap_or_else(PoisonError::into_inner) = array;
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
