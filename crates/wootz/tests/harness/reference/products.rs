//! Products made of others, differences, and floats of 8 bits.

use wootz::op::{EVERY, FLOATS, Gradient, Tolerance};
use wootz::{DType, block_masked_mm, diff, einsum, from_fp8, kron, segmented_mm, to_fp8, vecdot};

use super::Known;
use super::tensor::Tensor;

/// Of what is computed in several steps, as in MLX.
const ROUNDED: Tolerance = Tolerance::Rounded(4.0, "steps in between are rounded, as in MLX");

pub(crate) fn cases() -> Vec<Known> {
    let products = [
        Known::new(
            "einsum",
            &[&[2, 3], &[3, 4], &[4, 5, 5]],
            |x| einsum("ij,jk,kll->li", x),
            |x| {
                Tensor::from_fn(&[5, 2], |i| {
                    let terms = (0..12).map(|n| (n / 4, n % 4));
                    let term =
                        |(j, k)| x[0].at(&[i[1], j]) * x[1].at(&[j, k]) * x[2].at(&[k, i[0], i[0]]);
                    terms.map(term).sum()
                })
            },
        ),
        Known::new(
            "kron",
            &[&[2, 3], &[4]],
            |x| kron(&x[0], &x[1]),
            |x| Tensor::from_fn(&[2, 12], |i| x[0].at(&[i[0], i[1] / 4]) * x[1].at(&[i[1] % 4])),
        ),
        Known::new(
            "vecdot",
            &[&[4, 3], &[4, 1]],
            |x| vecdot(&x[0], &x[1], 0),
            |x| {
                let term = |i: &[usize], k| x[0].at(&[k, i[0]]) * x[1].at(&[k, 0]);
                Tensor::from_fn(&[3], |i| (0..4).map(|k| term(i, k)).sum())
            },
        ),
        Known::new(
            "block_masked_mm",
            &[&[5, 7], &[7, 6], &[3, 2], &[2, 2]],
            |x| block_masked_mm(&x[0], &x[1], 3, Some(&x[3]), None, Some(&x[2])),
            |x| {
                Tensor::from_fn(&[5, 6], |i| {
                    let term = |k: usize| {
                        x[0].at(&[i[0], k]) * x[1].at(&[k, i[1]]) * x[2].at(&[k / 3, i[1] / 3])
                    };
                    x[3].at(&[i[0] / 3, i[1] / 3]) * (0..7).map(term).sum::<f64>()
                })
            },
        ),
        Known::new(
            "segmented_mm",
            &[&[3, 7], &[7, 2], &[4, 2]],
            |x| segmented_mm(&x[0], &x[1], &x[2]),
            |x| {
                Tensor::from_fn(&[4, 3, 2], |i| {
                    let [from, to] = [0, 1].map(|side| x[2].at(&[i[0], side]) as usize);
                    (from..to.min(7)).map(|k| x[0].at(&[i[1], k]) * x[1].at(&[k, i[2]])).sum()
                })
            },
        )
        .with(|case| case.fixed(2, DType::U8, 0.0..8.0)),
    ];
    let mut cases: Vec<Known> = (products.into_iter())
        .map(|known| {
            let op = known.op;
            known.with(|case| match op {
                // In narrow dtypes what pairs come to is rounded before it is multiplied again.
                "einsum" => case.dtypes(&[DType::F32]).tolerance(Tolerance::Contraction),
                "vecdot" | "block_masked_mm" => case.tolerance(ROUNDED),
                _ => case.tolerance(Tolerance::Contraction),
            })
        })
        .collect();
    cases.push(
        Known::new(
            "diff",
            &[&[4, 5]],
            |x| diff(&x[0], 2, 0),
            |x| {
                Tensor::from_fn(&[2, 5], |i| {
                    let at = |row: usize| x[0].at(&[i[0] + row, i[1]]);
                    at(2) - 2.0 * at(1) + at(0)
                })
            },
        )
        .with(|case| case.dtypes(FLOATS).tolerance(Tolerance::Reduction)),
    );
    cases.push(
        Known::new(
            "to_fp8",
            &[&[7, 9]],
            |x| to_fp8(&x[0]),
            |x| Tensor::from_fn(&x[0].shape, |i| f64::from(nearest(x[0].at(i)))),
        )
        .with(|case| case.range(-500.0..500.0).tolerance(Tolerance::Exact))
        .gradient(Gradient::Zero),
    );
    cases.push(
        Known::new(
            "from_fp8",
            &[&[7, 9]],
            |x| from_fp8(&x[0], DType::F32),
            |x| Tensor::from_fn(&x[0].shape, |i| value(x[0].at(i) as u8)),
        )
        .with(|case| case.range(0.0..127.0).dtypes(&EVERY[1..2]).tolerance(Tolerance::Exact))
        .gradient(Gradient::Zero),
    );
    cases
}

/// The number that a byte is.
fn value(byte: u8) -> f64 {
    let (exponent, fraction) = (i32::from(byte >> 3 & 15), f64::from(byte & 7) / 8.0);
    let magnitude = if exponent == 0 {
        fraction * 2f64.powi(-6)
    } else {
        (1.0 + fraction) * 2f64.powi(exponent - 7)
    };
    if byte < 128 { magnitude } else { -magnitude }
}

/// The byte whose number is nearest; of two the even one. Numbers beyond the largest become it.
fn nearest(x: f64) -> u8 {
    let distance = |byte: &u8| (value(*byte) - x.abs().min(448.0)).abs();
    let better =
        |a: &u8, b: &u8| distance(a).total_cmp(&distance(b)).then_with(|| (a & 1).cmp(&(b & 1)));
    let magnitude = if x.is_nan() { 0x7e } else { (0..0x7f).min_by(better).unwrap() };
    magnitude | if x.is_sign_negative() { 0x80 } else { 0 }
}
