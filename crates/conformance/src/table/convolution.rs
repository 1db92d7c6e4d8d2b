//! Convolutions, pools, and layers made of them.

use serde_json::Value;
use wootz::nn::{self, Module};
use wootz::{ConvOptions, ConvolveMode, Padding, Spatial};

use super::nn::forward;
use super::{one, rows};
use crate::call::{Call, Outcome, Refusal, unsayable};

rows! {
    "conv1d" => |c| plain(c, wootz::conv1d),
    "conv2d" => |c| plain(c, wootz::conv2d),
    "conv3d" => |c| plain(c, wootz::conv3d),
    "conv_general" => |c| {
        let options = ConvOptions {
            stride: spatial(c, "stride")?,
            padding: padding(c)?,
            kernel_dilation: spatial(c, "kernel_dilation")?,
            input_dilation: spatial(c, "input_dilation")?,
            groups: c.size("groups")?,
            flip: c.flag("flip")?,
        };
        one(wootz::conv_general(&c.array("input")?, &c.array("weight")?, &options))
    },
    "conv_transpose1d" => |c| transposed(c, wootz::conv_transpose1d),
    "conv_transpose2d" => |c| transposed(c, wootz::conv_transpose2d),
    "conv_transpose3d" => |c| transposed(c, wootz::conv_transpose3d),
    "convolve" => |c| {
        let mode = match c.word("mode")? {
            "full" => ConvolveMode::Full,
            "same" => ConvolveMode::Same,
            "valid" => ConvolveMode::Valid,
            other => return unsayable("mode", other),
        };
        one(wootz::convolve(&c.array("a")?, &c.array("v")?, mode))
    },
    otherwise layer
}

/// Layers.
fn layer(op: &str) -> Option<super::Row> {
    Some(match op {
        "nn.Conv2d" => |c| {
            let [from, to] = channels(c)?;
            let layer = nn::Conv2d::new(
                from,
                to,
                spatial(c, "kernel_size")?,
                of_layer(c)?,
                c.flag("bias")?,
            )?;
            forward(c, layer)
        },
        "nn.Conv3d" => |c| {
            let [from, to] = channels(c)?;
            let layer = nn::Conv3d::new(
                from,
                to,
                spatial(c, "kernel_size")?,
                of_layer(c)?,
                c.flag("bias")?,
            )?;
            forward(c, layer)
        },
        "nn.ConvTranspose1d" => |c| {
            let [from, to] = channels(c)?;
            let (kernel, options) = (spatial(c, "kernel_size")?, of_transposed(c)?);
            forward(c, nn::ConvTranspose1d::new(from, to, kernel, options, c.flag("bias")?)?)
        },
        "nn.ConvTranspose2d" => |c| {
            let [from, to] = channels(c)?;
            let (kernel, options) = (spatial(c, "kernel_size")?, of_transposed(c)?);
            forward(c, nn::ConvTranspose2d::new(from, to, kernel, options, c.flag("bias")?)?)
        },
        "nn.ConvTranspose3d" => |c| {
            let [from, to] = channels(c)?;
            let (kernel, options) = (spatial(c, "kernel_size")?, of_transposed(c)?);
            forward(c, nn::ConvTranspose3d::new(from, to, kernel, options, c.flag("bias")?)?)
        },
        "nn.MaxPool1d" => |c| pool(c, nn::MaxPool1d::new),
        "nn.MaxPool2d" => |c| pool(c, nn::MaxPool2d::new),
        "nn.MaxPool3d" => |c| pool(c, nn::MaxPool3d::new),
        "nn.AvgPool1d" => |c| pool(c, nn::AvgPool1d::new),
        "nn.AvgPool2d" => |c| pool(c, nn::AvgPool2d::new),
        "nn.AvgPool3d" => |c| pool(c, nn::AvgPool3d::new),
        "nn.Upsample" => |c| {
            let mode = match c.word("mode")? {
                "nearest" => nn::UpsampleMode::Nearest,
                "linear" => nn::UpsampleMode::Linear,
                "cubic" => nn::UpsampleMode::Cubic,
                other => return unsayable("mode", other),
            };
            let scale = match c.value("scale_factor") {
                Some(Value::Array(each)) => {
                    let each: Option<Vec<f64>> = each.iter().map(Value::as_f64).collect();
                    let each = each.ok_or_else(|| Refusal::Unknown("scale_factor".into()))?;
                    nn::ScaleFactor::Each(each)
                }
                _ => nn::ScaleFactor::All(c.float("scale_factor")?),
            };
            let antialias = c.has("antialias") && c.flag("antialias")?;
            c.ignore("antialias");
            let layer = nn::Upsample::new(scale, mode, c.flag("align_corners")?, antialias)?;
            one(layer.forward(&c.array("x")?))
        },
        _ => return None,
    })
}

