//! Reductions, softmax and what else works along axes.

use wootz::op::{Case, Gradient, INTEGERS, Tolerance};
use wootz::{
    Axes, CrossEntropyOptions, DType, KlDivergenceOptions, add_layer_norm, add_rms_norm,
    cross_entropy_with, group_norm, kl_divergence, kl_divergence_with, l2_norm, l2_norm_backward,
    layer_norm, layer_norm_backward, rms_inv, rms_norm, rms_norm_add, rms_norm_add_rms_norm,
    rms_norm_backward, rms_norm_backward_dw, rms_norm_backward_dx, softmax, softmax_backward,
};

use super::tensor::{Tensor, indices};
use super::{Function, Known};

pub(crate) fn cases() -> Vec<Known> {
    let mut cases = Vec::new();
    let axes: [(&str, &[i64]); 4] =
        [("last", &[-1]), ("first", &[0]), ("outer two", &[0, 2]), ("all", &[0, 1, 2])];
    for (label, axes) in axes {
        let positive: Vec<usize> = axes.iter().map(|&axis| axis.rem_euclid(3) as usize).collect();
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
    cases.extend(rms_norms());
    cases.extend(l2_norms());
    cases.extend(layer_norms());
    cases.extend(group_norms());
    cases.extend(vocabulary());
    cases.extend(lines());
    cases
}

/// Losses over rows of 5 classes.
fn vocabulary() -> Vec<Known> {
    const SMOOTHING: f64 = 0.2;
    fn log_chances(x: &Tensor, row: usize) -> Vec<f64> {
        let line = x.line(&[row, 0], 1);
        let total = line.iter().map(|x| x.exp()).sum::<f64>().ln();
        line.iter().map(|x| x - total).collect()
    }
    let shape: &[usize] = &[4, 5];
    vec![
        Known::new(
            "cross_entropy",
            &[shape, &[4]],
            |x| {
                let options = CrossEntropyOptions {
                    label_smoothing: SMOOTHING,
                    ignore_index: Some(2),
                    mask: None,
                };
                cross_entropy_with(&x[0], &x[1], &options)
            },
            |x| {
                Tensor::from_fn(&[4], |i| {
                    let (logs, label) = (log_chances(&x[0], i[0]), x[1].data[i[0]] as usize);
                    let even = logs.iter().sum::<f64>() / 5.0;
                    let loss = -(1.0 - SMOOTHING) * logs[label] - SMOOTHING * even;
                    if label == 2 { 0.0 } else { loss }
                })
            },
        )
        .with(|c| c.fixed(1, DType::U32, 0.0..5.0).tolerance(Tolerance::Reduction)),
        Known::new(
            "kl_divergence",
            &[shape, shape],
            |x| kl_divergence(&x[0], &x[1]),
            |x| {
                Tensor::from_fn(&[4], |i| {
                    let both = log_chances(&x[0], i[0]).into_iter().zip(log_chances(&x[1], i[0]));
                    both.map(|(p, q)| p.exp() * (p - q)).sum()
                })
            },
        )
        .with(|c| c.tolerance(Tolerance::Reduction)),
        Known::new(
            "kl_divergence",
            &[shape, shape, &[4]],
            |x| kl_divergence_with(&x[0], &x[1], &KlDivergenceOptions { mask: Some(&x[2]) }),
            |x| {
                Tensor::from_fn(&[4], |i| {
                    let both = log_chances(&x[0], i[0]).into_iter().zip(log_chances(&x[1], i[0]));
                    let divergence = both.map(|(p, q)| p.exp() * (p - q)).sum();
                    if x[2].data[i[0]] == 0.0 { 0.0 } else { divergence }
                })
            },
        )
        .with(|c| c.fixed(2, DType::Bool, 0.0..2.0).tolerance(Tolerance::Reduction)),
    ]
}

const NORMAL: Tolerance = Tolerance::Rounded(
    1.5,
    "normalised values are rounded before they meet weight and bias, as in MLX",
);

fn with_tolerance(case: Known) -> Known {
    let tolerance = match case.op {
        "rms_norm"
        | "layer_norm"
        | "add_rms_norm"
        | "add_layer_norm"
        | "rms_norm_add"
        | "rms_norm_add_rms_norm" => NORMAL,
        _ => Tolerance::Reduction,
    };
    case.with(|case| case.tolerance(tolerance))
}

/// Rows of 5, with what `rms_norm` divides them by.
fn rms_norms() -> Vec<Known> {
    const EPS: f32 = 1e-2;
    fn inverse(x: &Tensor, row: usize) -> f64 {
        let mean: f64 = (0..5).map(|j| x.at(&[row, j]).powi(2)).sum::<f64>() / 5.0;
        1.0 / (mean + EPS as f64).sqrt()
    }
    fn dx(x: &Tensor, w: &Tensor, dy: &Tensor, r: impl Fn(usize) -> f64) -> Tensor {
        Tensor::from_fn(&x.shape, |i| {
            let term = |j: usize| dy.at(&[i[0], j]) * x.at(&[i[0], j]) * w.data[j];
            let (r, s) = (r(i[0]), (0..5).map(term).sum::<f64>());
            r * (dy.at(i) * w.data[i[1]] - x.at(i) * s * r * r / 5.0)
        })
    }
    fn dw(x: &Tensor, dy: &Tensor, r: impl Fn(usize) -> f64) -> Tensor {
        Tensor::from_fn(&[5], |i| (0..4).map(|k| dy.at(&[k, i[0]]) * x.at(&[k, i[0]]) * r(k)).sum())
    }
    let shape: &[usize] = &[4, 5];
    let cases = vec![
        Known::new(
            "rms_norm",
            &[shape, &[5]],
            |x| rms_norm(&x[0], Some(&x[1]), EPS),
            |x| Tensor::from_fn(&[4, 5], |i| x[0].at(i) * inverse(&x[0], i[0]) * x[1].data[i[1]]),
        ),
        Known::new(
            "rms_inv",
            &[shape],
            |x| rms_inv(&x[0], EPS),
            |x| Tensor::from_fn(&[4], |i| inverse(&x[0], i[0])),
        ),
        Known::new(
            "rms_norm_backward_dx",
            &[shape, &[5], shape],
            |x| rms_norm_backward_dx(&x[0], Some(&x[1]), &x[2], &rms_inv(&x[0], EPS)?),
            |x| dx(&x[0], &x[1], &x[2], |row| inverse(&x[0], row)),
        ),
        Known::new(
            "rms_norm_backward_dw",
            &[shape, shape],
            |x| rms_norm_backward_dw(&x[0], &x[1], &rms_inv(&x[0], EPS)?),
            |x| dw(&x[0], &x[1], |row| inverse(&x[0], row)),
        ),
        Known {
            op: "add_rms_norm",
            case: Case::new("reference", &[shape, shape, &[5]], |x| {
                let (y, sum) = add_rms_norm(&x[0], &x[1], &x[2], EPS)?;
                Ok(vec![y, sum])
            }),
            function: Function::new(|x, _| {
                let sum = Tensor::from_fn(&[4, 5], |i| x[0].at(i) + x[1].at(i));
                let normal = |i: &[usize]| sum.at(i) * inverse(&sum, i[0]) * x[2].data[i[1]];
                vec![Tensor::from_fn(&[4, 5], normal), sum]
            }),
        },
        Known::new(
            "rms_norm_add",
            &[shape, &[5], shape],
            |x| rms_norm_add(&x[0], &x[1], &x[2], EPS),
            |x| {
                let normal = |i: &[usize]| x[0].at(i) * inverse(&x[0], i[0]) * x[1].data[i[1]];
                Tensor::from_fn(&[4, 5], |i| normal(i) + x[2].at(i))
            },
        ),
        Known {
            op: "rms_norm_add_rms_norm",
            case: Case::new("reference", &[shape, &[5], shape, &[5]], |x| {
                let (y, sum) = rms_norm_add_rms_norm(&x[0], &x[1], &x[2], &x[3], [EPS; 2])?;
                Ok(vec![y, sum])
            }),
            function: Function::new(|x, _| {
                let first = |i: &[usize]| x[0].at(i) * inverse(&x[0], i[0]) * x[1].data[i[1]];
                let sum = Tensor::from_fn(&[4, 5], |i| first(i) + x[2].at(i));
                let normal = |i: &[usize]| sum.at(i) * inverse(&sum, i[0]) * x[3].data[i[1]];
                vec![Tensor::from_fn(&[4, 5], normal), sum]
            }),
        },
        Known {
            op: "add_layer_norm",
            case: Case::new("reference", &[shape, shape, &[5], &[5]], |x| {
                let (y, sum) = add_layer_norm(&x[0], &x[1], &x[2], &x[3], EPS)?;
                Ok(vec![y, sum])
            }),
            function: Function::new(|x, _| {
                let sum = Tensor::from_fn(&[4, 5], |i| x[0].at(i) + x[1].at(i));
                let centred = Tensor::from_fn(&[4, 5], |i| {
                    sum.at(i) - (0..5).map(|column| sum.at(&[i[0], column])).sum::<f64>() / 5.0
                });
                let normal = |i: &[usize]| {
                    centred.at(i) * inverse(&centred, i[0]) * x[2].data[i[1]] + x[3].data[i[1]]
                };
                vec![Tensor::from_fn(&[4, 5], normal), sum]
            }),
        },
        Known {
            op: "rms_norm_backward",
            case: Case::new("reference", &[shape, &[5], shape], |x| {
                let (dx, dw) = rms_norm_backward(&x[0], &x[1], &x[2], EPS)?;
                Ok(vec![dx, dw])
            }),
            function: Function::new(|x, _| {
                let r = |row: usize| inverse(&x[0], row);
                vec![dx(&x[0], &x[1], &x[2], r), dw(&x[0], &x[2], r)]
            }),
        },
    ];
    cases.into_iter().map(with_tolerance).collect()
}

/// Rows of 5 divided by their length.
fn l2_norms() -> Vec<Known> {
    const EPS: f32 = 1e-2;
    fn inverse(x: &Tensor, row: usize) -> f64 {
        let sum: f64 = (0..5).map(|j| x.at(&[row, j]).powi(2)).sum();
        1.0 / (sum + EPS as f64).sqrt()
    }
    let shape: &[usize] = &[4, 5];
    let cases = vec![
        Known::new(
            "l2_norm",
            &[shape],
            |x| l2_norm(&x[0], EPS),
            |x| Tensor::from_fn(&[4, 5], |i| x[0].at(i) * inverse(&x[0], i[0])),
        ),
        Known::new(
            "l2_norm_backward",
            &[shape, shape],
            |x| l2_norm_backward(&x[0], &x[1], EPS),
            |x| {
                Tensor::from_fn(&[4, 5], |i| {
                    let r = inverse(&x[0], i[0]);
                    let term = |j: usize| x[0].at(&[i[0], j]) * x[1].at(&[i[0], j]);
                    r * (x[1].at(i) - x[0].at(i) * (0..5).map(term).sum::<f64>() * r * r)
                })
            },
        ),
    ];
    cases.into_iter().map(with_tolerance).collect()
}

/// Rows of 5 of which the mean is taken away.
fn layer_norms() -> Vec<Known> {
    const EPS: f32 = 1e-2;
    /// An element less the mean of its row, times the row's factor; and that factor.
    fn normal(x: &Tensor, i: &[usize]) -> (f64, f64) {
        let row = |j: usize| x.at(&[i[0], j]);
        let mean = (0..5).map(row).sum::<f64>() / 5.0;
        let variance = (0..5).map(|j| (row(j) - mean).powi(2)).sum::<f64>() / 5.0;
        let r = 1.0 / (variance + EPS as f64).sqrt();
        ((x.at(i) - mean) * r, r)
    }
    let shape: &[usize] = &[4, 5];
    let cases = vec![
        Known::new(
            "layer_norm",
            &[shape, &[5], &[5]],
            |x| layer_norm(&x[0], Some(&x[1]), Some(&x[2]), EPS),
            |x| {
                let value = |i: &[usize]| normal(&x[0], i).0 * x[1].data[i[1]] + x[2].data[i[1]];
                Tensor::from_fn(&[4, 5], value)
            },
        ),
        Known {
            op: "layer_norm_backward",
            case: Case::new("reference", &[shape, &[5], shape], |x| {
                let (dx, dw, db) = layer_norm_backward(&x[0], &x[1], &x[2], EPS)?;
                Ok(vec![dx, dw, db])
            }),
            function: Function::new(|x, _| {
                let (x, w, dy) = (&x[0], &x[1], &x[2]);
                let term = |i: &[usize]| dy.at(i) * w.data[i[1]];
                let dx = Tensor::from_fn(&x.shape, |i| {
                    let sum = |f: &dyn Fn(&[usize]) -> f64| -> f64 {
                        (0..5).map(|j| f(&[i[0], j])).sum()
                    };
                    let level = sum(&term) / 5.0;
                    let slope = sum(&|i| term(i) * normal(x, i).0) / 5.0;
                    let (value, r) = normal(x, i);
                    r * (term(i) - level - value * slope)
                });
                let column = |f: &dyn Fn(&[usize]) -> f64| {
                    Tensor::from_fn(&[5], |i| (0..4).map(|k| f(&[k, i[0]])).sum())
                };
                vec![dx, column(&|i| dy.at(i) * normal(x, i).0), column(&|i| dy.at(i))]
            }),
        },
    ];
    cases.into_iter().map(with_tolerance).collect()
}

/// Two groups of features over all positions of a sample.
fn group_norms() -> Vec<Known> {
    const EPS: f32 = 1e-2;
    let case = |label: &str, neighbours: bool| {
        Known::new(
            "group_norm",
            &[&[2, 3, 4], &[4], &[4]],
            move |x| group_norm(&x[0], 2, Some(&x[1]), Some(&x[2]), EPS, neighbours),
            move |x| {
                Tensor::from_fn(&[2, 3, 4], |i| {
                    let group = |feature: usize| if neighbours { feature / 2 } else { feature % 2 };
                    let members: Vec<f64> = indices(&[3, 4])
                        .into_iter()
                        .filter(|j| group(j[1]) == group(i[2]))
                        .map(|j| x[0].at(&[i[0], j[0], j[1]]))
                        .collect();
                    let mean = members.iter().sum::<f64>() / 6.0;
                    let squares = members.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
                    let normal = (x[0].at(i) - mean) / (squares / 6.0 + EPS as f64).sqrt();
                    normal * x[1].data[i[2]] + x[2].data[i[2]]
                })
            },
        )
        .label(label)
        .with(|c| c.tolerance(NORMAL))
    };
    vec![case("neighbours", true), case("every second feature", false)]
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
    ("all", |x, axes| x.all(axes), |v| v.iter().all(|&x| x != 0.0) as u8 as f64, Gradient::Zero),
    ("any", |x, axes| x.any(axes), |v| v.iter().any(|&x| x != 0.0) as u8 as f64, Gradient::Zero),
    ("mean", |x, axes| x.mean(axes), |v| v.iter().sum::<f64>() / v.len() as f64, Gradient::Checked),
    ("var", |x, axes| x.var(axes), variance, Gradient::Checked),
    ("std", |x, axes| x.std(axes), |v| variance(v).sqrt(), Gradient::Checked),
    (
        "logsumexp",
        |x, axes| wootz::logsumexp(x, axes, false),
        |v| v.iter().map(|x| x.exp()).sum::<f64>().ln(),
        Gradient::Checked,
    ),
    (
        "count_nonzero",
        |x, axes| wootz::count_nonzero(x, axes, false),
        |v| v.iter().filter(|&&x| x != 0.0).count() as f64,
        Gradient::Zero,
    ),
    (
        "minmax",
        |x, axes| wootz::minmax(x, axes, false).and_then(|(low, high)| wootz::subtract(high, low)),
        |v| {
            let high = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            high - v.iter().copied().fold(f64::INFINITY, f64::min)
        },
        Gradient::Checked,
    ),
];

fn variance(v: &[f64]) -> f64 {
    let mean = v.iter().sum::<f64>() / v.len() as f64;
    v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / v.len() as f64
}

/// The place of the first element that no other beats.
fn first_best(v: &[f64], beats: fn(f64, f64) -> bool) -> f64 {
    let mut best = 0;
    for i in 1..v.len() {
        if beats(v[i], v[best]) {
            best = i;
        }
    }
    best as f64
}

/// Running combinations along an axis, and places of extremes.
fn lines() -> Vec<Known> {
    let mut cases = Vec::new();
    for (op, call, start, combine) in SCANS {
        for (label, reverse, inclusive) in [
            ("forward", false, true),
            ("reverse", true, true),
            ("exclusive", false, false),
            ("reverse exclusive", true, false),
        ] {
            let running = move |line: &[f64]| {
                let mut line = line.to_vec();
                if reverse {
                    line.reverse();
                }
                let mut sum = *start;
                for element in &mut line {
                    let next = combine(sum, *element);
                    *element = if inclusive { next } else { sum };
                    sum = next;
                }
                if reverse {
                    line.reverse();
                }
                line
            };
            let call = move |x: &[wootz::Array]| call(&x[0], reverse, inclusive);
            let case = Known::new(op, &[&[4, 7]], call, move |x| x[0].map_lines(1, running));
            cases.push(case.label(label).with(|c| c.tolerance(Tolerance::Reduction)));
        }
    }
    for (op, call, beats) in ARGS {
        let case = Known::moving(
            op,
            &[&[4, 7]],
            move |x| call(&x[0]),
            move |x| x[0].reduce(&[1], |v| first_best(v, *beats)).reshaped(&[4]),
        );
        cases.push(case.gradient(Gradient::Zero));
    }
    cases
}

type Scan = fn(&wootz::Array, bool, bool) -> wootz::Result<wootz::Array>;

/// Names, calls, what scans start with, and how they go on.
const SCANS: &[(&str, Scan, f64, fn(f64, f64) -> f64)] = &[
    ("cumsum", |x, reverse, own| wootz::cumsum(x, 1, reverse, own), 0.0, |a, b| a + b),
    ("cumprod", |x, reverse, own| wootz::cumprod(x, 1, reverse, own), 1.0, |a, b| a * b),
    ("cummax", |x, reverse, own| wootz::cummax(x, 1, reverse, own), f64::NEG_INFINITY, f64::max),
    ("cummin", |x, reverse, own| wootz::cummin(x, 1, reverse, own), f64::INFINITY, f64::min),
    (
        "logcumsumexp",
        |x, reverse, own| wootz::logcumsumexp(x, 1, reverse, own),
        f64::NEG_INFINITY,
        |a, b| (a.exp() + b.exp()).ln(),
    ),
];

type Arg = fn(&wootz::Array) -> wootz::Result<wootz::Array>;

const ARGS: &[(&str, Arg, fn(f64, f64) -> bool)] = &[
    ("argmax", |x| wootz::argmax(x, 1, false), |a, b| a > b),
    ("argmin", |x| wootz::argmin(x, 1, false), |a, b| a < b),
];
