//! Linear algebra by the textbook: expansion along a row, elimination without exchanges, and what factors
//! make when they are multiplied again.

use wootz::linalg::{self, NormOrder, Triangle};
use wootz::op::{Gradient, Tolerance};
use wootz::{Array, DType, Result};

use super::Known;
use super::tensor::Tensor;

/// Errors grow with the condition of the matrices, which here is small.
const CLOSE: Tolerance = Tolerance::Because(16.0, "errors grow with the condition of the matrices");

pub(crate) fn cases() -> Vec<Known> {
    let square: &[&[usize]] = &[&[3, 3]];
    let known = |op,
                 shapes: &[&[usize]],
                 call: fn(&[Array]) -> Result<Array>,
                 function: fn(&[Tensor]) -> Tensor| {
        Known::new(op, shapes, call, function).with(|c| c.dtypes(&[DType::F32]).tolerance(CLOSE))
    };
    vec![
        known(
            "linalg.inv",
            square,
            |x| linalg::inv(&strong(&x[0])?),
            |x| inverse(&strengthened(&x[0])),
        ),
        known(
            "linalg.tri_inv",
            square,
            |x| linalg::tri_inv(&strong(&x[0])?, true),
            |x| inverse(&upper(&strengthened(&x[0]))),
        ),
        known(
            "linalg.cholesky_inv",
            square,
            |x| linalg::cholesky_inv(&strong(&x[0])?, false),
            |x| {
                let l = transposed(&upper(&transposed(&strengthened(&x[0]))));
                inverse(&times(&l, &transposed(&l)))
            },
        ),
        known(
            "linalg.pinv",
            &[&[4, 3]],
            |x| linalg::pinv(&strong(&x[0])?),
            |x| {
                let a = strengthened(&x[0]);
                times(&inverse(&times(&transposed(&a), &a)), &transposed(&a))
            },
        ),
        known(
            "linalg.solve",
            &[&[3, 3], &[3, 2]],
            |x| linalg::solve(&strong(&x[0])?, &x[1]),
            |x| times(&inverse(&strengthened(&x[0])), &x[1]),
        ),
        known(
            "linalg.solve_triangular",
            &[&[3, 3], &[3, 2]],
            |x| linalg::solve_triangular(&strong(&x[0])?, &x[1], true),
            |x| times(&inverse(&upper(&strengthened(&x[0]))), &x[1]),
        ),
        known(
            "linalg.det",
            &[&[4, 4]],
            |x| linalg::det(&strong(&x[0])?),
            |x| scalar(determinant(&strengthened(&x[0]))),
        ),
        known(
            "linalg.slogdet",
            square,
            |x| Ok(linalg::slogdet(&strong(&x[0])?)?.1),
            |x| scalar(determinant(&strengthened(&x[0])).abs().ln()),
        ),
        known(
            "linalg.cholesky",
            square,
            |x| {
                let l = linalg::cholesky(&strong(&symmetric(&x[0])?)?, false)?;
                l.matmul(&l.transpose()?)
            },
            |x| strengthened(&symmetrized(&x[0])),
        ),
        known(
            "linalg.qr",
            &[&[4, 3]],
            |x| {
                let (q, r) = linalg::qr(&strong(&x[0])?)?;
                wootz::triu(&r, 0).and_then(|r| q.matmul(&r))
            },
            |x| strengthened(&x[0]),
        ),
        known(
            "linalg.svd",
            &[&[3, 3]],
            |x| {
                let (u, s, vt) = linalg::svd(&strong(&x[0])?)?;
                (u * s).matmul(&vt)
            },
            |x| strengthened(&x[0]),
        ),
        known(
            "linalg.svdvals",
            &[&[4, 3]],
            |x| wootz::prod(&linalg::svdvals(&strong(&x[0])?)?.square()?, (), false),
            |x| {
                let a = strengthened(&x[0]);
                scalar(determinant(&times(&transposed(&a), &a)))
            },
        ),
        known(
            "linalg.eig",
            square,
            |x| {
                let (w, v) = linalg::eig(&strong(&x[0])?)?;
                // The lengths of the eigenvectors, and the sum of the eigenvalues.
                let lengths = v.abs()?.square()?.sum(())?;
                wootz::add(wootz::real(w)?.sum(())?, lengths)
            },
            |x| scalar(trace(&strengthened(&x[0])) + 3.0),
        )
        .gradient(Gradient::None),
        known(
            "linalg.eigvals",
            square,
            |x| wootz::real(linalg::eigvals(&strong(&x[0])?)?)?.sum(()),
            |x| scalar(trace(&strengthened(&x[0]))),
        )
        .gradient(Gradient::None),
        known(
            "linalg.eigh",
            square,
            |x| {
                let (w, v) = linalg::eigh(&strong(&symmetric(&x[0])?)?, Triangle::Upper)?;
                (&v * w).matmul(&v.transpose()?)
            },
            |x| strengthened(&symmetrized(&x[0])),
        ),
        known(
            "linalg.eigvalsh",
            square,
            |x| {
                let w = linalg::eigvalsh(&strong(&symmetric(&x[0])?)?, Triangle::Lower)?;
                wootz::prod(&w, (), false)
            },
            |x| scalar(determinant(&strengthened(&symmetrized(&x[0])))),
        ),
        known(
            "linalg.lu",
            &[&[4, 3]],
            |x| {
                let (p, l, u) = linalg::lu(&strong(&x[0])?)?;
                wootz::take(&l.matmul(&u)?, &p, Some(0))
            },
            |x| strengthened(&x[0]),
        ),
        known(
            "linalg.lu_factor",
            square,
            |x| {
                let (lu, _) = linalg::lu_factor(&strong(&x[0])?)?;
                wootz::prod(&wootz::diagonal(&lu, 0, 0, 1)?, (), false)?.abs()
            },
            |x| scalar(determinant(&strengthened(&x[0])).abs()),
        ),
        known(
            "linalg.cross",
            &[&[4, 3], &[4, 3]],
            |x| linalg::cross(&x[0], &x[1], -1),
            |x| {
                Tensor::from_fn(&[4, 3], |i| {
                    let (j, k) = ((i[1] + 1) % 3, (i[1] + 2) % 3);
                    x[0].at(&[i[0], j]) * x[1].at(&[i[0], k])
                        - x[0].at(&[i[0], k]) * x[1].at(&[i[0], j])
                })
            },
        ),
        known(
            "linalg.norm",
            &[&[3, 4]],
            |x| linalg::norm(&x[0], NormOrder::P(3.0), 1, false),
            |x| {
                Tensor::from_fn(&[3], |i| {
                    let sum: f64 = (0..4).map(|j| x[0].at(&[i[0], j]).abs().powi(3)).sum();
                    sum.cbrt()
                })
            },
        ),
    ]
}

