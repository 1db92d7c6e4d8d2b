//! Arrays made of nothing but numbers.

use wootz::{Arg, DType};

use super::{many, one, rows};
use crate::call::{Call, Refusal, unsayable};

rows! {
    "arange" => |c| one(wootz::arange(
        c.scalar("start")?,
        c.scalar("stop")?,
        c.scalar("step")?,
        c.dtype_opt("dtype")?,
    )),
    "bartlett" => |c| one(wootz::bartlett(points(c)?)),
    "blackman" => |c| one(wootz::blackman(points(c)?)),
    "diag" => |c| one(wootz::diag(&c.array("a")?, c.int("k")?)),
    "diagonal" => |c| one(wootz::diagonal(
        &c.array("a")?,
        c.int("offset")?,
        c.int("axis1")?,
        c.int("axis2")?,
    )),
    "eye" => |c| {
        let n = c.size("n")?;
        let m = if c.has("m") { c.size("m")? } else { n };
        c.ignore("m");
        one(wootz::eye(n, m, c.int("k")?, c.dtype_or("dtype", DType::F32)?))
    },
    "full" => |c| {
        let value = c.arg("vals")?;
        let own = match &value {
            Arg::Array(array) => array.dtype(),
            Arg::Scalar(scalar) => scalar.default_dtype(),
        };
        one(wootz::full(&c.shape("shape")?, value, c.dtype_opt("dtype")?.unwrap_or(own)))
    },
    "full_like" => |c| {
        let (a, value) = (c.array("a")?, c.arg("vals")?);
        one(match c.dtype_opt("dtype")? {
            None => wootz::full_like(&a, value),
            Some(dtype) => wootz::full(a.shape(), value, dtype),
        })
    },
    "hamming" => |c| one(wootz::hamming(points(c)?)),
    "hanning" => |c| one(wootz::hanning(points(c)?)),
    "identity" => |c| one(wootz::identity(c.size("n")?, c.dtype_or("dtype", DType::F32)?)),
    "linspace" => |c| one(wootz::linspace(
        c.float("start")?,
        c.float("stop")?,
        c.size("num")?,
        c.flag("endpoint")?,
        c.dtype_or("dtype", DType::F32)?,
    )),
    "meshgrid" => |c| {
        let indexing = match c.word("indexing")? {
            "xy" => wootz::GridIndexing::Xy,
            "ij" => wootz::GridIndexing::Ij,
            other => return unsayable("indexing", other),
        };
        many(wootz::meshgrid(&c.arrays("arrays")?, c.flag("sparse")?, indexing))
    },
    "ones" => |c| one(wootz::full(&c.shape("shape")?, 1, c.dtype_or("dtype", DType::F32)?)),
    "ones_like" => |c| {
        let a = c.array("a")?;
        one(match c.dtype_opt("dtype")? {
            None => wootz::ones_like(&a),
            Some(dtype) => wootz::full(a.shape(), 1, dtype),
        })
    },
    "tri" => |c| {
        let n = c.size("n")?;
        let m = if c.has("m") { c.size("m")? } else { n };
        c.ignore("m");
        one(wootz::tri(n, m, c.int("k")?, c.dtype_opt("dtype")?.unwrap_or(DType::F32)))
    },
    "tril" => |c| one(wootz::tril(&c.array("x")?, c.int("k")?)),
    "triu" => |c| one(wootz::triu(&c.array("x")?, c.int("k")?)),
    "zeros" => |c| one(wootz::full(&c.shape("shape")?, 0, c.dtype_or("dtype", DType::F32)?)),
    "zeros_like" => |c| {
        let a = c.array("a")?;
        one(match c.dtype_opt("dtype")? {
            None => wootz::zeros_like(&a),
            Some(dtype) => wootz::full(a.shape(), 0, dtype),
        })
    },
}

/// The points of a window. In MLX a negative number of them is none.
fn points(c: &Call<'_>) -> Result<usize, Refusal> {
    Ok(usize::try_from(c.int("M")?).unwrap_or(0))
}
