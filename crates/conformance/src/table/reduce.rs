//! Reductions, and rows that are normalised.

use super::{many, one, rows};

rows! {
    "all" => |c| one(wootz::all(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "allclose" => |c| one(wootz::allclose(
        c.arg("a")?,
        c.arg("b")?,
        c.float("rtol")?,
        c.float("atol")?,
        c.flag("equal_nan")?,
    )),
    "any" => |c| one(wootz::any(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "argmax" => |c| one(wootz::argmax(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "argmin" => |c| one(wootz::argmin(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "array_equal" => |c| {
        one(wootz::array_equal(c.arg("a")?, c.arg("b")?, c.flag("equal_nan")?))
    },
    "count_nonzero" => |c| {
        one(wootz::count_nonzero(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?))
    },
    "diff" => |c| one(wootz::diff(&c.array("a")?, c.size("n")?, c.int("axis")?)),
    "fast.rms_norm" => |c| {
        let weight = c.array_opt("weight")?;
        one(wootz::rms_norm(&c.array("x")?, weight.as_ref(), c.float("eps")? as f32))
    },
    "logsumexp" => |c| {
        one(wootz::logsumexp(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?))
    },
    "max" => |c| one(wootz::max(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "mean" => |c| one(wootz::mean(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "min" => |c| one(wootz::min(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "minmax" => |c| {
        let both = wootz::minmax(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?);
        many(both.map(<[_; 2]>::from))
    },
    "prod" => |c| one(wootz::prod(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "softmax" => |c| {
        // Sums are always accumulated in single precision.
        c.ignore("precise");
        one(wootz::softmax(&c.array("a")?, c.axes("axis")?))
    },
    "std" => |c| one(wootz::std(
        &c.array("a")?,
        c.axes("axis")?,
        c.flag("keepdims")?,
        c.int("ddof")?,
    )),
    "sum" => |c| one(wootz::sum(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "trace" => |c| one(wootz::trace(
        &c.array("a")?,
        c.int("offset")?,
        c.int("axis1")?,
        c.int("axis2")?,
        c.dtype_opt("dtype")?,
    )),
    "var" => |c| one(wootz::var(
        &c.array("a")?,
        c.axes("axis")?,
        c.flag("keepdims")?,
        c.int("ddof")?,
    )),
}
