//! Convolutions along one axis.

use super::Module;
use super::linear::{filled, uniform};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::ops::{PadMode, add, as_strided, matmul, pad, transpose_axes};
use crate::tree::Parameter;

/// How a convolution moves over its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv1dOptions {
    /// Steps of the window.
    pub stride: usize,
    /// Zeros on both sides of the input.
    pub padding: usize,
    /// Distance between the elements of the window.
    pub dilation: usize,
    /// Groups of channels that do not see each other.
    pub groups: usize,
}

impl Default for Conv1dOptions {
    /// MLX's: no padding, one group, steps of 1.
    fn default() -> Conv1dOptions {
        Conv1dOptions { stride: 1, padding: 0, dilation: 1, groups: 1 }
    }
}

/// A convolution over `[batch, length, in_channels]`.
///
/// ```
/// use wootz::{Array, DType, nn::{Conv1d, Conv1dOptions, Module}};
/// let options = Conv1dOptions { padding: 1, ..Default::default() };
/// let layer = Conv1d::new(4, 8, 3, options, true)?;
/// assert_eq!(layer.forward(&Array::ones(&[2, 10, 4], DType::F32)?)?.shape(), [2, 10, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct Conv1d {
    /// `[out_channels, kernel_size, in_channels / groups]`.
    pub weight: Parameter,
    /// `[out_channels]`.
    pub bias: Option<Parameter>,
    #[wootz(skip)]
    options: Conv1dOptions,
}

impl Conv1d {
    /// Weights spread evenly over `±1/√(inputs of one output)`, biases 0.
    pub fn new(
        in_channels: usize,
        out_channels: usize,
        kernel_size: usize,
        options: Conv1dOptions,
        bias: bool,
    ) -> Result<Conv1d> {
        if options.groups == 0 || !in_channels.is_multiple_of(options.groups) {
            let expected = format!("a divisor of the {in_channels} input channels");
            return Err(Error::argument("Conv1d", "groups", expected, options.groups));
        }
        let group = in_channels / options.groups;
        let scale = (1.0 / (group * kernel_size) as f64).sqrt();
        Ok(Conv1d {
            weight: uniform(&[out_channels, kernel_size, group], scale)?,
            bias: bias.then(|| filled(&[out_channels], 0)).transpose()?,
            options,
        })
    }
}

impl Module for Conv1d {
    fn forward(&self, x: &Array) -> Result<Array> {
        let y = conv1d(x, &self.weight, self.options)?;
        self.bias.as_ref().map_or(Ok(y.clone()), |bias| add(&y, bias))
    }
}

/// The convolution of `x`, `[batch, length, channels]`, with `weight`,
/// `[out_channels, kernel_size, channels / groups]`: one matrix product over all windows.
///
/// ```
/// use wootz::{Array, nn::{Conv1dOptions, conv1d}};
/// let x = Array::new([[[1.0f32], [2.0], [4.0]]])?;
/// let weight = Array::new([[[1.0f32], [-1.0]]])?;
/// let y = conv1d(&x, &weight, Conv1dOptions::default())?;
/// assert_eq!(y.to_vec::<f32>()?, [-1.0, -2.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn conv1d(x: &Array, weight: &Array, options: Conv1dOptions) -> Result<Array> {
    const OP: &str = "conv1d";
    let Conv1dOptions { stride, padding, dilation, groups } = options;
    let &[batch, length, channels] = x.shape() else {
        return Err(Error::shape(OP, "x", "[batch, length, channels]", x.shape()));
    };
    let &[out, kernel, group] = weight.shape() else {
        let expected = "[out_channels, kernel_size, channels / groups]";
        return Err(Error::shape(OP, "weight", expected, weight.shape()));
    };
    for (name, value) in [("stride", stride), ("dilation", dilation), ("groups", groups)] {
        if value == 0 {
            return Err(Error::argument(OP, name, "a positive number", value));
        }
    }
    if group * groups != channels || out % groups != 0 {
        let expected = format!("{groups} equal groups of {channels} channels and of the outputs");
        return Err(Error::shape(OP, "weight", expected, weight.shape()));
    }
    let padded = length + 2 * padding;
    let window = (kernel.max(1) - 1) * dilation + 1;
    if kernel == 0 || window > padded {
        let expected = format!("a window of at most {padded} elements");
        return Err(Error::argument(OP, "weight", expected, window));
    }
    let dtype = crate::array::DType::promote(x.dtype(), weight.dtype());
    let (mut x, weight) = (x.astype(dtype)?, weight.astype(dtype)?);
    if padding > 0 {
        x = pad(&x, &[(0, 0), (padding, padding), (0, 0)][..], PadMode::Constant, 0)?;
    }
    let steps = (padded - window) / stride + 1;
    let along = |distance: usize| (distance * channels) as isize;
    let shape = [batch, steps, kernel, groups, group];
    let strides = [along(padded), along(stride), along(dilation), group as isize, 1];
    let windows = as_strided(&x, &shape, &strides, 0)?;
    // Groups first: each is a product of its own.
    let windows = transpose_axes(&windows, &[3, 0, 1, 2, 4])?;
    let windows = windows.reshape(&[groups, batch * steps, kernel * group])?;
    let weight = weight.reshape(&[groups, out / groups, kernel * group])?.swapaxes(1, 2)?;
    let y = matmul(&windows, &weight)?;
    transpose_axes(&y, &[1, 0, 2])?.reshape(&[batch, steps, out])
}