/// The argument with 4 added to the diagonal, in wootz and in doubles: a matrix far from singular.
fn strong(x: &Array) -> Result<Array> {
    let (rows, columns) = (x.shape()[0], x.shape()[1]);
    let ones = wootz::with_device(x.device(), || wootz::eye(rows, columns, 0, x.dtype()))?;
    wootz::add(wootz::multiply(x, 0.25)?, wootz::multiply(ones, 4)?)
}

fn strengthened(x: &Tensor) -> Tensor {
    let shape = x.shape.clone();
    Tensor::from_fn(&shape, |i| 0.25 * x.at(i) + if i[0] == i[1] { 4.0 } else { 0.0 })
}

fn symmetric(x: &Array) -> Result<Array> {
    wootz::add(x, x.transpose()?)
}

fn symmetrized(x: &Tensor) -> Tensor {
    Tensor::from_fn(&x.shape, |i| x.at(i) + x.at(&[i[1], i[0]]))
}

fn upper(x: &Tensor) -> Tensor {
    Tensor::from_fn(&x.shape, |i| if i[0] <= i[1] { x.at(i) } else { 0.0 })
}

fn transposed(x: &Tensor) -> Tensor {
    Tensor::from_fn(&[x.shape[1], x.shape[0]], |i| x.at(&[i[1], i[0]]))
}

fn times(a: &Tensor, b: &Tensor) -> Tensor {
    Tensor::from_fn(&[a.shape[0], b.shape[1]], |i| {
        (0..a.shape[1]).map(|k| a.at(&[i[0], k]) * b.at(&[k, i[1]])).sum()
    })
}

fn scalar(value: f64) -> Tensor {
    Tensor { shape: Vec::new(), data: vec![value] }
}

fn trace(a: &Tensor) -> f64 {
    (0..a.shape[0]).map(|i| a.at(&[i, i])).sum()
}

/// The matrix without a row and a column.
fn minor(a: &Tensor, row: usize, column: usize) -> Tensor {
    let n = a.shape[0] - 1;
    Tensor::from_fn(&[n, n], |i| {
        a.at(&[i[0] + usize::from(i[0] >= row), i[1] + usize::from(i[1] >= column)])
    })
}

/// By expansion along the first row.
fn determinant(a: &Tensor) -> f64 {
    let n = a.shape[0];
    if n == 0 {
        return 1.0;
    }
    let sign = |j: usize| if j.is_multiple_of(2) { 1.0 } else { -1.0 };
    (0..n).map(|j| sign(j) * a.at(&[0, j]) * determinant(&minor(a, 0, j))).sum()
}

/// By Cramer's rule.
fn inverse(a: &Tensor) -> Tensor {
    let whole = determinant(a);
    Tensor::from_fn(&a.shape, |i| {
        let sign = if (i[0] + i[1]).is_multiple_of(2) { 1.0 } else { -1.0 };
        sign * determinant(&minor(a, i[1], i[0])) / whole
    })
}
