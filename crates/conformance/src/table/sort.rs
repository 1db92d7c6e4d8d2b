//! Sorting, searching and scans.

use wootz::{Array, Axes, Side};

use super::{many, one, rows};
use crate::call::{Call, Outcome, unsayable};

rows! {
    "argpartition" => |c| {
        one(wootz::argpartition(&c.array("a")?, c.int("kth")?, c.axes("axis")?))
    },
    "argsort" => |c| one(wootz::argsort(&c.array("a")?, c.axes("axis")?)),
    "cummax" => |c| scan(c, wootz::cummax),
    "cummin" => |c| scan(c, wootz::cummin),
    "cumprod" => |c| typed_scan(c, wootz::cumprod),
    "cumsum" => |c| typed_scan(c, wootz::cumsum),
    "logcumsumexp" => |c| scan(c, wootz::logcumsumexp),
    "median" => |c| one(wootz::median(&c.array("a")?, c.axes("axis")?, c.flag("keepdims")?)),
    "partition" => |c| one(wootz::partition(&c.array("a")?, c.int("kth")?, c.axes("axis")?)),
    "searchsorted" => |c| {
        let side = match c.word("side")? {
            "left" => Side::Left,
            "right" => Side::Right,
            other => return unsayable("side", other),
        };
        one(wootz::searchsorted(&c.array("sorted_sequence")?, &c.array("values")?, side))
    },
    "sort" => |c| one(wootz::sort(&c.array("a")?, c.axes("axis")?)),
    "topk" => |c| one(wootz::topk(&c.array("a")?, c.size("k")?, c.axes("axis")?)),
    "unique" => |c| {
        let found = wootz::unique(&c.array("a")?, c.size("size")?, c.arg_opt("fill_value")?)?;
        let mut results = vec![found.values];
        let extra = [found.index, found.inverse, found.counts];
        for (name, array) in ["return_index", "return_inverse", "return_counts"].iter().zip(extra) {
            if c.flag(name)? {
                results.push(array);
            }
        }
        many(Ok(results))
    },
}

type Scan = fn(&Array, Axes, bool, bool) -> wootz::Result<Array>;

fn scan(c: &Call<'_>, function: Scan) -> Outcome {
    one(function(&c.array("a")?, c.axes("axis")?, c.flag("reverse")?, c.flag("inclusive")?))
}

/// A scan of the array in another dtype, if one is given.
fn typed_scan(c: &Call<'_>, function: Scan) -> Outcome {
    let (a, axis) = (c.array("a")?, c.axes("axis")?);
    let a = c.dtype_opt("dtype")?.map_or(Ok(a.clone()), |dtype| wootz::astype(&a, dtype))?;
    one(function(&a, axis, c.flag("reverse")?, c.flag("inclusive")?))
}
