//! Forward mode: Jacobian-vector products.

use super::Trace;
use super::graph::{Values, dependents};
use super::placeholder::placeholder;
use super::vjp::{backward, check_alike, check_count};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::ops;

/// The outputs of `function` at `primals`, and how they change along `tangents`.
///
/// Each step's tangent is computed with the step, and nothing is kept for later: the memory it
/// takes does not grow with the number of steps.
///
/// ```
/// use wootz::{Array, jvp};
/// // mx.jvp(mx.sin, (mx.array(1.0),), (mx.array(1.0),))
/// let one = Array::scalar(1.0, wootz::DType::F32)?;
/// let (y, dy) = jvp(|x| Ok(vec![x[0].sin()?]), &[one.clone()], &[one])?;
/// assert!((y[0].item::<f32>()? - 0.841471).abs() < 1e-6);
/// assert!((dy[0].item::<f32>()? - 0.540302).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn jvp(
    function: impl FnOnce(&[Array]) -> Result<Vec<Array>>,
    primals: &[Array],
    tangents: &[Array],
) -> Result<(Vec<Array>, Vec<Array>)> {
    let trace = Trace::start();
    check_alike("jvp", ("primal", primals), ("tangent", tangents))?;
    let arguments: Vec<Array> = primals.iter().map(|x| x.traced_copy(&trace)).collect();
    let outputs = function(&arguments)?;
    let order = dependents(&arguments, &outputs, &[]);
    let mut known = Values::new();
    for (argument, tangent) in arguments.iter().zip(tangents) {
        if argument.dtype().is_inexact() {
            known.insert(argument, tangent.clone());
        }
    }
    // The arguments come first.
    for node in order.iter().skip(arguments.len()) {
        let Some(work) = node.work() else { continue };
        let tangents: Vec<Option<Array>> =
            work.inputs.iter().map(|input| known.get(input).cloned()).collect();
        if tangents.iter().all(Option::is_none) {
            continue;
        }
        let results = Array::outputs_of(node);
        let tangents = (work.op.jvp(&work.inputs, &results, &tangents))
            .map_err(|error| error.in_transform("jvp"))?;
        let (expected, got) = (("outputs", results.len()), ("tangents", tangents.len()));
        check_count("jvp", work.op.name(), expected, got)?;
        for (index, (result, tangent)) in results.iter().zip(tangents).enumerate() {
            let Some(tangent) = tangent else { continue };
            if tangent.shape() != result.shape() || tangent.dtype() != result.dtype() {
                let reason = format!(
                    "the tangent of output {index} of {} has shape {:?} and dtype {}, the output {:?} and {}",
                    work.op.name(),
                    tangent.shape(),
                    tangent.dtype(),
                    result.shape(),
                    result.dtype()
                );
                return Err(Error::Transform { transform: "jvp", reason });
            }
            known.insert(result, tangent);
        }
    }
    let tangents = (outputs.iter())
        .map(|output| known.get(output).cloned().map_or_else(|| ops::zeros_like(output), Ok))
        .collect::<Result<Vec<_>>>()?;
    Ok((outputs, tangents))
}

/// The tangents of an operation's outputs from its gradient rule. Gradients are linear in the
/// cotangents, so the gradient of that linear function, with the tangents for cotangents, is the
/// Jacobian itself: the transpose of its transpose. The cotangents' values are never needed.
pub(crate) fn transposed(
    op: &'static str,
    vjp: impl FnOnce(&[Option<Array>]) -> Result<Vec<Option<Array>>>,
    inputs: &[Array],
    outputs: &[Array],
    tangents: &[Option<Array>],
) -> Result<Vec<Option<Array>>> {
    let trace = Trace::recording("jvp");
    let shown = |x: &Array| placeholder(&trace, "jvp", x.shape(), x.dtype(), x.device());
    let cotangents = (outputs.iter())
        .map(|output| output.dtype().is_inexact().then(|| shown(output)).transpose())
        .collect::<Result<Vec<_>>>()?;
    let gradients = vjp(&cotangents)?;
    check_count("jvp", op, ("inputs", inputs.len()), ("gradients", gradients.len()))?;
    let (gradients, tangents): (Vec<Array>, Vec<Array>) = (gradients.into_iter().zip(tangents))
        .filter_map(|(gradient, tangent)| Some((gradient?, tangent.clone()?)))
        .unzip();
    let arguments: Vec<Array> = cotangents.iter().flatten().cloned().collect();
    let mut along = backward(&arguments, &gradients, &tangents, &[inputs, outputs])?.into_iter();
    let along = |cotangent: &Option<Array>| cotangent.as_ref().and_then(|_| along.next().flatten());
    Ok(cotangents.iter().map(along).collect())
}
