//! Reductions, softmax and what else works along axes.

use wootz::op::{Gradient, INTEGERS, Tolerance};
use wootz::{Axes, softmax, softmax_backward};

use super::Known;
use super::tensor::Tensor;

pub(crate) fn cases() -> Vec<Known> {
    let mut cases = Vec::new();
    let axes: [(&str, &[i64]); 4] =
        [("last", &[-1]), ("first", &[0]), ("outer two", &[0, 2]), ("all", &[0, 1, 2])];
    for (label, axes) in axes {
        let positive: Vec<usize> =
            axes.iter().map(|&axis| axis.rem_euclid(3) as usize).collect();
        for (op, call, combine, gradient) in REDUCTIONS {
            let positive = positive.clone();
            let case = Known::new(
                op,
                &[&[3, 4, 5]],
                move |x| call(&x[0], Axes::from(axes)),
                move |x| {
                    let kept = x[0].reduce(&positive, combine);
                    let gone: Vec<usize> = (0..3)
                        .filter(|axis| !positive.contains(axis))
                        .map(|axis| x[0].shape[axis])
                        .collect();
                    kept.reshaped(&gone)
                },
            );
            cases.push(
                case.label(label).with(|c| c.tolerance(Tolerance::Reduction)).gradient(*gradient),
            );
        }
    }
    for (op, call, combine, _) in REDUCTIONS.iter().take(4) {
        let case = Known::new(
            op,
            &[&[4, 5]],
            move |x| call(&x[0], Axes::from(1)),
            move |x| x[0].reduce(&[1], combine).reshaped(&[4]),
        );
        cases.push(case.label("integers").with(|c| c.dtypes(INTEGERS).range(-3.0..4.0)));
    }
    cases.push(
        Known::new(
            "softmax",
            &[&[3, 4, 5]],
            |x| softmax(&x[0], 1),
            |x| {
                x[0].map_lines(1, |line| {
                    let total: f64 = line.iter().map(|x| x.exp()).sum();
                    line.iter().map(|x| x.exp() / total).collect()
                })
            },
        )
        .with(|c| c.tolerance(Tolerance::Reduction)),
    );
    cases.push(
        Known::new(
            "softmax_backward",
            &[&[4, 5], &[4, 5]],
            |x| softmax_backward(&x[0], &x[1], -1),
            |x| {
                let (y, dy) = (&x[0], &x[1]);
                Tensor::from_fn(&[4, 5], |i| {
                    let s: f64 = (0..5).map(|j| y.at(&[i[0], j]) * dy.at(&[i[0], j])).sum();
                    y.at(i) * (dy.at(i) - s)
                })
            },
        )
        .with(|c| c.tolerance(Tolerance::Reduction)),
    );
    cases
}

type Call = fn(&wootz::Array, Axes) -> wootz::Result<wootz::Array>;

/// Names, calls, loops and gradients. The first four take integers too.
const REDUCTIONS: &[(&str, Call, fn(&[f64]) -> f64, Gradient)] = &[
    ("sum", |x, axes| x.sum(axes), |v| v.iter().sum(), Gradient::Checked),
    ("prod", |x, axes| x.prod(axes), |v| v.iter().product(), Gradient::Checked),
    (
        "max",
        |x, axes| x.max(axes),
        |v| v.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Gradient::Checked,
    ),
    (
        "min",
        |x, axes| x.min(axes),
        |v| v.iter().copied().fold(f64::INFINITY, f64::min),
        Gradient::Checked,
    ),
    (
        "all",
        |x, axes| x.all(axes),
        |v| v.iter().all(|&x| x != 0.0) as u8 as f64,
        Gradient::Zero,
    ),
    (
        "any",
        |x, axes| x.any(axes),
        |v| v.iter().any(|&x| x != 0.0) as u8 as f64,
        Gradient::Zero,
    ),
];
