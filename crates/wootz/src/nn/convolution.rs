//! Convolutions and transposed convolutions as layers, with MLX's names of parameters.

use super::Module;
use super::linear::{filled, uniform};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::ops::{
    ConvOptions, Padding, Spatial, add, conv_general, conv_transpose1d, conv_transpose2d,
    conv_transpose3d, conv1d,
};
use crate::tree::Parameter;

/// How a convolution moves over its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// A convolution over `[batch, length, in_channels]`. In MLX: `nn.Conv1d(4, 8, 3, padding=1)`.
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
    #[wootz(value)]
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
        let group = group_channels("Conv1d", in_channels, options.groups)?;
        let (weight, bias) = parameters(out_channels, &[kernel_size], group, bias)?;
        Ok(Conv1d { weight, bias, options })
    }
}

impl Module for Conv1d {
    fn forward(&self, x: &Array) -> Result<Array> {
        let Conv1dOptions { stride, padding, dilation, groups } = self.options;
        plus(conv1d(x, &self.weight, stride, padding, dilation, groups)?, &self.bias)
    }
}

/// Channels of a group.
fn group_channels(layer: &'static str, in_channels: usize, groups: usize) -> Result<usize> {
    if groups == 0 || !in_channels.is_multiple_of(groups) {
        let expected = format!("a divisor of the {in_channels} input channels");
        return Err(Error::argument(layer, "groups", expected, groups));
    }
    Ok(in_channels / groups)
}

/// Weights `[out_channels, …, channels]`, spread evenly over `±1/√(inputs of one output)`, and biases
/// of 0.
fn parameters(
    out_channels: usize,
    kernel: &[usize],
    channels: usize,
    bias: bool,
) -> Result<(Parameter, Option<Parameter>)> {
    let inputs = kernel.iter().map(|&length| length as f64).product::<f64>() * channels as f64;
    let shape = [&[out_channels], kernel, &[channels]].concat();
    let weight = uniform(&shape, (1.0 / inputs).sqrt())?;
    Ok((weight, bias.then(|| filled(&[out_channels], 0)).transpose()?))
}

fn plus(y: Array, bias: &Option<Parameter>) -> Result<Array> {
    match bias {
        Some(bias) => add(&y, bias),
        None => Ok(y),
    }
}

/// A layer that convolves over two or three axes.
macro_rules! convolution_layer {
    ($(#[$doc:meta])* $name:ident, $rank:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, wootz_macros::Tree)]
        pub struct $name {
            /// `[out_channels, …, in_channels / groups]`.
            pub weight: Parameter,
            /// `[out_channels]`.
            pub bias: Option<Parameter>,
            #[wootz(value)]
            options: ConvOptions,
        }

        impl $name {
            /// Weights spread evenly over `±1/√(inputs of one output)`, biases 0.
            pub fn new(
                in_channels: usize,
                out_channels: usize,
                kernel_size: impl Into<Spatial>,
                options: ConvOptions,
                bias: bool,
            ) -> Result<$name> {
                let kernel = kernel_size.into().each(stringify!($name), "kernel_size", $rank)?;
                let group = group_channels(stringify!($name), in_channels, options.groups)?;
                let (weight, bias) = parameters(out_channels, &kernel, group, bias)?;
                Ok($name { weight, bias, options })
            }
        }

        impl Module for $name {
            fn forward(&self, x: &Array) -> Result<Array> {
                if x.rank() != $rank + 2 {
                    let expected = concat!("[batch, …, channels] with ", $rank, " spatial axes");
                    return Err(Error::shape(stringify!($name), "x", expected, x.shape()));
                }
                plus(conv_general(x, &self.weight, &self.options)?, &self.bias)
            }
        }
    };
}

convolution_layer! {
    /// A convolution over `[batch, height, width, in_channels]`. In MLX:
    /// `nn.Conv2d(3, 8, kernel_size=(3, 5), stride=2)`.
    ///
    /// ```
    /// use wootz::{Array, ConvOptions, DType, nn::{Conv2d, Module}};
    /// let options = ConvOptions { stride: 2.into(), ..Default::default() };
    /// let layer = Conv2d::new(3, 8, (3, 5), options, true)?;
    /// assert_eq!(layer.forward(&Array::ones(&[1, 9, 9, 3], DType::F32)?)?.shape(), [1, 4, 3, 8]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    Conv2d, 2
}

convolution_layer! {
    /// A convolution over `[batch, depth, height, width, in_channels]`. In MLX:
    /// `nn.Conv3d(3, 8, kernel_size=2, padding=1)`.
    ///
    /// ```
    /// use wootz::{Array, ConvOptions, DType, nn::{Conv3d, Module}};
    /// let options = ConvOptions { padding: 1.into(), ..Default::default() };
    /// let layer = Conv3d::new(3, 8, 2, options, true)?;
    /// assert_eq!(
    ///     layer.forward(&Array::ones(&[1, 4, 5, 6, 3], DType::F32)?)?.shape(),
    ///     [1, 5, 6, 7, 8]
    /// );
    /// # Ok::<(), wootz::Error>(())
    /// ```
    Conv3d, 3
}

/// How a transposed convolution moves over its output.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvTransposeOptions {
    /// Steps of the window in the output.
    pub stride: Spatial,
    /// Elements that are cut off on both sides of the output.
    pub padding: Padding,
    /// Distance between the elements of the window.
    pub dilation: Spatial,
    /// Elements more at the output's end.
    pub output_padding: Spatial,
}

