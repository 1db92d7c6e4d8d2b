//! Reading and updating by index.

use wootz::{At, Index, Slice};

use super::{one, rows};
use crate::call::{Call, Refusal, Subscript};

rows! {
    "at_add" => |c| one(at(c)?.add(c.arg("value")?)),
    "at_divide" => |c| one(at(c)?.divide(c.arg("value")?)),
    "at_maximum" => |c| one(at(c)?.maximum(c.arg("value")?)),
    "at_minimum" => |c| one(at(c)?.minimum(c.arg("value")?)),
    "at_multiply" => |c| one(at(c)?.multiply(c.arg("value")?)),
    "at_subtract" => |c| one(at(c)?.subtract(c.arg("value")?)),
    "getitem" => |c| one(c.array("a")?.index(index(c))),
    "put_along_axis" => |c| one(wootz::put_along_axis(
        &c.array("a")?,
        &c.array("indices")?,
        c.arg("values")?,
        c.int_opt("axis")?,
    )),
    "setitem" => |c| one(at(c)?.set(c.arg("value")?)),
    "slice" => |c| one(wootz::slice_dynamic(
        &c.array("a")?,
        &c.array("start_indices")?,
        &c.ints("axes")?,
        &c.shape("slice_size")?,
    )),
    "slice_update" => |c| one(wootz::slice_update_dynamic(
        &c.array("a")?,
        &c.array("update")?,
        &c.array("start_indices")?,
        &c.ints("axes")?,
    )),
    "take" => |c| one(wootz::take(&c.array("a")?, c.arg("indices")?, c.int_opt("axis")?)),
    "take_along_axis" => |c| {
        one(wootz::take_along_axis(&c.array("a")?, &c.array("indices")?, c.int_opt("axis")?))
    },
}

fn at(c: &Call<'_>) -> Result<At, Refusal> {
    Ok(c.array("a")?.at(index(c)))
}

fn index(c: &Call<'_>) -> Vec<Index> {
    let item = |item: &Subscript| match item {
        Subscript::Int(index) => Index::Int(*index),
        Subscript::Slice(start, stop, step) => Index::Slice(Slice::new(*start, *stop, *step)),
        Subscript::NewAxis => Index::NewAxis,
        Subscript::Ellipsis => Index::Ellipsis,
        Subscript::Array(array) => Index::Array(array.clone()),
    };
    c.index().iter().map(item).collect()
}
