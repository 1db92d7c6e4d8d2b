//! Compiled functions of structures.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

use super::grad::{states, store_states};
use super::transforms::{leaves, not_called, with_leaves};
use super::{Mode, Path, Slot, Tree};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::eval::{CompileStats, Plan, PlanSummary, Plans, Signature, runs_by_itself};

/// A function of a structure that runs from plans: see [`compile_of`].
pub struct CompiledOf<T, U, F> {
    function: F,
    plans: Plans<Structure, Recorded<U>>,
    argument: PhantomData<fn(&T)>,
}

/// What decides about a plan.
struct Structure {
    /// Names of all arrays, and whether they are trained.
    leaves: Vec<(String, bool)>,
    modes: Vec<Mode>,
    /// Of what is no array.
    values: u64,
    signature: Signature,
}

/// What a function computes for one structure.
struct Recorded<U> {
    plan: Plan,
    /// What it returned, with other arrays.
    output: U,
    /// How many of the plan's results are the output's; state follows.
    arrays: usize,
}

/// Compiles a function of a structure that returns a structure: [`compile`](crate::compile) for models
/// and their optimizers' state, which so are arguments and results, as MLX's `inputs` and `outputs`.
/// State that `function` changes is stored in the argument.
///
/// A plan is for the names, shapes and dtypes of the arrays, for what is frozen and what is in
/// training, and for the values of all that is no array: numbers, words, variants of enums and types of
/// boxed modules. So a number that changes with every call, as a learning rate, is better an array of
/// shape `[]`. What a structure [skips](Tree) is as it was when the plan was recorded.
///
/// ```
/// use std::collections::BTreeMap;
/// use wootz::nn::{Linear, losses::{Reduction, mse_loss}, Module};
/// use wootz::optim::{Optimizer, SGD};
/// use wootz::{Array, Tree, compile_of, value_and_grad_of};
///
/// type Training = (Linear, BTreeMap<String, Array>, Array, Array);
/// let optimizer = || SGD::new(0.1)?.momentum(0.8, 0.0, false);
/// // state = [model.state, optimizer.state]
/// // @partial(mx.compile, inputs=state, outputs=state)
/// // def step(x, y):
/// //     loss_and_grad_fn = nn.value_and_grad(model, loss_fn)
/// //     loss, grads = loss_and_grad_fn(model, x, y)
/// //     optimizer.update(model, grads)
/// //     return loss
/// let step = compile_of(|(model, state, x, y): &Training| {
///     let (mut model, mut optimizer) = (model.clone(), optimizer()?);
///     optimizer.set_state(state)?;
///     let loss_fn = |model: &Linear| mse_loss(&model.forward(x)?, y, Reduction::Mean);
///     let (loss, grads) = value_and_grad_of(loss_fn)(&model)?;
///     optimizer.update(&mut model, &grads)?;
///     Ok((model, optimizer.state(), loss))
/// });
///
/// let (mut model, mut first) = (Linear::new(2, 1, true)?, optimizer()?);
/// first.init(&model.parameters())?;
/// let mut state = first.state();
/// let (x, y) = (Array::new([[1.0f32, 2.0], [0.5, -1.0]])?, Array::new([[3.0f32], [1.0]])?);
/// let mut losses = Vec::new();
/// for _ in 0..20 {
///     let loss;
///     (model, state, loss) = step.call_owned((model, state, x.clone(), y.clone()))?;
///     losses.push(loss.item::<f32>()?);
/// }
/// assert!(losses[19] < 0.5 * losses[0]);
/// assert_eq!((step.stats().traces, step.stats().replays), (1, 20));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn compile_of<T, U, F>(function: F) -> CompiledOf<T, U, F>
where
    T: Tree + Clone,
    U: Tree + Clone,
    F: Fn(&T) -> Result<U>,
{
    CompiledOf { function, plans: Plans::new(), argument: PhantomData }
}

