//! Other transforms of functions of structures: forward mode, batches, checkpoints.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use super::grad::{states, store_states, with_trained};
use super::{Path, Slot, Tree, tree_flatten};
use crate::array::Array;
use crate::autograd::{self, MapAxes};
use crate::error::{Error, Result};
use crate::ops::stop_gradient;

/// The value of `function` at `primals`, and how it changes along `tangents`: [`jvp`](crate::jvp)
/// for structures. What is frozen in `primals`, and state, does not change, whatever the tangents
/// say. State that `function` changed is stored in `primals`.
///
/// ```
/// use wootz::{Array, jvp_of};
/// // mx.jvp(lambda x, y: x * y, (x, y), (dx, dy))
/// let number = |value: f64| Array::scalar(value, wootz::DType::F32);
/// let (point, along) = ((number(2.0)?, number(3.0)?), (number(1.0)?, number(10.0)?));
/// let product = |pair: &(Array, Array)| Ok(&pair.0 * &pair.1);
/// let (value, change) = jvp_of(product, &point, &along)?;
/// assert_eq!((value.item::<f32>()?, change.item::<f32>()?), (6.0, 23.0));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn jvp_of<T, U>(
    function: impl FnOnce(&T) -> Result<U>,
    primals: &T,
    tangents: &T,
) -> Result<(U, U)>
where
    T: Tree + Clone,
    U: Tree + Clone,
{
    check_structures(primals, tangents)?;
    let mut returned = None;
    let of_arrays = |arrays: &[Array]| {
        let traced = with_trained(primals, arrays)?;
        let output = function(&traced)?;
        let arrays = leaves(&output);
        returned = Some((output, states(&traced)));
        Ok(arrays)
    };
    let trained = |tree| trained_in(primals, tree);
    let (values, changes) = autograd::jvp(of_arrays, &trained(primals), &trained(tangents))?;
    let (output, states) = returned.ok_or_else(|| not_called("jvp"))?;
    store_states(primals, states)?;
    Ok((with_leaves(output.clone(), &values)?, with_leaves(output, &changes)?))
}

/// The function for a batch: [`vmap`](crate::vmap) for structures. Axes are those of all leaves, or
/// one for each in their order. State is an argument as any leaf; what becomes of it is not stored.
///
/// ```
/// use wootz::{Array, vmap_of};
/// // mx.vmap(lambda p: p["x"] @ p["y"], in_axes=({"x": 0, "y": None},))
/// let (x, y) = (Array::new([[1.0f32, 2.0], [3.0, 4.0]])?, Array::new([10.0f32, 1.0])?);
/// let dot = |pair: &(Array, Array)| (&pair.0 * &pair.1).sum(());
/// let dots = vmap_of(dot, [Some(0), None], 0)(&(x, y))?;
/// assert_eq!(dots.to_vec::<f32>()?, [12.0, 34.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn vmap_of<T, U, F>(
    function: F,
    in_axes: impl Into<MapAxes>,
    out_axes: impl Into<MapAxes>,
) -> impl Fn(&T) -> Result<U>
where
    T: Tree + Clone,
    U: Tree,
    F: Fn(&T) -> Result<U>,
{
    let (in_axes, out_axes) = (in_axes.into(), out_axes.into());
    move |tree| {
        let returned = RefCell::new(None);
        let of_arrays = |arrays: &[Array]| {
            // State that is the same for all may depend on the batch afterwards.
            let mut element = with_leaves(tree.clone(), arrays)?;
            element.visit_mut(&mut Path::default(), &mut |_, slot| {
                if let Slot::State(state) = slot {
                    state.replace(state.get().beside(arrays));
                }
                Ok(())
            })?;
            let output = function(&element)?;
            let arrays = leaves(&output);
            *returned.borrow_mut() = Some(output);
            Ok(arrays)
        };
        let mapped = autograd::vmap(of_arrays, in_axes.clone(), out_axes.clone());
        let results = mapped(&leaves(tree))?;
        let output = returned.take().ok_or_else(|| not_called("vmap"))?;
        with_leaves(output, &results)
    }
}

