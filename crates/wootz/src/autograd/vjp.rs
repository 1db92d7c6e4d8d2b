//! Reverse mode: vector-Jacobian products, and gradients of scalar functions.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Trace;
use super::custom::or_zeros;
use super::graph::dependents;
use crate::array::{Array, Node, Work};
use crate::error::{Error, Result};
use crate::ops;

/// The outputs of `function` at `primals`, and the gradients of the primals given those of the
/// outputs. Primals are floats or complex numbers: integers have no gradients, which is an error.
///
/// ```
/// use wootz::{Array, vjp};
/// // outs, vjps = mx.vjp(mx.sin, (mx.array(1.0),), (mx.array(1.0),))
/// let one = Array::new(1.0f32)?;
/// let (outputs, gradients) = vjp(|x| Ok(vec![x[0].sin()?]), &[one.clone()], &[one])?;
/// assert!((outputs[0].item::<f32>()? - 0.841471).abs() < 1e-6);
/// assert!((gradients[0].item::<f32>()? - 0.540302).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn vjp(
    function: impl FnOnce(&[Array]) -> Result<Vec<Array>>,
    primals: &[Array],
    cotangents: &[Array],
) -> Result<(Vec<Array>, Vec<Array>)> {
    check_primals("vjp", primals)?;
    vjp_where_float(function, primals, cotangents)
}

/// As [`vjp`], with zeros for primals that are integers.
pub(super) fn vjp_where_float(
    function: impl FnOnce(&[Array]) -> Result<Vec<Array>>,
    primals: &[Array],
    cotangents: &[Array],
) -> Result<(Vec<Array>, Vec<Array>)> {
    let trace = Trace::start();
    let arguments: Vec<Array> = primals.iter().map(|x| x.traced_copy(&trace)).collect();
    let outputs = function(&arguments)?;
    check_alike("vjp", ("output", &outputs), ("cotangent", cotangents))?;
    let gradients = gradients_or_zeros(&arguments, &outputs, cotangents)?;
    Ok((outputs, gradients))
}

/// Checks that all primals can have gradients: zeros for integers would hide what they were to tell.
fn check_primals(transform: &'static str, primals: &[Array]) -> Result<()> {
    match primals.iter().enumerate().find(|(_, primal)| !primal.dtype().is_inexact()) {
        Some((index, primal)) => {
            let expected = "floats or complex numbers, which have gradients";
            Err(Error::dtype(transform, format!("argument {index}"), expected, primal.dtype()))
        }
        None => Ok(()),
    }
}

/// Checks that there is one of the second kind for each of the first, of its shape and dtype.
pub(super) fn check_alike(
    transform: &'static str,
    (what, arrays): (&str, &[Array]),
    (other, others): (&str, &[Array]),
) -> Result<()> {
    if arrays.len() != others.len() {
        let reason =
            format!("{} {what}s need as many {other}s, got {}", arrays.len(), others.len());
        return Err(Error::Transform { transform, reason });
    }
    for (index, (a, b)) in arrays.iter().zip(others).enumerate() {
        if a.shape() != b.shape() || a.dtype() != b.dtype() {
            let reason = format!(
                "{what} {index} has shape {:?} and dtype {}, its {other} {:?} and {}",
                a.shape(),
                a.dtype(),
                b.shape(),
                b.dtype()
            );
            return Err(Error::Transform { transform, reason });
        }
    }
    Ok(())
}

/// The function that gives the gradients of `function`, which returns a scalar. Its arguments are
/// floats or complex numbers: an integer has no gradient, which is an error (MLX rounds one to the
/// integer's dtype). What is not to be differentiated, the function captures.
///
/// ```
/// use std::f32::consts::PI;
/// use wootz::{Array, grad};
/// // dfdx = mx.grad(mx.sin)
/// let dfdx = grad(|x: &[Array]| x[0].sin());
/// // dfdx(mx.array(mx.pi))
/// assert_eq!(dfdx(&[Array::new(PI)?])?[0].item::<f32>()?, -1.0);
/// // mx.grad(mx.grad(mx.sin))(mx.array(mx.pi / 2))
/// let d2fdx2 = grad(|x: &[Array]| Ok(dfdx(x)?.remove(0)));
/// assert_eq!(d2fdx2(&[Array::new(PI / 2.0)?])?[0].item::<f32>()?, -1.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn grad<F>(function: F) -> impl Fn(&[Array]) -> Result<Vec<Array>>
where
    F: Fn(&[Array]) -> Result<Array>,
{
    let with_value = value_and_grad(function);
    move |primals| Ok(with_value(primals)?.1)
}