fn channels(c: &Call<'_>) -> Result<[usize; 2], Refusal> {
    Ok([c.size("in_channels")?, c.size("out_channels")?])
}

fn of_layer(c: &Call<'_>) -> Result<ConvOptions, Refusal> {
    Ok(ConvOptions {
        stride: spatial(c, "stride")?,
        padding: padding(c)?,
        kernel_dilation: spatial(c, "dilation")?,
        groups: if c.has("groups") { c.size("groups")? } else { 1 },
        ..ConvOptions::default()
    })
}

fn of_transposed(c: &Call<'_>) -> Result<nn::ConvTransposeOptions, Refusal> {
    Ok(nn::ConvTransposeOptions {
        stride: spatial(c, "stride")?,
        padding: padding(c)?,
        dilation: spatial(c, "dilation")?,
        output_padding: spatial(c, "output_padding")?,
    })
}

type Plain = fn(
    &wootz::Array,
    &wootz::Array,
    Spatial,
    Padding,
    Spatial,
    usize,
) -> wootz::Result<wootz::Array>;

fn plain(c: &Call<'_>, conv: Plain) -> Outcome {
    let (stride, dilation) = (spatial(c, "stride")?, spatial(c, "dilation")?);
    let (input, weight) = (c.array("input")?, c.array("weight")?);
    one(conv(&input, &weight, stride, padding(c)?, dilation, c.size("groups")?))
}

type Transposed = fn(
    &wootz::Array,
    &wootz::Array,
    Spatial,
    Padding,
    Spatial,
    Spatial,
    usize,
) -> wootz::Result<wootz::Array>;

fn transposed(c: &Call<'_>, conv: Transposed) -> Outcome {
    let (stride, dilation) = (spatial(c, "stride")?, spatial(c, "dilation")?);
    let (input, weight, more) =
        (c.array("input")?, c.array("weight")?, spatial(c, "output_padding")?);
    one(conv(&input, &weight, stride, padding(c)?, dilation, more, c.size("groups")?))
}

type NewPool<M> = fn(Spatial, Option<Spatial>, Spatial) -> wootz::Result<M>;

fn pool<M: Module>(c: &Call<'_>, new: NewPool<M>) -> Outcome {
    let stride = if c.has("stride") { Some(spatial(c, "stride")?) } else { None };
    c.ignore("stride");
    let layer = new(spatial(c, "kernel_size")?, stride, spatial(c, "padding")?)?;
    one(layer.forward(&c.array("x")?))
}

fn spatial(c: &Call<'_>, name: &str) -> Result<Spatial, Refusal> {
    Ok(Spatial::from(&c.shape(name)?[..]))
}

/// A number, one for each axis, or lists for both sides.
fn padding(c: &Call<'_>) -> Result<Padding, Refusal> {
    let sides = c
        .value("padding")
        .and_then(Value::as_array)
        .filter(|sides| matches!(&sides[..], [Value::Array(_), Value::Array(_)]));
    if let Some(sides) = sides {
        let lists: [Vec<i64>; 2] = serde_json::from_value(Value::Array(sides.clone()))
            .map_err(|error| Refusal::Unknown(format!("padding: {error}")))?;
        return Ok(Padding::sides(&lists[0], &lists[1]));
    }
    let each = c.ints("padding")?;
    Ok(Padding::sides(&each, &each))
}
