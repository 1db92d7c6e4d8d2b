//! Reverse mode: vector-Jacobian products, and gradients of scalar functions.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Trace;
use crate::array::{Array, Node, Work};
use crate::error::{Error, Result};
use crate::ops;

/// The outputs of `function` at `primals`, and the gradients of the primals given those of the
/// outputs.
///
/// ```
/// use wootz::{Array, vjp};
/// let x = Array::from_slice(&[1.0f32, 2.0], &[2])?;
/// let dy = Array::from_slice(&[1.0f32, 10.0], &[2])?;
/// let (y, dx) = vjp(|x| Ok(vec![x[0].square()?]), &[x], &[dy])?;
/// assert_eq!(y[0].to_vec::<f32>()?, [1.0, 4.0]);
/// assert_eq!(dx[0].to_vec::<f32>()?, [2.0, 40.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn vjp(
    function: impl FnOnce(&[Array]) -> Result<Vec<Array>>,
    primals: &[Array],
    cotangents: &[Array],
) -> Result<(Vec<Array>, Vec<Array>)> {
    let _trace = Trace::start();
    let arguments = primals.iter().map(Array::traced_copy).collect::<Result<Vec<_>>>()?;
    let outputs = function(&arguments)?;
    if outputs.len() != cotangents.len() {
        let reason =
            format!("{} outputs need as many cotangents, got {}", outputs.len(), cotangents.len());
        return Err(Error::Transform { transform: "vjp", reason });
    }
    for (index, (output, cotangent)) in outputs.iter().zip(cotangents).enumerate() {
        if output.shape() != cotangent.shape() || output.dtype() != cotangent.dtype() {
            let reason = format!(
                "output {index} has shape {:?} and dtype {}, its cotangent {:?} and {}",
                output.shape(),
                output.dtype(),
                cotangent.shape(),
                cotangent.dtype()
            );
            return Err(Error::Transform { transform: "vjp", reason });
        }
    }
    let gradients = backward(&arguments, &outputs, cotangents)?;
    Ok((outputs, gradients))
}

/// The function that gives the gradients of `function`, which returns a scalar.
///
/// ```
/// use wootz::{Array, grad};
/// let norm = |x: &[Array]| x[0].square()?.sum(());
/// let x = Array::from_slice(&[1.0f32, 2.0], &[2])?;
/// assert_eq!(grad(norm)(&[x])?[0].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn grad<F>(function: F) -> impl Fn(&[Array]) -> Result<Vec<Array>>
where
    F: Fn(&[Array]) -> Result<Array>,
{
    let with_value = value_and_grad(function);
    move |primals| Ok(with_value(primals)?.1)
}

/// The function that gives the value of `function`, a scalar, and its gradients.
///
/// ```
/// use wootz::{Array, value_and_grad};
/// let x = Array::from_slice(&[3.0f32], &[])?;
/// let (value, gradients) = value_and_grad(|x| x[0].square())(&[x])?;
/// assert_eq!((value.item::<f32>()?, gradients[0].item::<f32>()?), (9.0, 6.0));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn value_and_grad<F>(function: F) -> impl Fn(&[Array]) -> Result<(Array, Vec<Array>)>
where
    F: Fn(&[Array]) -> Result<Array>,
{
    move |primals| {
        let _trace = Trace::start();
        let arguments = primals.iter().map(Array::traced_copy).collect::<Result<Vec<_>>>()?;
        let value = function(&arguments)?;
        if value.size() != 1 {
            let reason =
                format!("the function must return a scalar, got shape {:?}", value.shape());
            return Err(Error::Transform { transform: "grad", reason });
        }
        let one = ops::ones_like(&value)?;
        let gradients = backward(&arguments, std::slice::from_ref(&value), &[one])?;
        Ok((value, gradients))
    }
}

/// Gradients of `arguments`, which the outputs were computed from.
fn backward(arguments: &[Array], outputs: &[Array], cotangents: &[Array]) -> Result<Vec<Array>> {
    let order = dependents(arguments, outputs);
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
    arguments
        .iter()
        .map(|argument| {
            let cotangents = pending.get_mut(&Arc::as_ptr(&argument.node)).map(std::mem::take);
            match cotangents.and_then(|mut cotangents| cotangents.pop().flatten()) {
                Some(gradient) => Ok(gradient),
                None => ops::zeros_like(argument),
            }
        })
        .collect()
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

/// Adds a gradient to what an array has received, if the array takes part.
fn accumulate(
    pending: &mut HashMap<*const Node, SmallVec<[Option<Array>; 1]>>,
    array: &Array,
    gradient: Array,
) -> Result<()> {
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

/// The nodes between `arguments` and `outputs` that depend on an argument, inputs first.
fn dependents(arguments: &[Array], outputs: &[Array]) -> Vec<Arc<Node>> {
    let mut order: Vec<Arc<Node>> = Vec::new();
    // false while a node's inputs are being visited, then whether it depends on an argument.
    let mut depends: HashMap<*const Node, bool> = HashMap::new();
    for argument in arguments {
        depends.insert(Arc::as_ptr(&argument.node), true);
        order.push(argument.node.clone());
    }
    let mut stack: Vec<(Arc<Node>, usize)> = Vec::new();
    for output in outputs {
        stack.push((output.node.clone(), 0));
        while let Some((node, next)) = stack.last_mut() {
            let pointer = Arc::as_ptr(node);
            if !node.traced || (*next == 0 && depends.contains_key(&pointer)) {
                stack.pop();
                continue;
            }
            depends.entry(pointer).or_insert(false);
            let index = *next;
            *next += 1;
            let input =
                node.with_work(|work| work.inputs.get(index).map(|i| i.node.clone())).flatten();
            match input {
                Some(input) => stack.push((input, 0)),
                None => {
                    let any = node.with_work(|work| {
                        let depends =
                            |input: &Array| depends.get(&Arc::as_ptr(&input.node)) == Some(&true);
                        work.inputs.iter().any(depends)
                    });
                    if let Some((node, _)) = stack.pop()
                        && any == Some(true)
                    {
                        depends.insert(pointer, true);
                        order.push(node);
                    }
                }
            }
        }
    }
    order
}