/// The function that gives the value of `function`, a scalar, and its gradients. Arguments are
/// those of [`grad`].
///
/// ```
/// use wootz::{Array, value_and_grad};
/// let (x, y) = (Array::new([0.5f32, -0.5])?, Array::new([1.5f32, -1.5])?);
/// // def loss_fn(w, x, y): return mx.mean(mx.square(w * x - y))
/// let loss_fn = |w: &[Array]| (&w[0] * &x - &y).square()?.mean(());
/// // loss, dloss_dw = mx.value_and_grad(loss_fn)(mx.array(1.0), x, y)
/// let (loss, gradients) = value_and_grad(loss_fn)(&[Array::new(1.0f32)?])?;
/// assert_eq!((loss.item::<f32>()?, gradients[0].item::<f32>()?), (1.0, -1.0));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn value_and_grad<F>(function: F) -> impl Fn(&[Array]) -> Result<(Array, Vec<Array>)>
where
    F: Fn(&[Array]) -> Result<Array>,
{
    let with_aux = value_and_grad_aux(move |x: &[Array]| Ok((function(x)?, ())));
    move |primals| with_aux(primals).map(|((value, ()), gradients)| (value, gradients))
}

/// As [`value_and_grad`], for a function that returns something else beside its scalar: MLX's
/// `value_and_grad` of a function that returns a tuple. What it returns is not differentiated.
///
/// ```
/// use wootz::{Array, value_and_grad_aux};
/// let x = Array::new([1.0f32, 2.0])?;
/// let squares = |x: &[Array]| {
///     let squares = x[0].square()?;
///     Ok((squares.sum(())?, squares))
/// };
/// // (loss, squares), dx = mx.value_and_grad(squares)(x)
/// let ((loss, squares), gradients) = value_and_grad_aux(squares)(&[x])?;
/// assert_eq!((loss.item::<f32>()?, squares.to_vec::<f32>()?), (5.0, vec![1.0, 4.0]));
/// assert_eq!(gradients[0].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn value_and_grad_aux<F, A>(
    function: F,
) -> impl Fn(&[Array]) -> Result<((Array, A), Vec<Array>)>
where
    F: Fn(&[Array]) -> Result<(Array, A)>,
{
    let with_aux = value_and_grad_where_float(function);
    move |primals| {
        check_primals("grad", primals)?;
        with_aux(primals)
    }
}

/// As [`value_and_grad_aux`], with zeros for arguments that are integers.
pub(crate) fn value_and_grad_where_float<F, A>(
    function: F,
) -> impl Fn(&[Array]) -> Result<((Array, A), Vec<Array>)>
where
    F: Fn(&[Array]) -> Result<(Array, A)>,
{
    move |primals| {
        let trace = Trace::start();
        let arguments: Vec<Array> = primals.iter().map(|x| x.traced_copy(&trace)).collect();
        let (value, aux) = function(&arguments)?;
        if value.size() != 1 {
            let reason =
                format!("the function must return a scalar, got shape {:?}", value.shape());
            return Err(Error::Transform { transform: "grad", reason });
        }
        if !value.dtype().is_inexact() {
            let reason =
                format!("the function must return a floating-point number, got {}", value.dtype());
            return Err(Error::Transform { transform: "grad", reason });
        }
        let one = ops::ones_like(&value)?;
        let gradients = gradients_or_zeros(&arguments, std::slice::from_ref(&value), &[one])?;
        Ok(((value, aux), gradients))
    }
}

/// Gradients of `arguments`; zeros for those that the outputs do not depend on.
fn gradients_or_zeros(
    arguments: &[Array],
    outputs: &[Array],
    cotangents: &[Array],
) -> Result<Vec<Array>> {
    let gradients = backward(arguments, outputs, cotangents, &[])?;
    (arguments.iter().zip(gradients))
        .map(|(argument, gradient)| gradient.map_or_else(|| ops::zeros_like(argument), Ok))
        .collect()
}

