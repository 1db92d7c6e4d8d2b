//! The operations behind all convolutions: the product of windows and weights, and the gradient of
//! the weights. The gradient of the input is a convolution again.

use super::cpu;
use super::geometry::{Geometry, Window, each_axis, three};
#[cfg(feature = "gpu")]
use super::gpu;
use crate::array::{Array, Meta};
use crate::cpu::CpuCall;
use crate::device::with_device;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Batch, Metas, Op, argument_name, expect_contiguous, expect_dtype, expect_float, expect_inputs,
};
use crate::ops::{flatten, full, moveaxis, reshape, transpose_axes};

/// A convolution of row-major arrays of one dtype: an input `[batch, …, channels]` with weights
/// `[outputs, …, channels / groups]` gives `[batch, …, outputs]`. The lazy function is
/// [`conv_general`](super::conv_general).
#[derive(Clone, Debug)]
pub struct Conv {
    pub(super) window: Window,
    /// Lengths of the output, which say how many zeros lie behind the input.
    pub(super) output: [usize; 3],
}

/// The gradient of [`Conv`]'s weights, of an input and the gradient of the output. The axes of
/// the result are `[…, channels / groups, outputs]`.
#[derive(Clone, Debug)]
pub struct ConvBackwardWeight {
    pub(super) window: Window,
    pub(super) kernel: [usize; 3],
}

/// Checks what both operations ask of their inputs: floats of one dtype, row-major, of so many
/// spatial axes.
fn expect_images(op: &dyn Op, window: &Window, inputs: &[&Meta]) -> Result<()> {
    expect_inputs(op, inputs, 2)?;
    expect_float(op, inputs, 0)?;
    expect_dtype(op, inputs, 1, inputs[0].dtype)?;
    for (index, input) in inputs.iter().enumerate() {
        expect_contiguous(op, inputs, index)?;
        if input.shape().len() != window.rank + 2 {
            let expected = format!("one of {} axes", window.rank + 2);
            return Err(Error::shape(op.name(), argument_name(op, index), expected, input.shape()));
        }
    }
    Ok(())
}

/// Checks that the channels of an input fall into groups.
fn expect_groups(op: &dyn Op, window: &Window, inputs: &[&Meta], index: usize) -> Result<usize> {
    let shape = inputs[index].shape();
    let channels =
        if index == 0 || op.name() == BACKWARD { shape[shape.len() - 1] } else { shape[0] };
    if window.groups == 0 || !channels.is_multiple_of(window.groups) {
        let expected = format!("{} groups of as many channels", window.groups);
        return Err(Error::shape(op.name(), argument_name(op, index), expected, shape));
    }
    Ok(channels)
}

const BACKWARD: &str = "conv_backward_weight";

impl Conv {
    fn geometry(&self, input: &Meta, weight: &Meta) -> Geometry {
        let shape = weight.shape();
        let kernel = three(&shape[1..shape.len() - 1], 1);
        Geometry::new(self.window, input, shape[0], kernel, self.output)
    }

    /// The convolution that gives the gradient of an input with these spatial axes.
    fn of_input(&self, input: &Array, kernel: [usize; 3]) -> Conv {
        let old = self.window;
        let low = each_axis(|axis| {
            let reach = old.kernel_dilation[axis] * kernel[axis].saturating_sub(1);
            reach as isize - old.low[axis]
        });
        let window = Window {
            stride: old.input_dilation,
            input_dilation: old.stride,
            low,
            flip: !old.flip,
            ..old
        };
        Conv { window, output: three(&input.shape()[1..input.rank() - 1], 1) }
    }
}

impl ConvBackwardWeight {
    fn geometry(&self, input: &Meta, dy: &Meta) -> Geometry {
        let shape = dy.shape();
        let last = shape.len() - 1;
        let output = three(&shape[1..last], 1);
        Geometry::new(self.window, input, shape[last], self.kernel, output)
    }
}

/// Weights `[outputs, …, channels / groups]` as the gradient of an input wants them: with inputs
/// and outputs exchanged in every group, and row-major.
fn exchanged(weight: &Array, groups: usize) -> Result<Array> {
    let (outputs, rest) = (weight.shape()[0] / groups.max(1), &weight.shape()[1..]);
    let grouped = reshape(weight, &[&[groups, outputs], rest].concat())?;
    let last = grouped.rank() as i64 - 1;
    let axes: Vec<i64> = [0, last].into_iter().chain(2..last).chain([1]).collect();
    flatten(&transpose_axes(&grouped, &axes)?, 0, 1)?.contiguous()
}

