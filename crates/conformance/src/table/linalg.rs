//! Linear algebra.

use wootz::linalg::{self, NormOrder, Triangle};

use super::{many, one, rows};
use crate::call::{Call, Refusal, unsayable};

rows! {
    "linalg.cholesky" => |c| one(linalg::cholesky(&c.array("a")?, c.flag("upper")?)),
    "linalg.cholesky_inv" => |c| one(linalg::cholesky_inv(&c.array("a")?, c.flag("upper")?)),
    "linalg.cross" => |c| one(linalg::cross(&c.array("a")?, &c.array("b")?, c.int("axis")?)),
    "linalg.det" => |c| one(linalg::det(&c.array("a")?)),
    "linalg.eig" => |c| many(linalg::eig(&c.array("a")?).map(|(w, v)| [w, v])),
    "linalg.eigh" => |c| {
        let pair = linalg::eigh(&c.array("a")?, triangle(c)?);
        many(pair.map(|(w, v)| [w, v]))
    },
    "linalg.eigvals" => |c| one(linalg::eigvals(&c.array("a")?)),
    "linalg.eigvalsh" => |c| one(linalg::eigvalsh(&c.array("a")?, triangle(c)?)),
    "linalg.inv" => |c| one(linalg::inv(&c.array("a")?)),
    "linalg.lu" => |c| many(linalg::lu(&c.array("a")?).map(|(p, l, u)| [p, l, u])),
    "linalg.lu_factor" => |c| {
        many(linalg::lu_factor(&c.array("a")?).map(|(lu, pivots)| [lu, pivots]))
    },
    "linalg.norm" => |c| {
        one(linalg::norm(&c.array("a")?, order(c)?, c.axes("axis")?, c.flag("keepdims")?))
    },
    "linalg.pinv" => |c| one(linalg::pinv(&c.array("a")?)),
    "linalg.qr" => |c| many(linalg::qr(&c.array("a")?).map(|(q, r)| [q, r])),
    "linalg.slogdet" => |c| {
        many(linalg::slogdet(&c.array("a")?).map(|(sign, logarithm)| [sign, logarithm]))
    },
    "linalg.solve" => |c| one(linalg::solve(&c.array("a")?, &c.array("b")?)),
    "linalg.solve_triangular" => |c| {
        one(linalg::solve_triangular(&c.array("a")?, &c.array("b")?, c.flag("upper")?))
    },
    "linalg.svd" => |c| match c.flag("compute_uv")? {
        true => many(linalg::svd(&c.array("a")?).map(|(u, s, vt)| [u, s, vt])),
        false => one(linalg::svdvals(&c.array("a")?)),
    },
    "linalg.tri_inv" => |c| one(linalg::tri_inv(&c.array("a")?, c.flag("upper")?)),
}

fn triangle(c: &Call<'_>) -> Result<Triangle, Refusal> {
    match c.word("UPLO")? {
        "L" | "l" => Ok(Triangle::Lower),
        "U" | "u" => Ok(Triangle::Upper),
        other => unsayable("UPLO", other),
    }
}

fn order(c: &Call<'_>) -> Result<NormOrder, Refusal> {
    let order = match c.value("ord") {
        None => return Ok(NormOrder::Default),
        Some(order) => order,
    };
    match order.as_str() {
        Some("fro" | "f") => Ok(NormOrder::Frobenius),
        Some("nuc") => Ok(NormOrder::Nuclear),
        Some("inf") => Ok(NormOrder::P(f64::INFINITY)),
        Some("-inf") => Ok(NormOrder::P(f64::NEG_INFINITY)),
        None => Ok(NormOrder::P(c.float("ord")?)),
        Some(other) => unsayable("ord", other),
    }
}
