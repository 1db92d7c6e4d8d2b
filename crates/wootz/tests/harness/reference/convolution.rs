//! Convolutions by their definition: a sum over the window for every element.

use wootz::op::Tolerance;
use wootz::{
    Array, ConvOptions, ConvolveMode, Padding, Result, Spatial, conv_general, conv_transpose1d,
    conv_transpose2d, conv_transpose3d, conv1d, conv2d, conv3d, convolve, vjp,
};

use super::Known;
use super::tensor::{Tensor, indices};

/// How a window moves over spatial axes.
#[derive(Clone)]
struct Steps {
    stride: Vec<usize>,
    low: Vec<i64>,
    high: Vec<i64>,
    kernel_dilation: Vec<usize>,
    input_dilation: Vec<usize>,
    groups: usize,
    flip: bool,
}

impl Steps {
    fn plain(rank: usize) -> Steps {
        Steps {
            stride: vec![1; rank],
            low: vec![0; rank],
            high: vec![0; rank],
            kernel_dilation: vec![1; rank],
            input_dilation: vec![1; rank],
            groups: 1,
            flip: false,
        }
    }

    /// Where a tap of the window of an output lies in the input, if not on a zero.
    fn from(
        &self,
        at: &[usize],
        tap: &[usize],
        x: &[usize],
        kernel: &[usize],
    ) -> Option<Vec<usize>> {
        let mut from = Vec::new();
        for axis in 0..at.len() {
            let tap = if self.flip { kernel[axis] - 1 - tap[axis] } else { tap[axis] };
            let place = (at[axis] * self.stride[axis] + tap * self.kernel_dilation[axis]) as i64;
            let place = place - self.low[axis];
            let step = self.input_dilation[axis] as i64;
            if place < 0 || place % step != 0 || place / step >= x[axis] as i64 {
                return None;
            }
            from.push((place / step) as usize);
        }
        Some(from)
    }

    fn convolved(&self, x: &Tensor, w: &Tensor) -> Tensor {
        let rank = x.shape.len() - 2;
        let (lengths, kernel) = (&x.shape[1..=rank], &w.shape[1..=rank]);
        let mut shape = vec![x.shape[0]];
        for axis in 0..rank {
            let spread = (lengths[axis] as i64 - 1) * self.input_dilation[axis] as i64 + 1;
            let window = (kernel[axis] - 1) * self.kernel_dilation[axis] + 1;
            let free = spread + self.low[axis] + self.high[axis] - window as i64;
            shape.push(free as usize / self.stride[axis] + 1);
        }
        shape.push(w.shape[0]);
        let channels = w.shape[rank + 1];
        let outputs = w.shape[0] / self.groups;
        Tensor::from_fn(&shape, |at| {
            let (output, mut sum) = (at[rank + 1], 0.0);
            for tap in indices(kernel) {
                let Some(from) = self.from(&at[1..=rank], &tap, lengths, kernel) else { continue };
                for c in 0..channels {
                    let channel = output / outputs * channels + c;
                    let x = x.at(&[&[at[0]], &from[..], &[channel]].concat());
                    sum += x * w.at(&[&[output], &tap[..], &[c]].concat());
                }
            }
            sum
        })
    }

    /// What the elements of the kernel meet at every output, times `dy`.
    fn met(&self, x: &Tensor, dy: &Tensor, kernel: &[usize]) -> Tensor {
        let rank = kernel.len();
        let lengths = &x.shape[1..=rank];
        let channels = x.shape[rank + 1] / self.groups;
        let (all, batch) = (dy.shape[rank + 1], x.shape[0]);
        let shape = [&[all], kernel, &[channels]].concat();
        Tensor::from_fn(&shape, |index| {
            let (output, tap, c) = (index[0], &index[1..=rank], index[rank + 1]);
            let channel = output / (all / self.groups) * channels + c;
            let mut sum = 0.0;
            for n in 0..batch {
                for at in indices(&dy.shape[1..=rank]) {
                    let Some(from) = self.from(&at, tap, lengths, kernel) else { continue };
                    sum += x.at(&[&[n], &from[..], &[channel]].concat())
                        * dy.at(&[&[n], &at[..], &[output]].concat());
                }
            }
            sum
        })
    }
}

fn known(
    op: &'static str,
    shapes: [&[usize]; 2],
    steps: Steps,
    call: impl Fn(&Array, &Array) -> Result<Array> + Send + Sync + 'static,
) -> Known {
    Known::new(op, &shapes, move |x| call(&x[0], &x[1]), move |x| steps.convolved(&x[0], &x[1]))
        .with(|case| case.tolerance(Tolerance::Contraction))
}

/// A transposed convolution is one over an input with zeros between its elements.
fn transposed(stride: &[usize], padding: &[i64], kernel: &[usize], more: &[i64]) -> Steps {
    let reach = |axis: usize| kernel[axis] as i64 - 1 - padding[axis];
    let axes = 0..stride.len();
    Steps {
        low: axes.clone().map(reach).collect(),
        high: axes.map(|axis| reach(axis) + more[axis]).collect(),
        input_dilation: stride.to_vec(),
        flip: true,
        ..Steps::plain(stride.len())
    }
}

