//! Operations that rearrange elements.

use wootz::{Array, Axes, PadMode, Sections};

use super::{many, one, rows};
use crate::call::{Call, Outcome, Refusal, sayable, unsayable};

rows! {
    "as_strided" => |c| {
        let a = c.array("a")?;
        let shape = if c.has("shape") { c.shape("shape")? } else { a.shape().to_vec() };
        let strides = match c.ints_opt("strides")? {
            Some(strides) => strides.into_iter().map(|stride| stride as isize).collect(),
            None => row_major(&shape),
        };
        c.ignore("shape");
        one(wootz::as_strided(&a, &shape, &strides, c.size("offset")?))
    },
    "atleast_1d" => |c| each(c, wootz::atleast_1d),
    "atleast_2d" => |c| each(c, wootz::atleast_2d),
    "atleast_3d" => |c| each(c, wootz::atleast_3d),
    "broadcast_arrays" => |c| many(wootz::broadcast_arrays(&c.arrays("arrays")?)),
    "broadcast_to" => |c| one(wootz::broadcast_to(&c.array("a")?, &c.shape("shape")?)),
    "concatenate" => |c| one(wootz::concatenate(&c.arrays("arrays")?, c.axes("axis")?)),
    "contiguous" => |c| {
        // A permission, not a wish.
        c.ignore("allow_col_major");
        one(wootz::contiguous(&c.array("a")?))
    },
    "expand_dims" => |c| one(wootz::expand_dims(&c.array("a")?, c.axes("axis")?)),
    "flatten" => |c| {
        one(wootz::flatten(&c.array("a")?, c.int("start_axis")?, c.int("end_axis")?))
    },
    "flip" => |c| one(wootz::flip(&c.array("a")?, c.axes("axis")?)),
    "matrix_transpose" => |c| one(wootz::swapaxes(&c.array("a")?, -1, -2)),
    "moveaxis" => |c| {
        one(wootz::moveaxis(&c.array("a")?, c.int("source")?, c.int("destination")?))
    },
    "pad" => |c| {
        let mode = match c.word("mode")? {
            "constant" => PadMode::Constant,
            "edge" => PadMode::Edge,
            "reflect" => PadMode::Reflect,
            "symmetric" => PadMode::Symmetric,
            other => return unsayable("mode", other),
        };
        let width = wootz::PadWidth::Each(pairs(c, "pad_width")?);
        one(wootz::pad(&c.array("a")?, width, mode, c.arg("constant_values")?))
    },
    "repeat" => |c| {
        one(wootz::repeat(&c.array("array")?, c.size("repeats")?, c.axes("axis")?))
    },
    "reshape" => |c| one(wootz::reshape_infer(&c.array("a")?, &c.ints("shape")?)),
    "roll" => |c| {
        let (mut shifts, axes) = (c.ints("shift")?, c.axes("axis")?);
        // Of one axis in a list MLX takes the first shift; without the list all of them add up.
        if let (true, Axes::These(listed)) = (c.is_list("axis"), &axes) {
            shifts.truncate(listed.len());
        }
        one(wootz::roll(&c.array("a")?, &shifts[..], axes))
    },
    "split" => |c| {
        let sections = match c.is_list("indices_or_sections") {
            true => Sections::At(c.ints("indices_or_sections")?),
            false => Sections::Equal(c.size("indices_or_sections")?),
        };
        many(wootz::split(&c.array("a")?, sections, c.int("axis")?))
    },
    "squeeze" => |c| one(wootz::squeeze(&c.array("a")?, c.axes("axis")?)),
    "stack" => |c| one(wootz::stack(&c.arrays("arrays")?, c.int_opt("axis")?.unwrap_or(0))),
    "swapaxes" => |c| one(wootz::swapaxes(&c.array("a")?, c.int("axis1")?, c.int("axis2")?)),
    "tile" => |c| one(wootz::tile(&c.array("a")?, &c.shape("reps")?)),
    "transpose" => |c| one(match c.axes("axes")? {
        Axes::All => wootz::transpose(&c.array("a")?),
        Axes::These(axes) => wootz::transpose_axes(&c.array("a")?, &axes),
    }),
    "unflatten" => |c| {
        one(wootz::unflatten(&c.array("a")?, c.int("axis")?, &c.ints("shape")?))
    },
    "unstack" => |c| many(wootz::unstack(&c.array("x")?, c.int("axis")?)),
    "view" => |c| one(wootz::view(&c.array("a")?, c.dtype("dtype")?)),
}

fn each(c: &Call<'_>, function: fn(&Array) -> wootz::Result<Array>) -> Outcome {
    many(c.arrays("arys")?.iter().map(function).collect::<wootz::Result<Vec<_>>>())
}

/// A list of pairs of lengths.
fn pairs(c: &Call<'_>, name: &str) -> Result<Vec<(usize, usize)>, Refusal> {
    let unknown = || Refusal::Unknown(format!("no pairs {name}"));
    let items = c.value(name).and_then(|value| value.as_array()).ok_or_else(unknown)?;
    let side = |item: &serde_json::Value, side: usize| -> Result<usize, Refusal> {
        sayable(name, item[side].as_i64().ok_or_else(unknown)?)
    };
    items.iter().map(|item| Ok((side(item, 0)?, side(item, 1)?))).collect()
}

fn row_major(shape: &[usize]) -> Vec<isize> {
    let stride = |axis: usize| shape[axis + 1..].iter().product::<usize>() as isize;
    (0..shape.len()).map(stride).collect()
}
