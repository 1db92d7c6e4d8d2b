//! Picking and putting by index, and sorting.

use wootz::op::{Gradient, Tolerance};
use wootz::{
    DType, argpartition, argsort, partition, put_along_axis, searchsorted, slice_update, sort,
    take, take_along_axis, take_along_axis_backward, topk,
};

use super::Known;
use super::tensor::Tensor;

pub(crate) fn cases() -> Vec<Known> {
    let mut cases = picks();
    cases.extend(sorts());
    cases
}

/// An index as the harness drew it, which may count from the end.
fn place(value: f64, length: usize) -> usize {
    if value < 0.0 { (value + length as f64) as usize } else { value as usize }
}

fn picks() -> Vec<Known> {
    vec![
        Known::moving(
            "take",
            &[&[3, 5], &[4]],
            |x| take(&x[0], &x[1], Some(1)),
            |x| Tensor::from_fn(&[3, 4], |i| x[0].at(&[i[0], place(x[1].data[i[1]], 5)])),
        )
        .with(|c| c.fixed(1, DType::I32, -5.0..5.0)),
        Known::moving(
            "take_along_axis",
            &[&[3, 5], &[3, 7]],
            |x| take_along_axis(&x[0], &x[1], Some(-1)),
            |x| Tensor::from_fn(&[3, 7], |i| x[0].at(&[i[0], place(x[1].at(i), 5)])),
        )
        .with(|c| c.fixed(1, DType::I32, -5.0..5.0)),
        Known::new(
            "take_along_axis_backward",
            &[&[3, 7], &[3, 7]],
            |x| take_along_axis_backward(&x[0], &x[1], 1, 5),
            |x| {
                Tensor::from_fn(&[3, 5], |i| {
                    let hits = (0..7).filter(|&j| place(x[0].at(&[i[0], j]), 5) == i[1]);
                    hits.map(|j| x[1].at(&[i[0], j])).sum()
                })
            },
        )
        .with(|c| c.fixed(0, DType::I32, -5.0..5.0).tolerance(Tolerance::Reduction)),
        Known::moving(
            "put_along_axis",
            &[&[3, 5], &[3, 4], &[3, 4]],
            |x| put_along_axis(&x[0], &x[1], &x[2], Some(1)),
            |x| {
                let mut y = x[0].clone();
                for row in 0..3 {
                    for j in 0..4 {
                        let flat = y.flat(&[row, place(x[1].at(&[row, j]), 5)]);
                        y.data[flat] = x[2].at(&[row, j]);
                    }
                }
                y
            },
        )
        .with(|c| c.fixed(1, DType::I32, -5.0..5.0)),
        Known::moving(
            "slice_update",
            &[&[4, 5], &[2, 3]],
            |x| slice_update(&x[0], &x[1], &[1, 0], &[3, 5], &[1, 2]),
            |x| {
                Tensor::from_fn(&[4, 5], |i| match (1..3).contains(&i[0]) && i[1] % 2 == 0 {
                    true => x[1].at(&[i[0] - 1, i[1] / 2]),
                    false => x[0].at(i),
                })
            },
        ),
    ]
}

/// The places of a line's elements in rising order, equal ones in their order.
fn order(line: &[f64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..line.len()).collect();
    // Insertion sort: nothing to get wrong.
    for end in 1..places.len() {
        let mut i = end;
        while i > 0 && line[places[i]] < line[places[i - 1]] {
            places.swap(i, i - 1);
            i -= 1;
        }
    }
    places
}

fn sorted(line: &[f64]) -> Vec<f64> {
    order(line).into_iter().map(|place| line[place]).collect()
}

fn sorts() -> Vec<Known> {
    let indices = |line: &[f64]| order(line).into_iter().map(|place| place as f64).collect();
    vec![
        Known::moving("sort", &[&[5, 9]], |x| sort(&x[0], -1), |x| x[0].map_lines(1, sorted)),
        Known::moving("sort", &[&[9, 4]], |x| sort(&x[0], 0), |x| x[0].map_lines(0, sorted))
            .label("first axis"),
        Known::moving(
            "argsort",
            &[&[5, 9]],
            |x| argsort(&x[0], -1),
            move |x| x[0].map_lines(1, indices),
        )
        .gradient(Gradient::Zero),
        Known::moving(
            "topk",
            &[&[4, 9]],
            |x| sort(&topk(&x[0], 3, -1)?, -1),
            |x| x[0].map_lines(1, |line| sorted(line)[6..].to_vec()),
        ),
        // What is below and above the pivot is unordered: it is sorted before it is compared.
        Known::moving(
            "partition",
            &[&[4, 9]],
            |x| {
                let y = partition(&x[0], 3, -1)?;
                sort(&wootz::slice(&y, &[0, 0], &[4, 4], &[1, 1])?, -1)
            },
            |x| x[0].map_lines(1, |line| sorted(line)[..4].to_vec()),
        ),
        Known::moving(
            "argpartition",
            &[&[4, 9]],
            |x| {
                let places = argpartition(&x[0], 3, -1)?;
                let y = take_along_axis(&x[0], &places, Some(-1))?;
                sort(&wootz::slice(&y, &[0, 0], &[4, 4], &[1, 1])?, -1)
            },
            |x| x[0].map_lines(1, |line| sorted(line)[..4].to_vec()),
        ),
        Known::new(
            "median",
            &[&[4, 9]],
            |x| wootz::median(&x[0], 1, false),
            |x| x[0].map_lines(1, |line| vec![sorted(line)[4]]).reshaped(&[4]),
        ),
        // As integers, so that some are equal.
        Known::moving(
            "unique",
            &[&[20]],
            |x| Ok(wootz::unique(&wootz::astype(&x[0], DType::I32)?, 2, None)?.values),
            |x| {
                let mut values: Vec<f64> = x[0].data.iter().map(|x| x.trunc()).collect();
                values = sorted(&values);
                values.dedup();
                values.truncate(2);
                Tensor { shape: vec![2], data: values }
            },
        )
        .with(|c| c.range(-3.0..3.0).dtypes(&[DType::I32]))
        .gradient(Gradient::Zero),
        Known::moving(
            "searchsorted",
            &[&[21], &[3, 5]],
            |x| searchsorted(&sort(&x[0], 0)?, &x[1], wootz::Side::Left),
            |x| {
                Tensor::from_fn(&[3, 5], |i| {
                    x[0].data.iter().filter(|&&below| below < x[1].at(i)).count() as f64
                })
            },
        )
        .gradient(Gradient::Zero),
    ]
}
