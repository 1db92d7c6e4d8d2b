//! Modules made of others, and functions as modules.

use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Module;
use crate::array::Array;
use crate::error::Result;
use crate::tree::{Leaf, Part, Path, Slot, Tree};

/// Calls modules one after the other.
///
/// ```
/// use wootz::{Array, nn::{self, Linear, Module, Sequential}};
/// let model = Sequential::new()
///     .then(Linear::new(2, 16, true)?)
///     .then_fn(nn::relu)
///     .then(Linear::new(16, 1, true)?);
/// assert_eq!(model.forward(&Array::new([[0.5f32, 1.0]])?)?.shape(), [1, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, Default, wootz_macros::Tree)]
pub struct Sequential {
    /// The modules in the order they are called.
    pub layers: Vec<Box<dyn Module>>,
}

impl Sequential {
    /// Hands its input through.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Adds a module.
    pub fn then(mut self, module: impl Module) -> Sequential {
        self.layers.push(Box::new(module));
        self
    }

    /// Adds a function.
    pub fn then_fn(
        self,
        function: impl Fn(&Array) -> Result<Array> + Send + Sync + 'static,
    ) -> Sequential {
        self.then(Function::new(function))
    }
}

impl Module for Sequential {
    fn forward(&self, x: &Array) -> Result<Array> {
        self.layers.iter().try_fold(x.clone(), |x, layer| layer.forward(&x))
    }
}

/// The array as it is.
///
/// ```
/// use wootz::{Array, nn::{Identity, Module}};
/// assert_eq!(Identity.forward(&Array::new([1, 2])?)?.to_vec::<i32>()?, [1, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Copy, Debug, wootz_macros::Tree)]
pub struct Identity;

impl Module for Identity {
    fn forward(&self, x: &Array) -> Result<Array> {
        Ok(x.clone())
    }
}

/// A function without parameters as a module.
///
/// ```
/// use wootz::{Array, nn::{self, Function, Module}};
/// let leaky = Function::new(|x: &Array| nn::leaky_relu(x, 0.1));
/// assert_eq!(leaky.forward(&Array::new([-1.0f32])?)?.item::<f32>()?, -0.1);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone)]
pub struct Function {
    function: Arc<dyn Fn(&Array) -> Result<Array> + Send + Sync>,
    /// Tells functions apart; clones share it.
    number: u64,
}

/// The number of the next function.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Function {
    /// A module that calls `function`.
    pub fn new(function: impl Fn(&Array) -> Result<Array> + Send + Sync + 'static) -> Function {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Function { function: Arc::new(function), number }
    }

    /// Calls it.
    pub fn call(&self, x: &Array) -> Result<Array> {
        (self.function)(x)
    }
}

impl Module for Function {
    fn forward(&self, x: &Array) -> Result<Array> {
        self.call(x)
    }
}

impl Tree for Function {
    fn visit(&self, _: &mut Path, _: &mut dyn FnMut(&str, Leaf<'_>)) {}

    fn visit_modules<'tree>(
        &'tree self,
        path: &mut Path,
        visitor: &mut dyn FnMut(&str, Part<'tree>),
    ) {
        visitor(path.name(), Part::new(self, path));
    }

    fn visit_mut(
        &mut self,
        _: &mut Path,
        _: &mut dyn FnMut(&str, Slot<'_>) -> Result<()>,
    ) -> Result<()> {
        Ok(())
    }

    fn fingerprint(&self, state: &mut dyn Hasher) {
        state.write_u64(self.number);
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Function")
    }
}
