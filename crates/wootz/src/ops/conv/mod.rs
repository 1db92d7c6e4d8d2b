//! Convolutions with MLX's layouts, channels last: `conv1d`, `conv2d`, `conv3d`, `conv_general`,
//! their transposes, and `convolve`. All are one operation.

mod cases;
mod cpu;
mod geometry;
#[cfg(feature = "gpu")]
mod gpu;
mod op;
mod options;
#[cfg(test)]
mod tests;

pub(crate) use cases::entries;
use geometry::{Window, three};
#[cfg(all(test, feature = "gpu"))]
pub(crate) use gpu::cooperative_texts;
pub use op::{Conv, ConvBackwardWeight};
pub use options::{ConvOptions, Padding, Spatial};

use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::{astype, reshape, slice};

/// The convolution of `input`, `[batch, length, channels]`, with `weight`,
/// `[out_channels, kernel_size, channels / groups]`. In MLX:
/// `mx.conv1d(input, weight, stride=1, padding=0, dilation=1, groups=1)`.
///
/// ```
/// use wootz::{Array, conv1d};
/// let x = Array::new([[[1.0f32], [2.0], [4.0]]])?;
/// let weight = Array::new([[[1.0f32], [-1.0]]])?;
/// assert_eq!(conv1d(&x, &weight, 1, 0, 1, 1)?.to_vec::<f32>()?, [-1.0, -2.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn conv1d(
    input: &Array,
    weight: &Array,
    stride: impl Into<Spatial>,
    padding: impl Into<Padding>,
    dilation: impl Into<Spatial>,
    groups: usize,
) -> Result<Array> {
    let options = plain(stride.into(), padding.into(), dilation.into(), groups);
    convolution("conv1d", Some(1), input, weight, &options)
}

/// The convolution of `input`, `[batch, height, width, channels]`, with `weight`,
/// `[out_channels, height, width, channels / groups]`. In MLX:
/// `mx.conv2d(input, weight, stride=1, padding=0, dilation=1, groups=1)`.
///
/// Windows of 3 × 3 over many channels are transformed on the CPU (Winograd): what rounding loses is then a share of the
/// largest of 4 × 4 neighbours, not of what an output looks at.
///
/// ```
/// use wootz::{Array, DType, conv2d};
/// let x = Array::ones(&[1, 4, 5, 2], DType::F32)?;
/// let weight = Array::ones(&[3, 3, 3, 2], DType::F32)?;
/// let y = conv2d(&x, &weight, (2, 1), 1, 1, 1)?;
/// assert_eq!(y.shape(), [1, 2, 5, 3]);
/// assert_eq!(y.to_vec::<f32>()?[0], 8.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn conv2d(
    input: &Array,
    weight: &Array,
    stride: impl Into<Spatial>,
    padding: impl Into<Padding>,
    dilation: impl Into<Spatial>,
    groups: usize,
) -> Result<Array> {
    let options = plain(stride.into(), padding.into(), dilation.into(), groups);
    convolution("conv2d", Some(2), input, weight, &options)
}

/// The convolution of `input`, `[batch, depth, height, width, channels]`, with `weight`,
/// `[out_channels, depth, height, width, channels / groups]`. In MLX:
/// `mx.conv3d(input, weight, stride=1, padding=0, dilation=1)`; groups are wootz's.
///
/// ```
/// use wootz::{Array, DType, conv3d};
/// let x = Array::ones(&[1, 3, 4, 5, 2], DType::F32)?;
/// let weight = Array::ones(&[6, 2, 2, 2, 2], DType::F32)?;
/// assert_eq!(conv3d(&x, &weight, 1, 0, 1, 1)?.shape(), [1, 2, 3, 4, 6]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn conv3d(
    input: &Array,
    weight: &Array,
    stride: impl Into<Spatial>,
    padding: impl Into<Padding>,
    dilation: impl Into<Spatial>,
    groups: usize,
) -> Result<Array> {
    let options = plain(stride.into(), padding.into(), dilation.into(), groups);
    convolution("conv3d", Some(3), input, weight, &options)
}