/// The function whose gradient runs it again: [`checkpoint`](crate::checkpoint) for structures,
/// MLX's `nn.utils.checkpoint`. Of the structure all leaves are arguments that can be
/// differentiated; what else is differentiated must be in it too. State that `function` changes is
/// stored when it runs first.
///
/// ```
/// use wootz::{Array, checkpoint_of, grad_of, nn::{Linear, Module}};
/// // layer = nn.utils.checkpoint(model, lambda model, x: mx.tanh(model(x)))
/// let layer = checkpoint_of(|(layer, x): &(Linear, Array)| layer.forward(x)?.tanh());
/// let input = (Linear::new(2, 3, true)?, Array::new([[1.0f32, 2.0]])?);
/// let plain = grad_of(|x: &(Linear, Array)| x.0.forward(&x.1)?.tanh()?.sum(()))(&input)?;
/// let less_memory = grad_of(|x: &(Linear, Array)| layer(x)?.sum(()))(&input)?;
/// assert_eq!(plain.0.weight.to_vec::<f32>()?, less_memory.0.weight.to_vec::<f32>()?);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn checkpoint_of<T, U, F>(function: F) -> impl Fn(&T) -> Result<U>
where
    T: Tree + Clone + Send + Sync + 'static,
    U: Tree + Send + 'static,
    F: Fn(&T) -> Result<U> + Send + Sync + 'static,
{
    let function = Arc::new(function);
    move |tree| {
        // What the first run returns beside its arrays; later runs must keep nothing alive.
        let returned = Arc::new(Mutex::new(Returned::Awaited));
        let (function, place, template) = (function.clone(), returned.clone(), tree.clone());
        let of_arrays = move |arrays: &[Array]| {
            let traced = with_leaves(template.clone(), arrays)?;
            let output = function(&traced)?;
            let mut arrays = leaves(&output);
            for state in states(&traced) {
                arrays.push(stop_gradient(&state)?);
            }
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            if matches!(*place, Returned::Awaited) {
                *place = Returned::There(output);
            }
            Ok(arrays)
        };
        let mut results = autograd::checkpoint(of_arrays)(&leaves(tree))?;
        let states = results.split_off(results.len() - states(tree).len());
        // Not as results: they would keep all others.
        let states = states.iter().map(|state| state.beside(std::slice::from_ref(state))).collect();
        let mut place = returned.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *place, Returned::Taken) {
            Returned::There(output) => {
                store_states(tree, states)?;
                with_leaves(output, &results)
            }
            _ => Err(not_called("checkpoint")),
        }
    }
}

/// What a function returned.
enum Returned<U> {
    Awaited,
    There(U),
    Taken,
}

/// Checks that tangents are there for the arrays that there are, and for no others.
fn check_structures<T: Tree>(primals: &T, tangents: &T) -> Result<()> {
    let names = |tree: &T| tree_flatten(tree).into_iter().map(|(name, _)| name).collect();
    let [primals, tangents]: [Vec<String>; 2] = [primals, tangents].map(names);
    if primals == tangents {
        return Ok(());
    }
    let reason = format!("primals have the arrays {primals:?}, tangents {tangents:?}");
    Err(Error::Transform { transform: "jvp", reason })
}

/// All arrays of a tree, in order.
pub(super) fn leaves<T: Tree>(tree: &T) -> Vec<Array> {
    let mut arrays = Vec::new();
    tree.visit(&mut Path::default(), &mut |_, leaf| arrays.push(leaf.array()));
    arrays
}

/// The arrays of a tree in the places that are trained in another one of the same structure.
fn trained_in<T: Tree>(other: &T, tree: &T) -> Vec<Array> {
    let mut trained = Vec::new();
    other.visit(&mut Path::default(), &mut |_, leaf| trained.push(leaf.is_trainable()));
    let chosen = leaves(tree).into_iter().zip(trained).filter(|(_, trained)| *trained);
    chosen.map(|(array, _)| array).collect()
}

/// The tree with other arrays, in order.
pub(super) fn with_leaves<T: Tree>(mut tree: T, arrays: &[Array]) -> Result<T> {
    let mut arrays = arrays.iter();
    tree.visit_mut(&mut Path::default(), &mut |_, mut slot| {
        if slot.leaf().is_some()
            && let Some(array) = arrays.next()
        {
            slot.set(array.clone());
        }
        Ok(())
    })?;
    Ok(tree)
}

pub(super) fn not_called(transform: &'static str) -> Error {
    Error::Transform { transform, reason: "the function was not called".into() }
}
