//! Operations that move elements, and elementwise ones with parameters.

use wootz::op::{EVERY, Gradient, Tolerance};
use wootz::*;

use super::elementwise::rounded;
use super::tensor::Tensor;
use super::{Function, Known};

pub(crate) fn cases() -> Vec<Known> {
    let mut cases = views();
    cases.extend(joins());
    cases.extend(parameters());
    cases
}

fn views() -> Vec<Known> {
    vec![
        Known::moving(
            "transpose",
            &[&[2, 3, 4]],
            |x| transpose_axes(&x[0], &[1, -1, 0]),
            |x| Tensor::from_fn(&[3, 4, 2], |i| x[0].at(&[i[2], i[0], i[1]])),
        ),
        Known::moving(
            "reshape",
            &[&[2, 3, 4]],
            |x| reshape(&x[0], &[4, 6]),
            |x| x[0].clone().reshaped(&[4, 6]),
        ),
        Known::moving(
            "broadcast_to",
            &[&[3, 1]],
            |x| broadcast_to(&x[0], &[2, 3, 4]),
            |x| Tensor::from_fn(&[2, 3, 4], |i| x[0].at(&[i[1], 0])),
        ),
        Known::moving(
            "slice",
            &[&[7, 9]],
            |x| slice(&x[0], &[1, 8], &[6, 0], &[2, -3]),
            |x| Tensor::from_fn(&[3, 3], |i| x[0].at(&[1 + 2 * i[0], 8 - 3 * i[1]])),
        ),
        Known::moving(
            "moveaxis",
            &[&[2, 3, 4]],
            |x| moveaxis(&x[0], 0, -1),
            |x| Tensor::from_fn(&[3, 4, 2], |i| x[0].at(&[i[2], i[0], i[1]])),
        ),
        Known::moving(
            "swapaxes",
            &[&[2, 3, 4]],
            |x| swapaxes(&x[0], 0, 2),
            |x| Tensor::from_fn(&[4, 3, 2], |i| x[0].at(&[i[2], i[1], i[0]])),
        ),
        Known::moving(
            "expand_dims",
            &[&[2, 3]],
            |x| expand_dims(&x[0], [0, -1]),
            |x| x[0].clone().reshaped(&[1, 2, 3, 1]),
        ),
        Known::moving(
            "squeeze",
            &[&[1, 3, 1]],
            |x| squeeze(&x[0], ()),
            |x| x[0].clone().reshaped(&[3]),
        ),
        Known::moving(
            "flatten",
            &[&[2, 3, 4]],
            |x| flatten(&x[0], 1, 2),
            |x| x[0].clone().reshaped(&[2, 12]),
        ),
        Known::moving(
            "unflatten",
            &[&[2, 12]],
            |x| unflatten(&x[0], 1, &[3, -1]),
            |x| x[0].clone().reshaped(&[2, 3, 4]),
        ),
        Known::moving(
            "flip",
            &[&[3, 5]],
            |x| flip(&x[0], 1),
            |x| Tensor::from_fn(&[3, 5], |i| x[0].at(&[i[0], 4 - i[1]])),
        ),
        Known::moving(
            "diagonal",
            &[&[2, 3, 4]],
            |x| diagonal(&x[0], 1, 1, 2),
            |x| Tensor::from_fn(&[2, 3], |i| x[0].at(&[i[0], i[1], i[1] + 1])),
        ),
        several(
            "split",
            &[&[4, 6]],
            |x| split(&x[0], 3, 1),
            |x| {
                (0..3)
                    .map(|k| Tensor::from_fn(&[4, 2], |i| x[0].at(&[i[0], 2 * k + i[1]])))
                    .collect()
            },
        ),
        several(
            "unstack",
            &[&[2, 3, 4]],
            |x| unstack(&x[0], 1),
            |x| (0..3).map(|k| Tensor::from_fn(&[2, 4], |i| x[0].at(&[i[0], k, i[1]]))).collect(),
        ),
        several(
            "meshgrid",
            &[&[3], &[4]],
            |x| meshgrid(x, false, GridIndexing::Xy),
            |x| {
                vec![
                    Tensor::from_fn(&[4, 3], |i| x[0].data[i[1]]),
                    Tensor::from_fn(&[4, 3], |i| x[1].data[i[0]]),
                ]
            },
        ),
    ]
}