/// A convolution over one to three spatial axes: `input` is `[batch, …, channels]` and `weight`
/// `[out_channels, …, channels / groups]`. In MLX: `mx.conv_general(input, weight, stride=1,
/// padding=0, kernel_dilation=1, input_dilation=1, groups=1, flip=False)`.
///
/// ```
/// use wootz::{Array, ConvOptions, Padding, conv_general};
/// let x = Array::new([[[1.0f32], [2.0], [3.0]]])?;
/// let weight = Array::new([[[1.0f32], [10.0]]])?;
/// let options = ConvOptions { padding: Padding::sides(&[1], &[0]), flip: true, ..Default::default() };
/// assert_eq!(conv_general(&x, &weight, &options)?.to_vec::<f32>()?, [1.0, 12.0, 23.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn conv_general(input: &Array, weight: &Array, options: &ConvOptions) -> Result<Array> {
    convolution("conv_general", None, input, weight, options)
}

/// The transposed convolution of `input`, `[batch, length, channels]`, with `weight`,
/// `[out_channels, kernel_size, channels / groups]`: what [`conv1d`] of these numbers does to a
/// gradient. `output_padding` elements more come out at the end. In MLX:
/// `mx.conv_transpose1d(input, weight, stride=1, padding=0, dilation=1, output_padding=0, groups=1)`.
///
/// ```
/// use wootz::{Array, conv_transpose1d};
/// let x = Array::new([[[1.0f32], [2.0]]])?;
/// let weight = Array::new([[[1.0f32], [10.0], [100.0]]])?;
/// let y = conv_transpose1d(&x, &weight, 2, 0, 1, 0, 1)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 10.0, 102.0, 20.0, 200.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn conv_transpose1d(
    input: &Array,
    weight: &Array,
    stride: impl Into<Spatial>,
    padding: impl Into<Padding>,
    dilation: impl Into<Spatial>,
    output_padding: impl Into<Spatial>,
    groups: usize,
) -> Result<Array> {
    let options = plain(stride.into(), padding.into(), dilation.into(), groups);
    transposed("conv_transpose1d", 1, input, weight, &options, &output_padding.into())
}

/// [`conv_transpose1d`] over `[batch, height, width, channels]`.
///
/// ```
/// use wootz::{Array, DType, conv_transpose2d};
/// let x = Array::ones(&[1, 4, 4, 2], DType::F32)?;
/// let weight = Array::ones(&[3, 2, 2, 2], DType::F32)?;
/// assert_eq!(conv_transpose2d(&x, &weight, 2, 0, 1, 0, 1)?.shape(), [1, 8, 8, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn conv_transpose2d(
    input: &Array,
    weight: &Array,
    stride: impl Into<Spatial>,
    padding: impl Into<Padding>,
    dilation: impl Into<Spatial>,
    output_padding: impl Into<Spatial>,
    groups: usize,
) -> Result<Array> {
    let options = plain(stride.into(), padding.into(), dilation.into(), groups);
    transposed("conv_transpose2d", 2, input, weight, &options, &output_padding.into())
}

/// [`conv_transpose1d`] over `[batch, depth, height, width, channels]`.
///
/// ```
/// use wootz::{Array, DType, conv_transpose3d};
/// let x = Array::ones(&[1, 2, 3, 4, 2], DType::F32)?;
/// let weight = Array::ones(&[3, 2, 2, 2, 2], DType::F32)?;
/// assert_eq!(conv_transpose3d(&x, &weight, 2, 0, 1, 0, 1)?.shape(), [1, 4, 6, 8, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn conv_transpose3d(
    input: &Array,
    weight: &Array,
    stride: impl Into<Spatial>,
    padding: impl Into<Padding>,
    dilation: impl Into<Spatial>,
    output_padding: impl Into<Spatial>,
    groups: usize,
) -> Result<Array> {
    let options = plain(stride.into(), padding.into(), dilation.into(), groups);
    transposed("conv_transpose3d", 3, input, weight, &options, &output_padding.into())
}

/// Which sums of products [`convolve`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvolveMode {
    /// All that have a product at all.
    Full,
    /// As many as the longer argument has elements.
    Same,
    /// Those to which all of the shorter argument contributes.
    Valid,
}

