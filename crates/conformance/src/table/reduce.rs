//! Reductions, and rows that are normalised.

use super::{one, rows};

rows! {
    "all" => |c| one(wootz::all(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "any" => |c| one(wootz::any(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "max" => |c| one(wootz::max(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "min" => |c| one(wootz::min(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "prod" => |c| one(wootz::prod(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "softmax" => |c| {
        // Sums are always accumulated in single precision.
        c.ignore("precise");
        one(wootz::softmax(&c.array("a")?, c.axes("axis")?))
    },
    "sum" => |c| one(wootz::sum(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "trace" => |c| one(wootz::trace(
        &c.array("a")?,
        c.int("offset")?,
        c.int("axis1")?,
        c.int("axis2")?,
        c.dtype_opt("dtype")?,
    )),
}
