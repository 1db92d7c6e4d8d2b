//! Gradients of functions of structures.

use std::cell::RefCell;

use super::{Leaf, Path, Slot, Tree};
use crate::array::{Array, Scalar};
use crate::autograd;
use crate::error::{Error, Result};
use crate::ops::{broadcast_to, constant};

/// The function that gives the gradients of `function`, which returns a scalar, as a structure of
/// the same type as its argument; see [`value_and_grad_of`].
///
/// ```
/// use wootz::{Array, grad_of, nn::losses::{Reduction, mse_loss}, nn::{Linear, Module}};
/// let model = Linear::new(2, 1, true)?;
/// let (x, y) = (Array::new([[1.0f32, 2.0]])?, Array::new([[3.0f32]])?);
/// let loss = |model: &Linear| mse_loss(&model.forward(&x)?, &y, Reduction::Mean);
/// // mx.grad(lambda parameters: …)(model.trainable_parameters())
/// let gradients: Linear = grad_of(loss)(&model)?;
/// assert_eq!(gradients.weight.shape(), model.weight.shape());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn grad_of<T, F>(function: F) -> impl Fn(&T) -> Result<T>
where
    T: Tree + Clone,
    F: Fn(&T) -> Result<Array>,
{
    let with_value = value_and_grad_of(function);
    move |tree| Ok(with_value(tree)?.1)
}

/// The function that gives the value of `function`, a scalar, and its gradients as a structure of
/// the same type as its argument: MLX's `nn.value_and_grad`.
///
/// The gradient of what is frozen, and of [state](super::State), is zero and takes no memory; that
/// of an array of integers is zero. State that `function` changed is stored in the argument.
///
/// ```
/// use wootz::{Array, value_and_grad_of};
/// let pair = (Array::new([1.0f32])?, Array::new([2.0f32])?);
/// let product = |pair: &(Array, Array)| (&pair.0 * &pair.1).sum(());
/// // mx.value_and_grad(lambda pair: mx.sum(pair[0] * pair[1]))((x, y))
/// let (value, gradients) = value_and_grad_of(product)(&pair)?;
/// assert_eq!(value.item::<f32>()?, 2.0);
/// assert_eq!(gradients.0.item::<f32>()?, 2.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn value_and_grad_of<T, F>(function: F) -> impl Fn(&T) -> Result<(Array, T)>
where
    T: Tree + Clone,
    F: Fn(&T) -> Result<Array>,
{
    let with_nothing = value_and_grad_aux_of(move |tree: &T| Ok((function(tree)?, ())));
    move |tree| {
        let ((value, ()), gradients) = with_nothing(tree)?;
        Ok((value, gradients))
    }
}

/// As [`value_and_grad_of`] for a function that returns something beside its value, which is
/// handed through.
///
/// ```
/// use wootz::{Array, value_and_grad_aux_of};
/// let x = Array::new([3.0f32])?;
/// let function = |x: &Array| Ok((x.square()?.sum(())?, "aside"));
/// let ((value, aside), gradient) = value_and_grad_aux_of(function)(&x)?;
/// assert_eq!((value.item::<f32>()?, aside, gradient.item::<f32>()?), (9.0, "aside", 6.0));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn value_and_grad_aux_of<T, A, F>(function: F) -> impl Fn(&T) -> Result<((Array, A), T)>
where
    T: Tree + Clone,
    F: Fn(&T) -> Result<(Array, A)>,
{
    move |tree| {
        let mut trained = Vec::new();
        tree.visit(&mut Path::default(), &mut |_, leaf| {
            if leaf.is_trainable() {
                trained.push(leaf.array());
            }
        });
        let aside = RefCell::new(None);
        let of_arrays = |arrays: &[Array]| {
            let traced = with_trained(tree, arrays)?;
            let (value, beside) = function(&traced)?;
            *aside.borrow_mut() = Some((beside, states(&traced)));
            Ok((value, ()))
        };
        let ((value, ()), gradients) = autograd::value_and_grad_where_float(of_arrays)(&trained)?;
        let Some((beside, states)) = aside.into_inner() else {
            let reason = "the function was not called".to_string();
            return Err(Error::Transform { transform: "grad", reason });
        };
        store_states(tree, states)?;
        let mut result = with_trained(tree, &gradients)?;
        result.visit_mut(&mut Path::default(), &mut |_, mut slot| {
            if let Some(leaf) = slot.leaf().filter(|leaf| !leaf.is_trainable()) {
                let zero = nothing(&leaf.array())?;
                slot.set(zero);
            }
            Ok(())
        })?;
        Ok(((value, beside), result))
    }
}

/// The tree with other arrays in the places that are trained, in their order.
pub(super) fn with_trained<T: Tree + Clone>(tree: &T, arrays: &[Array]) -> Result<T> {
    let (mut tree, mut arrays) = (tree.clone(), arrays.iter());
    tree.visit_mut(&mut Path::default(), &mut |_, mut slot: Slot<'_>| {
        if slot.leaf().is_some_and(|leaf| leaf.is_trainable())
            && let Some(array) = arrays.next()
        {
            slot.set(array.clone());
        }
        Ok(())
    })?;
    Ok(tree)
}

/// The values of all state, in order.
pub(super) fn states<T: Tree>(tree: &T) -> Vec<Array> {
    let mut states = Vec::new();
    tree.visit(&mut Path::default(), &mut |_, leaf| {
        if let Leaf::State(state) = leaf {
            states.push(state.get());
        }
    });
    states
}

/// Stores the values of all state, in order.
pub(super) fn store_states<T: Tree>(tree: &T, states: Vec<Array>) -> Result<()> {
    let (mut states, mut outcome) = (states.into_iter(), Ok(()));
    tree.visit(&mut Path::default(), &mut |_, leaf| {
        if let (Leaf::State(state), Ok(())) = (leaf, &outcome)
            && let Some(value) = states.next()
        {
            outcome = state.set(value);
        }
    });
    outcome
}

/// Zeros of the shape of `x`, all in the memory of one.
fn nothing(x: &Array) -> Result<Array> {
    broadcast_to(&constant(Scalar::Int(0), x.dtype(), x.device())?, x.shape())
}