/// The discrete convolution of two vectors. In MLX: `mx.convolve(a, v, mode="full")`.
///
/// ```
/// use wootz::{Array, ConvolveMode, convolve};
/// let (a, v) = (Array::new([1.0f32, 2.0, 3.0])?, Array::new([0.0f32, 1.0, 0.5])?);
/// let y = convolve(&a, &v, ConvolveMode::Full)?;
/// assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0, 2.5, 4.0, 1.5]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn convolve(a: &Array, v: &Array, mode: ConvolveMode) -> Result<Array> {
    for (name, array) in [("a", a), ("v", v)] {
        if array.rank() != 1 || array.size() == 0 {
            let expected = "one axis with at least one element";
            return Err(Error::shape("convolve", name, expected, array.shape()));
        }
    }
    let (input, window) = if a.size() < v.size() { (v, a) } else { (a, v) };
    let length = window.size() as i64;
    let padding = match mode {
        ConvolveMode::Full => Padding::from(length - 1),
        ConvolveMode::Same => Padding::sides(&[length / 2], &[(length - 1) / 2]),
        ConvolveMode::Valid => Padding::from(0),
    };
    let line = |x: &Array| reshape(x, &[1, x.size(), 1]);
    let options = ConvOptions { padding, flip: true, ..ConvOptions::default() };
    let y = convolution("convolve", Some(1), &line(input)?, &line(window)?, &options)?;
    reshape(&y, &[y.size()])
}

fn plain(stride: Spatial, padding: Padding, dilation: Spatial, groups: usize) -> ConvOptions {
    ConvOptions { stride, padding, kernel_dilation: dilation, groups, ..ConvOptions::default() }
}

/// A transposed convolution: the steps become distances between the input's elements.
fn transposed(
    op: &'static str,
    rank: usize,
    input: &Array,
    weight: &Array,
    options: &ConvOptions,
    output_padding: &Spatial,
) -> Result<Array> {
    check_ranks(op, Some(rank), input, weight)?;
    let stride = options.stride.each(op, "stride", rank)?;
    if stride.contains(&0) {
        return Err(Error::argument(op, "stride", "positive numbers", format!("{stride:?}")));
    }
    let dilation = options.kernel_dilation.each(op, "dilation", rank)?;
    let more = output_padding.each(op, "output_padding", rank)?;
    let (mut low, mut high) = (Vec::new(), Vec::new());
    for (axis, (before, behind)) in options.padding.each(op, rank)?.into_iter().enumerate() {
        let reach = weight.shape()[axis + 1].saturating_sub(1).saturating_mul(dilation[axis]);
        low.push((reach as i64).saturating_sub(before));
        high.push((reach as i64).saturating_sub(behind).saturating_add_unsigned(more[axis] as u64));
    }
    let options = ConvOptions {
        stride: Spatial::from(1),
        padding: Padding::sides(&low, &high),
        kernel_dilation: options.kernel_dilation.clone(),
        input_dilation: options.stride.clone(),
        groups: options.groups,
        flip: true,
    };
    convolution(op, Some(rank), input, weight, &options)
}

/// The number of spatial axes, if it is what was asked for.
fn check_ranks(
    op: &'static str,
    rank: Option<usize>,
    input: &Array,
    weight: &Array,
) -> Result<usize> {
    let (least, most) = rank.map_or((1, 3), |rank| (rank, rank));
    let axes = input.rank();
    if axes < least + 2 || axes > most + 2 {
        let expected = match rank {
            Some(rank) => format!("[batch, …, channels] with {rank} spatial axes"),
            None => "[batch, …, channels] with one to three spatial axes".to_string(),
        };
        return Err(Error::shape(op, "input", expected, input.shape()));
    }
    if weight.rank() != axes {
        let expected =
            format!("[out_channels, …, channels / groups] with {} spatial axes", axes - 2);
        return Err(Error::shape(op, "weight", expected, weight.shape()));
    }
    Ok(axes - 2)
}