pub(crate) fn cases() -> Vec<Known> {
    let mut cases = plain_cases();
    cases.extend(transposed_cases());
    cases.push(weights());
    cases
}

fn plain_cases() -> Vec<Known> {
    let line = Steps {
        stride: vec![2],
        low: vec![3],
        high: vec![3],
        kernel_dilation: vec![2],
        groups: 2,
        ..Steps::plain(1)
    };
    let image = Steps {
        stride: vec![1, 2],
        low: vec![1, 2],
        high: vec![1, 2],
        kernel_dilation: vec![2, 1],
        ..Steps::plain(2)
    };
    let own = Steps { low: vec![1; 2], high: vec![1; 2], groups: 13, ..Steps::plain(2) };
    let room =
        Steps { stride: vec![1, 2, 1], low: vec![1, 0, 2], high: vec![1, 0, 2], ..Steps::plain(3) };
    let general = Steps {
        stride: vec![2, 1],
        low: vec![2, 0],
        high: vec![1, 3],
        kernel_dilation: vec![1, 2],
        input_dilation: vec![2, 3],
        groups: 2,
        flip: true,
    };
    let options = ConvOptions {
        stride: Spatial::from([2, 1]),
        padding: Padding::sides(&[2, 0], &[1, 3]),
        kernel_dilation: Spatial::from([1, 2]),
        input_dilation: Spatial::from([2, 3]),
        groups: 2,
        flip: true,
    };
    let full = Steps { low: vec![3], high: vec![3], flip: true, ..Steps::plain(1) };
    vec![
        known("conv1d", [&[2, 9, 4], &[6, 3, 2]], line, |x, w| conv1d(x, w, 2, 3, 2, 2)),
        known("conv2d", [&[2, 5, 7, 3], &[9, 2, 3, 3]], image, |x, w| {
            conv2d(x, w, (1, 2), (1, 2), (2, 1), 1)
        }),
        known("conv2d", [&[1, 5, 4, 13], &[13, 3, 2, 1]], own, |x, w| conv2d(x, w, 1, 1, 1, 13))
            .label("every channel by itself"),
        known("conv2d", [&[1, 8, 9, 35], &[37, 3, 3, 35]], Steps::plain(2), |x, w| {
            conv2d(x, w, 1, 0, 1, 1)
        })
        .label("more than a tile"),
        known("conv3d", [&[1, 3, 4, 2, 2], &[3, 2, 2, 3, 2]], room, |x, w| {
            conv3d(x, w, (1, 2, 1), (1, 0, 2), 1, 1)
        }),
        known("conv_general", [&[2, 3, 4, 4], &[6, 3, 2, 2]], general, move |x, w| {
            conv_general(x, w, &options)
        }),
        Known::new(
            "convolve",
            &[&[7], &[4]],
            |x| convolve(&x[0], &x[1], ConvolveMode::Full),
            move |x| {
                let line = |x: &Tensor| x.clone().reshaped(&[1, x.shape[0], 1]);
                full.convolved(&line(&x[0]), &line(&x[1])).reshaped(&[10])
            },
        )
        .with(|case| case.tolerance(Tolerance::Contraction)),
    ]
}

fn transposed_cases() -> Vec<Known> {
    let line = transposed(&[3], &[1], &[4], &[2]);
    let image = transposed(&[2, 1], &[0, 1], &[3, 2], &[1, 0]);
    let room = transposed(&[1, 2, 2], &[0, 1, 0], &[2, 2, 1], &[0, 0, 1]);
    vec![
        known("conv_transpose1d", [&[2, 4, 3], &[5, 4, 3]], line, |x, w| {
            conv_transpose1d(x, w, 3, 1, 1, 2, 1)
        }),
        known("conv_transpose2d", [&[1, 3, 4, 2], &[3, 3, 2, 2]], image, |x, w| {
            conv_transpose2d(x, w, (2, 1), (0, 1), 1, (1, 0), 1)
        }),
        known("conv_transpose3d", [&[1, 2, 3, 2, 2], &[3, 2, 2, 1, 2]], room, |x, w| {
            conv_transpose3d(x, w, (1, 2, 2), (0, 1, 0), 1, (0, 0, 1), 1)
        }),
    ]
}

/// The gradient of weights, which is linear in them: any weights will do.
fn weights() -> Known {
    let steps = Steps {
        stride: vec![2, 1],
        low: vec![1; 2],
        high: vec![1; 2],
        groups: 2,
        ..Steps::plain(2)
    };
    Known::new(
        "conv_backward_weight",
        &[&[2, 6, 5, 4], &[2, 3, 6, 6]],
        |x| {
            let weight =
                wootz::with_device(x[0].device(), || Array::ones(&[6, 3, 2, 2], x[0].dtype()))?;
            let call = |w: &[Array]| Ok(vec![conv2d(&x[0], &w[0], (2, 1), 1, 1, 2)?]);
            let (_, mut gradients) = vjp(call, &[weight], std::slice::from_ref(&x[1]))?;
            Ok(gradients.remove(0))
        },
        move |x| steps.met(&x[0], &x[1], &[3, 2]),
    )
    .with(|case| case.tolerance(Tolerance::Contraction))
}