fn joins() -> Vec<Known> {
    vec![
        Known::moving(
            "concatenate",
            &[&[3, 5], &[3, 1], &[3, 2]],
            |x| concatenate(x, 1),
            |x| {
                Tensor::from_fn(&[3, 8], |i| match i[1] {
                    j @ 0..5 => x[0].at(&[i[0], j]),
                    5 => x[1].at(&[i[0], 0]),
                    j => x[2].at(&[i[0], j - 6]),
                })
            },
        ),
        Known::moving(
            "stack",
            &[&[3, 5], &[3, 5]],
            |x| stack(x, 1),
            |x| Tensor::from_fn(&[3, 2, 5], |i| x[i[1]].at(&[i[0], i[2]])),
        ),
        Known::moving(
            "repeat",
            &[&[2, 3, 4]],
            |x| repeat(&x[0], 3, 1),
            |x| Tensor::from_fn(&[2, 9, 4], |i| x[0].at(&[i[0], i[1] / 3, i[2]])),
        ),
        Known::moving(
            "tile",
            &[&[2, 3]],
            |x| tile(&x[0], &[2, 1, 3]),
            |x| Tensor::from_fn(&[2, 2, 9], |i| x[0].at(&[i[1], i[2] % 3])),
        ),
        Known::moving(
            "roll",
            &[&[3, 5]],
            |x| roll(&x[0], [1, -2], [0, 1]),
            |x| Tensor::from_fn(&[3, 5], |i| x[0].at(&[(i[0] + 2) % 3, (i[1] + 2) % 5])),
        ),
        Known::moving(
            "pad",
            &[&[3, 5]],
            |x| pad(&x[0], [(1, 2), (0, 3)], PadMode::Constant, 0),
            |x| {
                Tensor::from_fn(&[6, 8], |i| match (1..4).contains(&i[0]) && i[1] < 5 {
                    true => x[0].at(&[i[0] - 1, i[1]]),
                    false => 0.0,
                })
            },
        ),
        Known::moving(
            "pad",
            &[&[3, 5]],
            |x| pad(&x[0], [(2, 1), (1, 4)], PadMode::Edge, 0),
            |x| {
                let clamp = |i: usize, before: usize, n: usize| i.saturating_sub(before).min(n - 1);
                Tensor::from_fn(&[6, 10], |i| x[0].at(&[clamp(i[0], 2, 3), clamp(i[1], 1, 5)]))
            },
        )
        .label("edge"),
        Known::moving(
            "diag",
            &[&[4]],
            |x| diag(&x[0], 1),
            |x| Tensor::from_fn(&[5, 5], |i| if i[1] == i[0] + 1 { x[0].data[i[0]] } else { 0.0 }),
        ),
        Known::moving(
            "tril",
            &[&[4, 5]],
            |x| tril(&x[0], 1),
            |x| Tensor::from_fn(&[4, 5], |i| if i[1] <= i[0] + 1 { x[0].at(i) } else { 0.0 }),
        ),
        Known::moving(
            "triu",
            &[&[4, 5]],
            |x| triu(&x[0], 1),
            |x| Tensor::from_fn(&[4, 5], |i| if i[1] > i[0] { x[0].at(i) } else { 0.0 }),
        ),
        Known::new(
            "trace",
            &[&[2, 4, 5]],
            |x| trace(&x[0], 1, 1, 2, None),
            |x| Tensor::from_fn(&[2], |i| (0..4).map(|k| x[0].at(&[i[0], k, k + 1])).sum()),
        )
        .with(|c| c.tolerance(Tolerance::Reduction)),
    ]
}

fn parameters() -> Vec<Known> {
    let each = |x: &[Tensor], f: fn(f64) -> f64| Tensor {
        shape: x[0].shape.clone(),
        data: x[0].data.iter().map(|&value| f(value)).collect(),
    };
    vec![
        Known::new(
            "clip",
            &[&[3, 5]],
            |x| clip(&x[0], Some(-1), Some(1)),
            move |x| each(x, |v| v.clamp(-1.0, 1.0)),
        ),
        Known::new(
            "nan_to_num",
            &[&[3, 5]],
            |x| nan_to_num(&x[0], 0.0, None, None),
            move |x| each(x, |v| v),
        ),
        Known::new(
            "round",
            &[&[3, 5]],
            |x| round(&x[0], 0),
            move |x| each(x, f64::round_ties_even),
        )
        .with(|c| c.range(-30.0..30.0))
        .gradient(Gradient::Zero),
        decimals("tenths", 1),
        decimals("tens", -1),
        Known::new(
            "isclose",
            &[&[3, 5], &[3, 5]],
            |x| isclose(&x[0], &x[1], 0.5, 0.1, false),
            |x| {
                Tensor::from_fn(&[3, 5], |i| {
                    let (a, b) = (x[0].at(i), x[1].at(i));
                    ((a - b).abs() <= 0.1 + 0.5 * b.abs()) as u8 as f64
                })
            },
        )
        .gradient(Gradient::Zero),
        Known::new(
            "arange",
            &[&[5]],
            |x| add(&x[0], arange(0, 5, 1, x[0].dtype())?),
            |x| Tensor::from_fn(&[5], |i| x[0].at(i) + i[0] as f64),
        ),
        Known::new(
            "astype",
            &[&[3, 5]],
            |x| astype(&x[0], DType::I32),
            move |x| each(x, f64::trunc),
        )
        .with(|c| c.range(-100.0..100.0))
        .gradient(Gradient::Zero),
    ]
}

/// Rounding to decimals: the factors are those of singles, and what lies in between is rounded.
fn decimals(label: &str, decimals: i32) -> Known {
    let case = Known::new("round", &[&[3, 5]], move |x| round(&x[0], decimals), |x| x[0].clone());
    let function = move |x: &[Tensor], dtypes: &[DType]| {
        let scale = 10f64.powi(decimals) as f32;
        let inverse = rounded((1.0 / scale) as f64, dtypes[0]);
        let scale = rounded(scale as f64, dtypes[0]);
        let round = |&x: &f64| rounded(x * scale, dtypes[0]).round_ties_even() * inverse;
        vec![Tensor { shape: x[0].shape.clone(), data: x[0].data.iter().map(round).collect() }]
    };
    let case = Known { function: Function::new(function), ..case };
    case.label(label).with(|c| c.range(-30.0..30.0)).gradient(Gradient::Zero)
}

/// A case with several outputs that moves elements.
fn several(
    op: &'static str,
    shapes: &[&[usize]],
    call: fn(&[Array]) -> Result<Vec<Array>>,
    function: fn(&[Tensor]) -> Vec<Tensor>,
) -> Known {
    let case = op::Case::new("reference", shapes, call).dtypes(EVERY).tolerance(Tolerance::Exact);
    Known { op, case, function: Function::new(move |x, _| function(x)) }
}