/// Checks the channels of both, and that the input is of floats; tells their common dtype. As in MLX, the
/// weight may be of integers.
fn check_channels(op: &'static str, input: &Array, weight: &Array, groups: usize) -> Result<DType> {
    if !input.dtype().is_float() {
        return Err(Error::dtype(op, "input", "a floating-point type", input.dtype()));
    }
    if weight.dtype().is_complex() {
        return Err(Error::dtype(op, "weight", "a real type", weight.dtype()));
    }
    let channels = input.shape()[input.rank() - 1];
    let (outputs, own) = (weight.shape()[0], weight.shape()[weight.rank() - 1]);
    if groups == 0 || !channels.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
        let expected = format!("a divisor of the {channels} channels and of the {outputs} outputs");
        return Err(Error::argument(op, "groups", expected, groups));
    }
    if own != channels / groups {
        let expected =
            format!("{} channels last, as {channels} in {groups} groups are", channels / groups);
        return Err(Error::shape(op, "weight", expected, weight.shape()));
    }
    Ok(DType::promote(input.dtype(), weight.dtype()))
}

/// Any convolution, in the name of `op`, which may ask for a number of spatial axes.
fn convolution(
    op: &'static str,
    rank: Option<usize>,
    input: &Array,
    weight: &Array,
    options: &ConvOptions,
) -> Result<Array> {
    let rank = check_ranks(op, rank, input, weight)?;
    let dtype = check_channels(op, input, weight, options.groups)?;
    let stride = options.stride.each(op, "stride", rank)?;
    let dilation = if op == "conv_general" { "kernel_dilation" } else { "dilation" };
    let kernel_dilation = options.kernel_dilation.each(op, dilation, rank)?;
    let input_dilation = options.input_dilation.each(op, "input_dilation", rank)?;
    for (name, numbers) in
        [("stride", &stride), (dilation, &kernel_dilation), ("input_dilation", &input_dilation)]
    {
        if numbers.contains(&0) {
            return Err(Error::argument(op, name, "positive numbers", format!("{numbers:?}")));
        }
    }
    let padding = options.padding.each(op, rank)?;
    let input = cut(input, &padding)?;
    let mut output = Vec::with_capacity(rank);
    for axis in 0..rank {
        let (length, kernel) = (input.shape()[axis + 1], weight.shape()[axis + 1]);
        let spread = (length as i128 - 1) * input_dilation[axis] as i128 + 1;
        let padded = spread + padding[axis].0.max(0) as i128 + padding[axis].1.max(0) as i128;
        let window = kernel.saturating_sub(1) as i128 * kernel_dilation[axis] as i128 + 1;
        if kernel == 0 || window > padded {
            let expected = format!(
                "a window of at least one and at most {padded} elements along spatial axis {axis}, \
                 which is {length} long and padded by {:?}",
                padding[axis]
            );
            let got = if kernel == 0 { 0 } else { window };
            return Err(Error::argument(op, "weight", expected, got));
        }
        let count = (padded - window) / stride[axis] as i128 + 1;
        // Places are computed in signed words.
        if padded > isize::MAX as i128 / 4 {
            let (argument, got) = ("padding".into(), format!("{:?}", padding[axis]));
            let limit = isize::MAX as u64 / 4;
            return Err(Error::SizeOverflow { op, argument, got, limit });
        }
        output.push(count as usize);
    }
    let low: Vec<isize> = padding.iter().map(|&(low, _)| low.max(0) as isize).collect();
    let window = Window {
        rank,
        stride: three(&stride, 1),
        low: three(&low, 0),
        kernel_dilation: three(&kernel_dilation, 1),
        input_dilation: three(&input_dilation, 1),
        groups: options.groups,
        flip: options.flip,
    };
    let conv = Conv { window, output: three(&output, 1) };
    let (input, weight) = (astype(&input, dtype)?, astype(weight, dtype)?);
    Array::apply(conv, &[&input.contiguous()?, &weight.contiguous()?])
}

/// The input without the elements that negative padding cuts off, before zeros come between them.
fn cut(input: &Array, padding: &[(i64, i64)]) -> Result<Array> {
    if padding.iter().all(|&(low, high)| low >= 0 && high >= 0) {
        return Ok(input.clone());
    }
    let mut start = vec![0; input.rank()];
    let mut stop = input.shape().to_vec();
    for (axis, &(low, high)) in padding.iter().enumerate() {
        let length = stop[axis + 1];
        let less = |side: i64| usize::try_from(side.min(0).unsigned_abs()).unwrap_or(length);
        start[axis + 1] = less(low).min(length);
        stop[axis + 1] = length.saturating_sub(less(high)).max(start[axis + 1]);
    }
    slice(input, &start, &stop, &vec![1; input.rank()])
}