impl Op for Conv {
    fn name(&self) -> &'static str {
        "conv"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["input", "weight", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_images(self, &self.window, inputs)?;
        let channels = expect_groups(self, &self.window, inputs, 0)?;
        let outputs = expect_groups(self, &self.window, inputs, 1)?;
        let weight = inputs[1].shape();
        if weight[weight.len() - 1] * self.window.groups != channels {
            let expected = format!("{} channels last", channels / self.window.groups);
            return Err(Error::shape(self.name(), "weight", expected, weight));
        }
        let mut shape = vec![inputs[0].shape()[0]];
        shape.extend(&self.output[3 - self.window.rank..]);
        shape.push(outputs);
        Ok(Metas::from_elem(Meta::new(self.name(), &shape, inputs[0].dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let geometry = self.geometry(call.meta(0), call.meta(1));
        cpu::forward(call, &geometry)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let geometry = self.geometry(call.meta(0), call.meta(1));
        gpu::forward(call, &geometry)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(dy) = &cotangents[0] else { return Ok(vec![None, None]) };
        let (input, weight, dy) = (&inputs[0], &inputs[1], dy.contiguous()?);
        let kernel = three(&weight.shape()[1..weight.rank() - 1], 1);
        let back = self.of_input(input, kernel);
        let dx = Array::apply(back, &[&dy, &exchanged(weight, self.window.groups)?])?;
        let op = ConvBackwardWeight { window: self.window, kernel };
        let dw = moveaxis(&Array::apply(op, &[input, &dy])?, -1, 0)?;
        Ok(vec![Some(dx), Some(dw)])
    }

    /// More inputs for the same weights are a longer batch; weights of their own are groups.
    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        if batch.size == 0 {
            let mut shape = vec![0, batch.shape(0)[0]];
            shape.extend(&self.output[3 - self.window.rank..]);
            shape.push(batch.shape(1)[0]);
            return nothing(batch, &shape);
        }
        if batch.batched == [true, false] {
            let input = flatten(&batch.inputs[0], 0, 1)?.contiguous()?;
            let y = Array::apply(self.clone(), &[&input, &batch.inputs[1]])?;
            let shape = [&[batch.size, batch.shape(0)[0]], &y.shape()[1..]].concat();
            return Ok(vec![reshape(&y, &shape)?]);
        }
        let input = beside(&batch.spread(0)?)?;
        let weight = flatten(&batch.spread(1)?, 0, 1)?.contiguous()?;
        let window = Window { groups: self.window.groups * batch.size, ..self.window };
        let y = Array::apply(Conv { window, output: self.output }, &[&input, &weight])?;
        Ok(vec![apart(&y, batch.size)?])
    }
}

impl Op for ConvBackwardWeight {
    fn name(&self) -> &'static str {
        BACKWARD
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["input", "dy", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_images(self, &self.window, inputs)?;
        let channels = expect_groups(self, &self.window, inputs, 0)?;
        let outputs = expect_groups(self, &self.window, inputs, 1)?;
        let (input, dy) = (inputs[0].shape(), inputs[1].shape());
        if input[0] != dy[0] {
            let expected = format!("a batch of {}, as the input's", input[0]);
            return Err(Error::shape(self.name(), "dy", expected, dy));
        }
        let mut shape = self.kernel[3 - self.window.rank..].to_vec();
        shape.extend([channels / self.window.groups, outputs]);
        Ok(Metas::from_elem(Meta::new(self.name(), &shape, inputs[0].dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let geometry = self.geometry(call.meta(0), call.meta(1));
        cpu::backward_weight(call, &geometry)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let geometry = self.geometry(call.meta(0), call.meta(1));
        gpu::backward_weight(call, &geometry)
    }

    /// Given a gradient of the weights' gradient, that one takes the weights' place.
    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(weight) = &cotangents[0] else { return Ok(vec![None, None]) };
        let (input, dy) = (&inputs[0], &inputs[1]);
        let weight = moveaxis(weight, -1, 0)?.contiguous()?;
        let output = three(&dy.shape()[1..dy.rank() - 1], 1);
        let forward = Conv { window: self.window, output };
        let back = forward.of_input(input, self.kernel);
        let dx = Array::apply(back, &[dy, &exchanged(&weight, self.window.groups)?])?;
        Ok(vec![Some(dx), Some(Array::apply(forward, &[input, &weight])?)])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        if batch.size == 0 {
            let (input, dy) = (batch.shape(0), batch.shape(1));
            let mut shape = vec![0];
            shape.extend(&self.kernel[3 - self.window.rank..]);
            shape.push(input[input.len() - 1] / self.window.groups);
            shape.push(dy[dy.len() - 1]);
            return nothing(batch, &shape);
        }
        let (input, dy) = (beside(&batch.spread(0)?)?, beside(&batch.spread(1)?)?);
        let window = Window { groups: self.window.groups * batch.size, ..self.window };
        let op = ConvBackwardWeight { window, kernel: self.kernel };
        Ok(vec![apart(&Array::apply(op, &[&input, &dy])?, batch.size)?])
    }
}

/// The results of no calls.
fn nothing(batch: &Batch<'_>, shape: &[usize]) -> Result<Vec<Array>> {
    let like = &batch.inputs[0];
    Ok(vec![with_device(like.device(), || full(shape, 0, like.dtype()))?])
}

/// The first axis moved before the last and made one with it: channels of a batch side by side.
fn beside(x: &Array) -> Result<Array> {
    flatten(&moveaxis(x, 0, -2)?, -2, -1)?.contiguous()
}

/// The other way: the last axis is of so many parts, which become the first axis.
fn apart(x: &Array, parts: usize) -> Result<Array> {
    let (last, rest) = (x.shape()[x.rank() - 1], &x.shape()[..x.rank() - 1]);
    moveaxis(&reshape(x, &[rest, &[parts, last / parts]].concat())?, -2, 0)
}