impl Default for ConvTransposeOptions {
    /// MLX's: steps of 1, nothing cut off.
    fn default() -> ConvTransposeOptions {
        ConvTransposeOptions {
            stride: Spatial::from(1),
            padding: Padding::from(0),
            dilation: Spatial::from(1),
            output_padding: Spatial::from(0),
        }
    }
}

/// A layer that does the transpose of a convolution.
macro_rules! transposed_layer {
    ($(#[$doc:meta])* $name:ident, $rank:literal, $function:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, wootz_macros::Tree)]
        pub struct $name {
            /// `[out_channels, …, in_channels]`.
            pub weight: Parameter,
            /// `[out_channels]`.
            pub bias: Option<Parameter>,
            #[wootz(value)]
            options: ConvTransposeOptions,
        }

        impl $name {
            /// Weights spread evenly over `±1/√(inputs times window)`, biases 0.
            pub fn new(
                in_channels: usize,
                out_channels: usize,
                kernel_size: impl Into<Spatial>,
                options: ConvTransposeOptions,
                bias: bool,
            ) -> Result<$name> {
                let kernel = kernel_size.into().each(stringify!($name), "kernel_size", $rank)?;
                let (weight, bias) = parameters(out_channels, &kernel, in_channels, bias)?;
                Ok($name { weight, bias, options })
            }
        }

        impl Module for $name {
            fn forward(&self, x: &Array) -> Result<Array> {
                let ConvTransposeOptions { stride, padding, dilation, output_padding } =
                    self.options.clone();
                let y = $function(x, &self.weight, stride, padding, dilation, output_padding, 1)?;
                plus(y, &self.bias)
            }
        }
    };
}

transposed_layer! {
    /// A transposed convolution over `[batch, length, in_channels]`. In MLX:
    /// `nn.ConvTranspose1d(4, 8, 3, stride=2)`.
    ///
    /// ```
    /// use wootz::{Array, DType, nn::{ConvTranspose1d, ConvTransposeOptions, Module}};
    /// let options = ConvTransposeOptions { stride: 2.into(), ..Default::default() };
    /// let layer = ConvTranspose1d::new(4, 8, 3, options, true)?;
    /// assert_eq!(layer.forward(&Array::ones(&[2, 10, 4], DType::F32)?)?.shape(), [2, 21, 8]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    ConvTranspose1d, 1, conv_transpose1d
}

transposed_layer! {
    /// A transposed convolution over `[batch, height, width, in_channels]`. In MLX:
    /// `nn.ConvTranspose2d(4, 8, 2, stride=2)`.
    ///
    /// ```
    /// use wootz::{Array, DType, nn::{ConvTranspose2d, ConvTransposeOptions, Module}};
    /// let options = ConvTransposeOptions { stride: 2.into(), ..Default::default() };
    /// let layer = ConvTranspose2d::new(4, 8, 2, options, true)?;
    /// assert_eq!(layer.forward(&Array::ones(&[1, 5, 6, 4], DType::F32)?)?.shape(), [1, 10, 12, 8]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    ConvTranspose2d, 2, conv_transpose2d
}

transposed_layer! {
    /// A transposed convolution over `[batch, depth, height, width, in_channels]`. In MLX:
    /// `nn.ConvTranspose3d(4, 8, 2)`.
    ///
    /// ```
    /// use wootz::{Array, DType, nn::{ConvTranspose3d, ConvTransposeOptions, Module}};
    /// let layer = ConvTranspose3d::new(4, 8, 2, ConvTransposeOptions::default(), true)?;
    /// let x = Array::ones(&[1, 2, 3, 4, 4], DType::F32)?;
    /// assert_eq!(layer.forward(&x)?.shape(), [1, 3, 4, 5, 8]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    ConvTranspose3d, 3, conv_transpose3d
}
