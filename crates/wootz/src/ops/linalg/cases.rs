//! Cases of linear algebra. Arguments are made well conditioned first, whatever the harness draws and
//! however it lays it out.

use super::parts::{identity, product, t};
use super::*;
use crate::array::{Array, DType};
use crate::error::Result;
use crate::op::{Case, Entry, Gradient, Tolerance};
use crate::ops::{add, astype, imag, matmul, multiply, real};

const SINGLE: &[DType] = &[DType::F32];

const SEVERAL: Tolerance =
    Tolerance::Because(16.0, "errors grow with the condition of the matrices");

pub(crate) fn entries() -> Vec<Entry> {
    let one = |name, cases: Vec<Case>| Entry { name, cases };
    vec![
        one(
            "linalg.cholesky",
            vec![
                case("lower", &[&[2, 3, 3]], |x| Ok(vec![cholesky(&positive(&x[0])?, false)?])),
                case("upper", &[&[4, 4]], |x| Ok(vec![cholesky(&positive(&x[0])?, true)?])),
            ],
        ),
        one(
            "linalg.cholesky_inv",
            vec![
                case("lower", &[&[2, 3, 3]], |x| Ok(vec![cholesky_inv(&dominant(&x[0])?, false)?])),
                case("upper", &[&[3, 3]], |x| Ok(vec![cholesky_inv(&dominant(&x[0])?, true)?])),
            ],
        ),
        one(
            "linalg.cross",
            vec![
                case("three", &[&[4, 3], &[3]], |x| Ok(vec![cross(&x[0], &x[1], -1)?])),
                case("two and three", &[&[2, 4], &[3, 4]], |x| Ok(vec![cross(&x[0], &x[1], 0)?])),
                case("two", &[&[5, 2], &[5, 2]], |x| Ok(vec![cross(&x[0], &x[1], 1)?])),
            ],
        ),
        one(
            "linalg.det",
            vec![
                case("of one row", &[&[1, 1]], |x| Ok(vec![det(&x[0])?])),
                case("of two rows", &[&[3, 2, 2]], |x| Ok(vec![det(&dominant(&x[0])?)?])),
                case("of three rows", &[&[2, 3, 3]], |x| Ok(vec![det(&dominant(&x[0])?)?])),
                case("of four rows", &[&[4, 4]], |x| Ok(vec![det(&dominant(&x[0])?)?])),
            ],
        ),
        one(
            "linalg.eig",
            vec![
                case("batch", &[&[2, 3, 3]], |x| {
                    let (w, v) = eig(&apart(&x[0])?)?;
                    Ok(vec![real(&w)?, imag(&w)?, real(&v)?, imag(&v)?])
                })
                .gradient(Gradient::None),
            ],
        ),
        one(
            "linalg.eigvals",
            vec![
                case("one", &[&[4, 4]], |x| Ok(vec![real(eigvals(&apart(&x[0])?)?)?]))
                    .gradient(Gradient::None),
            ],
        ),
        one(
            "linalg.eigh",
            vec![
                case("lower", &[&[2, 4, 4]], |x| factors_of_eigh(&x[0], Triangle::Lower)),
                case("upper", &[&[3, 3]], |x| factors_of_eigh(&x[0], Triangle::Upper)),
            ],
        ),
        one(
            "linalg.eigvalsh",
            vec![case("lower", &[&[2, 4, 4]], |x| {
                Ok(vec![eigvalsh(&apart(&symmetric(&x[0])?)?, Triangle::Lower)?])
            })],
        ),
        one(
            "linalg.inv",
            vec![
                case("batch", &[&[2, 3, 3]], |x| Ok(vec![inv(&dominant(&x[0])?)?])),
                case("one row", &[&[1, 1]], |x| Ok(vec![inv(&dominant(&x[0])?)?])),
                case("nothing", &[&[0, 2, 2]], |x| Ok(vec![inv(&x[0])?])),
            ],
        ),
        one(
            "linalg.lu",
            vec![
                case("square", &[&[2, 3, 3]], factors_of_lu),
                case("tall", &[&[5, 3]], factors_of_lu),
                case("wide", &[&[3, 5]], factors_of_lu),
            ],
        ),
        one(
            "linalg.lu_factor",
            vec![case("square", &[&[2, 4, 4]], |x| {
                let (lu, pivots) = lu_factor(&dominant(&x[0])?)?;
                Ok(vec![lu, pivots])
            })],
        ),
        one("linalg.norm", norm_cases()),
        one(
            "linalg.pinv",
            vec![
                case("tall", &[&[2, 4, 3]], |x| Ok(vec![pinv(&dominant(&x[0])?)?])),
                case("wide", &[&[2, 3]], |x| Ok(vec![pinv(&dominant(&x[0])?)?])),
                case("rank 2", &[&[4, 2], &[2, 3]], |x| {
                    let (a, b) = (dominant(&x[0])?, dominant(&x[1])?);
                    Ok(vec![pinv(&matmul(&a, &b)?)?])
                }),
            ],
        ),
        one(
            "linalg.qr",
            vec![
                case("square", &[&[2, 3, 3]], factors_of_qr),
                case("tall", &[&[5, 3]], factors_of_qr),
                case("wide", &[&[3, 5]], factors_of_qr),
            ],
        ),
        one(
            "linalg.slogdet",
            vec![case("batch", &[&[2, 4, 4]], |x| {
                let (sign, logarithm) = slogdet(&dominant(&x[0])?)?;
                Ok(vec![sign, logarithm])
            })],
        ),
        one(
            "linalg.solve",
            vec![
                case("matrices", &[&[2, 3, 3], &[3, 2]], |x| {
                    Ok(vec![solve(&dominant(&x[0])?, &x[1])?])
                }),
                case("vector", &[&[4, 4], &[4]], |x| Ok(vec![solve(&dominant(&x[0])?, &x[1])?])),
            ],
        ),
        one(
            "linalg.solve_triangular",
            vec![
                case("lower", &[&[3, 3], &[2, 3, 2]], |x| {
                    Ok(vec![solve_triangular(&dominant(&x[0])?, &x[1], false)?])
                }),
                case("upper", &[&[4, 4], &[4]], |x| {
                    Ok(vec![solve_triangular(&dominant(&x[0])?, &x[1], true)?])
                }),
            ],
        ),
        one(
            "linalg.svd",
            vec![
                case("square", &[&[2, 3, 3]], |x| factors_of_svd(&x[0], 3)),
                case("tall", &[&[5, 3]], |x| factors_of_svd(&x[0], 3)),
                case("wide", &[&[2, 4]], |x| factors_of_svd(&x[0], 2)),
            ],
        ),
        one(
            "linalg.svdvals",
            vec![case("tall", &[&[2, 4, 3]], |x| Ok(vec![svdvals(&apart(&x[0])?)?]))],
        ),
        one(
            "linalg.tri_inv",
            vec![
                case("lower", &[&[2, 3, 3]], |x| Ok(vec![tri_inv(&dominant(&x[0])?, false)?])),
                case("upper", &[&[4, 4]], |x| Ok(vec![tri_inv(&dominant(&x[0])?, true)?])),
            ],
        ),
        one(
            // What is drawn is drawn in single precision.
            "random.multivariate_normal",
            vec![
                case("batch", &[&[2, 3], &[3, 3]], |x| {
                    let key = crate::device::with_device(x[0].device(), || crate::random::key(7))?;
                    let covariance = positive(&x[1])?;
                    Ok(vec![crate::random::multivariate_normal(
                        &x[0],
                        &covariance,
                        &[4, 2],
                        Some(&key),
                    )?])
                })
                .gradient(Gradient::Single),
            ],
        ),
    ]
}