impl<T, U, F> CompiledOf<T, U, F>
where
    T: Tree + Clone,
    U: Tree + Clone,
    F: Fn(&T) -> Result<U>,
{
    /// Remembers at most this many plans; the one not used for longest is forgotten first.
    pub fn capacity(mut self, plans: usize) -> CompiledOf<T, U, F> {
        self.plans.set_capacity(plans);
        self
    }

    /// What the function returns. Inside another transform the function itself runs, so that the
    /// transform sees what it does.
    pub fn call(&self, tree: &T) -> Result<U> {
        let arguments = leaves(tree);
        if runs_by_itself(&arguments) {
            return (self.function)(tree);
        }
        let recorded = self.recorded_for(tree, &arguments)?;
        let (output, states) = self.replay(&recorded, arguments, false)?;
        store_states(tree, states)?;
        Ok(output)
    }

    /// As [`call`](Self::call), for a structure that the caller gives away: what is computed in place
    /// takes the memory of its arrays if nobody else holds them, as parameters do that are returned
    /// with new values. State that is to be kept must be returned, too.
    pub fn call_owned(&self, tree: T) -> Result<U> {
        let arguments = leaves(&tree);
        if runs_by_itself(&arguments) {
            return (self.function)(&tree);
        }
        let recorded = self.recorded_for(&tree, &arguments)?;
        drop(tree);
        Ok(self.replay(&recorded, arguments, true)?.0)
    }

    /// What a call with such a structure takes. The function is recorded if it has not been.
    pub fn plan(&self, tree: &T) -> Result<PlanSummary> {
        Ok(PlanSummary::of(&self.recorded_for(tree, &leaves(tree))?.plan))
    }

    /// What this function has done so far.
    pub fn stats(&self) -> CompileStats {
        self.plans.stats()
    }

    /// The output, and the values of the argument's state.
    fn replay(
        &self,
        recorded: &Recorded<U>,
        arguments: Vec<Array>,
        owned: bool,
    ) -> Result<(U, Vec<Array>)> {
        let mut results = self.plans.replay(&recorded.plan, arguments, owned)?;
        let states = results.split_off(recorded.arrays);
        Ok((with_leaves(recorded.output.clone(), &results)?, states))
    }

    fn recorded_for(&self, tree: &T, arguments: &[Array]) -> Result<Arc<Recorded<U>>> {
        let (leaves, modes) = structure(tree)?;
        let values = values(tree);
        let known = |known: &Structure| {
            known.values == values
                && known.leaves == leaves
                && known.modes == modes
                && known.signature.fits(arguments)
        };
        self.plans.find_or_record(known, || {
            let signature = Signature::of(arguments)?;
            let recorded = self.record(tree, &signature)?;
            let (leaves, modes) = structure(tree)?;
            Ok((Structure { leaves, modes, values, signature }, recorded))
        })
    }

    fn record(&self, tree: &T, signature: &Signature) -> Result<Recorded<U>> {
        let returned = RefCell::new(None);
        let plan = signature.record(|arrays: &[Array]| {
            let recorded = with_leaves(tree.clone(), arrays)?;
            let output = (self.function)(&recorded)?;
            let mut arrays = leaves(&output);
            let count = arrays.len();
            arrays.extend(states(&recorded));
            *returned.borrow_mut() = Some((output, count));
            Ok(arrays)
        })?;
        let (output, arrays) = returned.into_inner().ok_or_else(|| not_called("compile"))?;
        // What was recorded need not be kept.
        let nothing = vec![Array::scalar(0, DType::F32)?; arrays];
        Ok(Recorded { plan, output: with_leaves(output, &nothing)?, arrays })
    }
}

/// What a tree is beside its arrays, as far as it tells.
fn structure<T: Tree + Clone>(tree: &T) -> Result<(Vec<(String, bool)>, Vec<Mode>)> {
    let (mut leaves, mut modes) = (Vec::new(), Vec::new());
    // Only places that can be changed tell modes.
    tree.clone().visit_mut(&mut Path::default(), &mut |name, slot| {
        match &slot {
            Slot::Mode(mode) => modes.push(**mode),
            other => {
                leaves.extend(other.leaf().map(|leaf| (name.to_string(), leaf.is_trainable())))
            }
        }
        Ok(())
    })?;
    Ok((leaves, modes))
}

/// The fingerprint of a tree.
fn values<T: Tree>(tree: &T) -> u64 {
    let mut state = DefaultHasher::new();
    tree.fingerprint(&mut state);
    state.finish()
}