/// Gradients of `arguments`, which the outputs were computed from; the walk ends at `border`, see
/// [`dependents`].
pub(super) fn backward(
    arguments: &[Array],
    outputs: &[Array],
    cotangents: &[Array],
    border: &[&[Array]],
) -> Result<Vec<Option<Array>>> {
    let order = dependents(arguments, outputs, border);
    let mut pending: HashMap<*const Node, SmallVec<[Option<Array>; 1]>> =
        order.iter().map(|node| (Arc::as_ptr(node), SmallVec::new())).collect();
    for (output, cotangent) in outputs.iter().zip(cotangents) {
        accumulate(&mut pending, output, cotangent.clone())?;
    }
    for node in order.iter().rev() {
        if arguments.iter().any(|argument| Arc::ptr_eq(&argument.node, node)) {
            continue;
        }
        let Some(cotangents) = pending.get_mut(&Arc::as_ptr(node)).map(std::mem::take) else {
            continue;
        };
        let Some(work) = node.work().filter(|_| cotangents.iter().any(Option::is_some)) else {
            continue;
        };
        let gradients = node_vjp(node, &work, &cotangents)?;
        for (input, gradient) in work.inputs.iter().zip(gradients) {
            if let Some(gradient) = gradient {
                accumulate(&mut pending, input, gradient)?;
            }
        }
    }
    let take = |argument: &Array| {
        let cotangents = pending.get_mut(&Arc::as_ptr(&argument.node))?;
        std::mem::take(cotangents).pop().flatten()
    };
    Ok(arguments.iter().map(take).collect())
}

/// Asks a node's operation for gradients and checks that they fit.
fn node_vjp(
    node: &Arc<Node>,
    work: &Work,
    cotangents: &[Option<Array>],
) -> Result<Vec<Option<Array>>> {
    let outputs: Vec<Array> = Array::outputs_of(node);
    let mut padded: Vec<Option<Array>> = cotangents.to_vec();
    padded.resize(outputs.len(), None);
    let gradients = work.op.vjp(&work.inputs, &outputs, &padded)?;
    let (expected, got) = (("inputs", work.inputs.len()), ("gradients", gradients.len()));
    check_count("vjp", work.op.name(), expected, got)?;
    for (index, (input, gradient)) in work.inputs.iter().zip(&gradients).enumerate() {
        let Some(gradient) = gradient else { continue };
        if gradient.shape() != input.shape() || gradient.dtype() != input.dtype() {
            let reason = format!(
                "the gradient of input {index} of {} has shape {:?} and dtype {}, the input {:?} and {}",
                work.op.name(),
                gradient.shape(),
                gradient.dtype(),
                input.shape(),
                input.dtype()
            );
            return Err(Error::Transform { transform: "vjp", reason });
        }
    }
    Ok(gradients)
}

/// Checks that an operation's rule gave as many as there must be.
pub(super) fn check_count(
    transform: &'static str,
    op: &'static str,
    (what, expected): (&str, usize),
    (given, got): (&str, usize),
) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    let reason = format!("the rule of {op} gave {got} {given} for {expected} {what}");
    Err(Error::Transform { transform, reason })
}

/// Adds a gradient to what an array has received, if the array takes part.
fn accumulate(
    pending: &mut HashMap<*const Node, SmallVec<[Option<Array>; 1]>>,
    array: &Array,
    gradient: Array,
) -> Result<()> {
    // What goes through integers is piecewise constant.
    if !array.dtype().is_inexact() {
        return Ok(());
    }
    let Some(received) = pending.get_mut(&Arc::as_ptr(&array.node)) else { return Ok(()) };
    let index = array.output_index();
    if received.len() <= index {
        received.resize(index + 1, None);
    }
    received[index] = Some(match received[index].take() {
        Some(sum) => ops::add(&sum, &gradient)?,
        None => gradient,
    });
    Ok(())
}

/// The gradients of an operation through its composition of plainer ones.
pub(crate) fn composed_vjp(
    op: &'static str,
    composed: impl Fn(&[Array]) -> Option<Result<Vec<Array>>>,
    inputs: &[Array],
    outputs: &[Array],
    cotangents: &[Option<Array>],
) -> Result<Vec<Option<Array>>> {
    let cotangents = or_zeros(outputs, cotangents)?;
    let reason = "it has neither a rule nor a composition";
    let missing = || Err(Error::not_differentiable(op, reason));
    let composed = |x: &[Array]| composed(x).unwrap_or_else(missing);
    let (_, gradients) = vjp_where_float(composed, inputs, &cotangents)?;
    Ok(gradients.into_iter().map(Some).collect())
}
