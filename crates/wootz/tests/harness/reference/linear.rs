//! Products of matrices and vectors.

use wootz::op::Tolerance;
use wootz::{
    Array, DType, GatherMmBackward, addmm, gather_mm, hadamard_transform, inner, matmul, outer,
    tensordot,
};

use super::Known;
use super::tensor::{Tensor, broadcast};

pub(crate) fn cases() -> Vec<Known> {
    let cases = vec![
        Known::new(
            "matmul",
            &[&[7, 33], &[33, 5]],
            |x| matmul(&x[0], &x[1]),
            |x| product(&x[0], &x[1]),
        )
        .label("matrices"),
        Known::new(
            "matmul",
            &[&[2, 1, 3, 4], &[5, 4, 6]],
            |x| matmul(&x[0], &x[1]),
            |x| product(&x[0], &x[1]),
        )
        .label("batches"),
        Known::new(
            "matmul",
            &[&[65, 130], &[130, 67]],
            |x| matmul(&x[0], &x[1]),
            |x| product(&x[0], &x[1]),
        )
        .label("more than a tile"),
        Known::new(
            "matmul",
            &[&[1, 70], &[70, 9]],
            |x| matmul(&x[0], &x[1]),
            |x| product(&x[0], &x[1]),
        )
        .label("one row"),
        Known::new(
            "addmm",
            &[&[5], &[3, 4], &[4, 5]],
            |x| addmm(&x[0], &x[1], &x[2], 0.5, 2.0),
            |x| {
                let ab = product(&x[1], &x[2]);
                Tensor::from_fn(&[3, 5], |i| 0.5 * ab.at(i) + 2.0 * x[0].broadcast_at(i))
            },
        ),
        Known::new(
            "inner",
            &[&[2, 4], &[3, 4]],
            |x| inner(&x[0], &x[1]),
            |x| {
                Tensor::from_fn(&[2, 3], |i| {
                    (0..4).map(|k| x[0].at(&[i[0], k]) * x[1].at(&[i[1], k])).sum()
                })
            },
        ),
        Known::new(
            "outer",
            &[&[3], &[4]],
            |x| outer(&x[0], &x[1]),
            |x| Tensor::from_fn(&[3, 4], |i| x[0].at(&i[..1]) * x[1].at(&i[1..])),
        ),
        Known::new(
            "tensordot",
            &[&[2, 3, 4], &[3, 4, 5]],
            |x| tensordot(&x[0], &x[1], 2),
            |x| {
                Tensor::from_fn(&[2, 5], |i| {
                    let terms = (0..12).map(|k| (k / 4, k % 4));
                    terms.map(|(j, k)| x[0].at(&[i[0], j, k]) * x[1].at(&[j, k, i[1]])).sum()
                })
            },
        ),
        Known::new(
            "gather_mm",
            &[&[2, 3, 2, 5], &[4, 5, 7], &[9, 1], &[2]],
            |x| gather_mm(&x[0], &x[1], Some(&x[2]), Some(&x[3]), false),
            |x| {
                Tensor::from_fn(&[9, 2, 2, 7], |i| {
                    let left = x[2].at(&[i[0], 0]) as usize;
                    let right = x[3].at(&[i[1]]) as usize;
                    let term =
                        |k| x[0].at(&[left / 3, left % 3, i[2], k]) * x[1].at(&[right, k, i[3]]);
                    (0..5).map(term).sum()
                })
            },
        )
        .with(|case| case.fixed(2, DType::U32, 0.0..6.0).fixed(3, DType::U8, 0.0..4.0)),
        Known::new(
            "gather_mm_backward",
            &[&[2, 3, 5], &[9, 3, 7], &[9], &[9]],
            |x| {
                let [left, right] = [x[2].contiguous()?, x[3].contiguous()?];
                let op = GatherMmBackward::new(4, true);
                Array::apply(op, &[&x[0], &x[1], &left, &right])
            },
            |x| {
                Tensor::from_fn(&[4, 7, 5], |i| {
                    let of = (0..9).filter(|&j| x[3].at(&[j]) as usize == i[0]);
                    let terms = of.flat_map(|j| (0..3).map(move |row| (j, row)));
                    let term = |(j, row)| {
                        x[0].at(&[x[2].at(&[j]) as usize, row, i[2]]) * x[1].at(&[j, row, i[1]])
                    };
                    terms.map(term).sum()
                })
            },
        )
        .with(|case| case.fixed(2, DType::I32, 0.0..2.0).fixed(3, DType::I32, 0.0..4.0)),
    ];
    let mut cases: Vec<Known> =
        cases.into_iter().map(|case| case.with(|c| c.tolerance(Tolerance::Contraction))).collect();
    cases.push(transform());
    cases
}

/// A minus where both indices have an odd number of bits in common.
fn transform() -> Known {
    Known::new(
        "hadamard_transform",
        &[&[3, 64]],
        |x| hadamard_transform(&x[0], 0.125),
        |x| {
            let sign = |i: usize, j: usize| 1.0 - 2.0 * f64::from((i & j).count_ones() % 2);
            let term = |i: &[usize], j: usize| 0.125 * sign(i[1], j) * x[0].at(&[i[0], j]);
            Tensor::from_fn(&[3, 64], |i| (0..64).map(|j| term(i, j)).sum())
        },
    )
    .with(|case| case.tolerance(Tolerance::Reduction))
}

/// `a · b` over the last two axes, the others broadcast.
fn product(a: &Tensor, b: &Tensor) -> Tensor {
    let (ar, br) = (a.shape.len() - 2, b.shape.len() - 2);
    let mut shape = broadcast(&a.shape[..ar], &b.shape[..br]);
    let batch = shape.len();
    let (rows, middle, columns) = (a.shape[ar], a.shape[ar + 1], b.shape[br + 1]);
    shape.extend([rows, columns]);
    Tensor::from_fn(&shape, |i| {
        let term = |k: usize| {
            let (mut at_a, mut at_b) = (i[..batch].to_vec(), i[..batch].to_vec());
            at_a.extend([i[batch], k]);
            at_b.extend([k, i[batch + 1]]);
            a.broadcast_at(&at_a) * b.broadcast_at(&at_b)
        };
        (0..middle).map(term).sum()
    })
}
