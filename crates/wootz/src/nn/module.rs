//! What a layer is.

use std::any::Any;
use std::fmt;

use crate::array::Array;
use crate::error::Result;
use crate::tree::{Tree, tree_flatten};

/// A part of a model: a [`Tree`] of parameters with a function from one array to another. Names,
/// freezing, training mode, loading and saving come with [`Tree`].
///
/// ```
/// use wootz::{Array, Result, Tree, nn::{Linear, Module, relu}};
///
/// #[derive(Clone, Tree)]
/// struct Mlp {
///     layers: Vec<Linear>,
/// }
///
/// impl Module for Mlp {
///     fn forward(&self, x: &Array) -> Result<Array> {
///         let hidden = relu(&self.layers[0].forward(x)?)?;
///         self.layers[1].forward(&hidden)
///     }
/// }
///
/// let mlp = Mlp { layers: vec![Linear::new(2, 8, true)?, Linear::new(8, 1, true)?] };
/// assert_eq!(mlp.forward(&Array::new([[0.5f32, 1.0]])?)?.shape(), [1, 1]);
/// assert_eq!(mlp.parameters()["layers.0.weight"].shape(), [8, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub trait Module: Tree + CloneModule + Any + Send + Sync {
    /// The module's output for an input.
    fn forward(&self, x: &Array) -> Result<Array>;

    /// Switches to training.
    fn train(&mut self) -> Result<()> {
        self.set_training(true)
    }

    /// Switches to inference.
    fn eval(&mut self) -> Result<()> {
        self.set_training(false)
    }
}

/// Cloning behind a box. Every module that can be cloned has it.
pub trait CloneModule {
    /// A boxed copy.
    fn clone_module(&self) -> Box<dyn Module>;
}

impl<M: Module + Clone> CloneModule for M {
    fn clone_module(&self) -> Box<dyn Module> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Module> {
    fn clone(&self) -> Box<dyn Module> {
        (**self).clone_module()
    }
}

impl fmt::Debug for dyn Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shapes = tree_flatten(self).into_iter().map(|(name, x)| (name, x.shape().to_vec()));
        f.debug_map().entries(shapes).finish()
    }
}