fn norm_cases() -> Vec<Case> {
    let matrix = |label, ord: NormOrder| {
        case(label, &[&[2, 3, 4]], move |x| Ok(vec![norm(&apart(&x[0])?, ord, [1, 2], true)?]))
    };
    let vector = |label, ord: NormOrder| {
        case(label, &[&[3, 4]], move |x| Ok(vec![norm(&x[0], ord, 0, false)?]))
    };
    vec![
        case("all", &[&[3, 4]], |x| Ok(vec![norm(&x[0], (), (), false)?])),
        vector("3", NormOrder::P(3.0)),
        vector("1", NormOrder::P(1.0)),
        vector("infinity", NormOrder::P(f64::INFINITY)),
        vector("0", NormOrder::P(0.0)).gradient(Gradient::Zero),
        matrix("of matrices", NormOrder::Default),
        matrix("1 of matrices", NormOrder::P(1.0)),
        matrix("-infinity of matrices", NormOrder::P(f64::NEG_INFINITY)),
        matrix("2 of matrices", NormOrder::P(2.0)),
        matrix("-2 of matrices", NormOrder::P(-2.0)),
        matrix("nuclear", NormOrder::Nuclear),
        matrix("Frobenius", NormOrder::Frobenius),
    ]
}

fn case(
    label: &str,
    shapes: &[&[usize]],
    call: impl Fn(&[Array]) -> Result<Vec<Array>> + Send + Sync + 'static,
) -> Case {
    Case::new(label, shapes, call).dtypes(SINGLE).tolerance(SEVERAL)
}

/// Numbers on the diagonal of matrices that outweigh what is beside them, and differ.
fn apart(x: &Array) -> Result<Array> {
    let (rows, columns) = (x.shape()[x.rank() - 2], x.shape()[x.rank() - 1]);
    let numbers = crate::device::with_device(x.device(), || {
        let ones = crate::ops::eye(rows, columns, 0, DType::F32)?;
        let numbers = crate::ops::arange(3, 3 * (columns as i64 + 1), 3, DType::F32)?;
        multiply(ones, numbers)
    })?;
    add(multiply(x, 0.3)?, astype(&numbers, x.dtype())?)
}

fn dominant(x: &Array) -> Result<Array> {
    apart(x)
}

fn symmetric(x: &Array) -> Result<Array> {
    multiply(add(x, t(x)?)?, 0.5)
}

fn positive(x: &Array) -> Result<Array> {
    let n = x.shape()[x.rank() - 1];
    add(matmul(x, &t(x)?)?, identity(n, x)?)
}

/// The eigenvalues, the eigenvectors, and their product.
fn factors_of_eigh(x: &Array, triangle: Triangle) -> Result<Vec<Array>> {
    let a = apart(&symmetric(x)?)?;
    let (w, v) = eigh(&a, triangle)?;
    let product = matmul(&multiply(&v, w.expand_dims(-2)?)?, &t(&v)?)?;
    Ok(vec![w, v, product])
}

fn factors_of_lu(x: &[Array]) -> Result<Vec<Array>> {
    let (p, l, u) = lu(&dominant(&x[0])?)?;
    Ok(vec![p, l, u])
}

fn factors_of_qr(x: &[Array]) -> Result<Vec<Array>> {
    let (q, r) = qr(&dominant(&x[0])?)?;
    Ok(vec![q, r])
}

/// The singular values, vectors that belong to one, and the product.
fn factors_of_svd(x: &Array, count: usize) -> Result<Vec<Array>> {
    let (u, s, vt) = svd(&apart(x)?)?;
    let (u, vt) = (super::parts::range(&u, 1, 0, count)?, super::parts::range(&vt, 2, 0, count)?);
    let product = product([&multiply(&u, s.expand_dims(-2)?)?, &vt])?;
    Ok(vec![u, s, vt, product])
}
