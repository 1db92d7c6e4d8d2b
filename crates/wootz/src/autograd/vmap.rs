//! Batches: a function of single elements becomes one of whole batches.

use super::Trace;
use super::batch::Batch;
use super::graph::{Values, dependents};
use super::placeholder::placeholder;
use super::vjp::check_count;
use crate::array::{Array, normalize_axis};
use crate::error::{Error, Result};
use crate::ops;

/// Which axis of each array is the batch's.
#[derive(Clone, Debug, PartialEq)]
pub enum MapAxes {
    /// The same axis of all.
    All(i64),
    /// An axis for each; none where an array is the same for the whole batch.
    Each(Vec<Option<i64>>),
}

impl From<i64> for MapAxes {
    fn from(axis: i64) -> MapAxes {
        MapAxes::All(axis)
    }
}

impl From<&[Option<i64>]> for MapAxes {
    fn from(axes: &[Option<i64>]) -> MapAxes {
        MapAxes::Each(axes.to_vec())
    }
}

impl<const N: usize> From<[Option<i64>; N]> for MapAxes {
    fn from(axes: [Option<i64>; N]) -> MapAxes {
        MapAxes::Each(axes.to_vec())
    }
}

impl<const N: usize> From<[i64; N]> for MapAxes {
    fn from(axes: [i64; N]) -> MapAxes {
        MapAxes::Each(axes.map(Some).to_vec())
    }
}

impl MapAxes {
    /// An axis, or none, for each of the arrays.
    fn of(&self, what: &str, arrays: &[Array]) -> Result<Vec<Option<i64>>> {
        match self {
            MapAxes::All(axis) => Ok(vec![Some(*axis); arrays.len()]),
            MapAxes::Each(axes) if axes.len() == arrays.len() => Ok(axes.clone()),
            MapAxes::Each(axes) => {
                Err(failed(format!("{} axes for {} {what}", axes.len(), arrays.len())))
            }
        }
    }
}

/// The function that applies `function` to each element of a batch and puts the results together:
/// `in_axes` tells which axis of each argument is the batch's, `out_axes` where it goes in each
/// result. The function runs once, on arrays without values, and each operation it used is applied
/// to the whole batch.
///
/// ```
/// use wootz::{Array, add, vmap};
/// let (xs, ys) = (Array::new([[1, 2, 3], [4, 5, 6]])?, Array::new([[10, 20], [30, 40], [50, 60]])?);
/// // vmap_add = mx.vmap(lambda x, y: x + y, in_axes=(1, 0))
/// let vmap_add = vmap(|x| Ok(vec![add(&x[0], &x[1])?]), [1, 0], 0);
/// assert_eq!(vmap_add(&[xs, ys])?[0].to_vec::<i32>()?, [11, 24, 32, 45, 53, 66]);
/// // An argument without an axis is the same for all.
/// let dot = vmap(|x| Ok(vec![x[0].matmul(&x[1])?]), [Some(0), None], 0);
/// let rows = Array::new([[1.0f32, 2.0], [3.0, 4.0]])?;
/// assert_eq!(dot(&[rows, Array::new([1.0f32, 10.0])?])?[0].to_vec::<f32>()?, [21.0, 43.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn vmap<F>(
    function: F,
    in_axes: impl Into<MapAxes>,
    out_axes: impl Into<MapAxes>,
) -> impl Fn(&[Array]) -> Result<Vec<Array>>
where
    F: Fn(&[Array]) -> Result<Vec<Array>>,
{
    let (in_axes, out_axes) = (in_axes.into(), out_axes.into());
    move |inputs| {
        let axes = in_axes.of("arguments", inputs)?;
        let size = batch_size(inputs, &axes)?;
        let batched: Vec<bool> = axes.iter().map(Option::is_some).collect();
        let moved = (inputs.iter().zip(&axes))
            .map(|(input, axis)| axis.map_or_else(|| Ok(input.clone()), |a| input.moveaxis(a, 0)))
            .collect::<Result<Vec<_>>>()?;
        let outputs = vmap_batch(&function, &moved, &batched, size)?;
        let arrays: Vec<Array> = outputs.iter().map(|(output, _)| output.clone()).collect();
        let axes = out_axes.of("results", &arrays)?;
        (outputs.into_iter().zip(axes).enumerate())
            .map(|(index, ((output, batched), axis))| match (batched, axis) {
                (true, Some(axis)) => output.moveaxis(0, axis),
                (true, None) => Err(failed(format!(
                    "result {index} depends on the batch and has no axis for it"
                ))),
                (false, None) => Ok(output),
                (false, Some(axis)) => {
                    let shape = [&[size], output.shape()].concat();
                    ops::broadcast_to(&output, &shape)?.moveaxis(0, axis)
                }
            })
            .collect()
    }
}

/// The length of the arguments' batch axes.
fn batch_size(inputs: &[Array], axes: &[Option<i64>]) -> Result<usize> {
    let mut size = None;
    for (index, (input, axis)) in inputs.iter().zip(axes).enumerate() {
        let Some(axis) = axis else { continue };
        let length = input.shape()[normalize_axis("vmap", *axis, input.rank())?];
        if *size.get_or_insert(length) != length {
            let other = size.unwrap_or(0);
            return Err(failed(format!(
                "batches of one length are needed, argument {index} has {length} and one before it {other}"
            )));
        }
    }
    size.ok_or_else(|| failed("no argument has an axis for the batch".into()))
}

fn failed(reason: String) -> Error {
    Error::Transform { transform: "vmap", reason }
}

/// The results of `function` for a batch, the first axis of inputs that are `batched`. Tells for
/// each result whether it has the batch as its first axis, or is the same for all.
pub(super) fn vmap_batch(
    function: impl Fn(&[Array]) -> Result<Vec<Array>>,
    inputs: &[Array],
    batched: &[bool],
    size: usize,
) -> Result<Vec<(Array, bool)>> {
    let trace = Trace::recording("vmap");
    let mut known = Values::new();
    let mut placeholders = Vec::new();
    let mut arguments = inputs.to_vec();
    for (argument, input) in arguments
        .iter_mut()
        .zip(inputs)
        .zip(batched)
        .filter_map(|(pair, batched)| batched.then_some(pair))
    {
        let shape = &input.shape()[1..];
        *argument = placeholder(&trace, "vmap", shape, input.dtype(), input.device())?;
        known.insert(argument, input.clone());
        placeholders.push(argument.clone());
    }
    let outputs = function(&arguments)?;
    // The placeholders come first.
    for node in dependents(&placeholders, &outputs, &[]).iter().skip(placeholders.len()) {
        let Some(work) = node.work() else { continue };
        let batched: Vec<bool> = work.inputs.iter().map(|x| known.get(x).is_some()).collect();
        let inputs: Vec<Array> =
            work.inputs.iter().map(|x| known.get(x).unwrap_or(x).clone()).collect();
        let results = match work.op.is_transfer() {
            true => vec![ops::to_device(&inputs[0], &node.device)?],
            false => {
                let (inputs, batched) = (&inputs[..], &batched[..]);
                work.op.vmap(&Batch { op: &work.op, inputs, batched, size })?
            }
        };
        let outputs = Array::outputs_of(node);
        let (expected, got) = (("outputs", outputs.len()), ("results", results.len()));
        check_count("vmap", work.op.name(), expected, got)?;
        for (index, (one, all)) in outputs.iter().zip(results).enumerate() {
            let shape = [&[size], one.shape()].concat();
            if all.shape() != shape || all.dtype() != one.dtype() {
                return Err(failed(format!(
                    "output {index} of {} for a batch has shape {:?} and dtype {}, expected {shape:?} and {}",
                    work.op.name(),
                    all.shape(),
                    all.dtype(),
                    one.dtype()
                )));
            }
            known.insert(one, all);
        }
    }
    let result = |output: &Array| match known.get(output) {
        Some(all) => (all.clone(), true),
        None => (output.clone(), false),
    };
    Ok(outputs.iter().map(result).collect())
}
