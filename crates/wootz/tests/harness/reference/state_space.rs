//! Operations with states: plain loops over doubles.

use wootz::op::{CaseCall, Tolerance};
use wootz::{Array, causal_conv1d, gated_delta, selective_scan, selective_scan2};

use super::tensor::Tensor;
use super::{Function, Known};

/// Why the tolerance of a recurrence is wider.
const GROWING: &str = "errors of a state grow from step to step";

pub(crate) fn cases() -> Vec<Known> {
    vec![convolved(), delta(), scanned(), scanned2()]
}

/// A convolution, with the state behind it.
fn convolved() -> Known {
    let shapes: [&[usize]; 3] = [&[2, 9, 5], &[5, 3], &[2, 2, 5]];
    let mut known = Known::new("causal_conv1d", &shapes, |x| Ok(x[0].clone()), |x| x[0].clone());
    known.case.call = CaseCall(Box::new(|x: &[Array]| {
        let (y, state) = causal_conv1d(&x[0], &x[1], None, Some(&x[2]), false)?;
        Ok(vec![y, state])
    }));
    known.function = Function::new(|x, _| {
        let step = |b: usize, t: usize, c: usize| match t.checked_sub(2) {
            Some(t) => x[0].at(&[b, t, c]),
            None => x[2].at(&[b, t, c]),
        };
        let y = Tensor::from_fn(&[2, 9, 5], |i| {
            (0..3).map(|k| x[1].at(&[i[2], k]) * step(i[0], i[1] + k, i[2])).sum()
        });
        vec![y, Tensor::from_fn(&[2, 2, 5], |i| step(i[0], 9 + i[1], i[2]))]
    });
    known.with(|case| case.tolerance(Tolerance::Contraction))
}

/// Results of the gated delta rule, with two heads for a key head.
fn delta() -> Known {
    const STEPS: usize = 6;
    Known::new(
        "gated_delta",
        &[
            &[2, STEPS, 2, 5],
            &[2, STEPS, 2, 5],
            &[2, STEPS, 4, 3],
            &[2, STEPS, 4],
            &[2, STEPS, 4],
            &[2, 4, 3, 5],
        ],
        |x| Ok(gated_delta(&x[0], &x[1], &x[2], &x[3], &x[4], Some(&x[5]), None)?.0),
        |x| {
            let mut state = x[5].clone();
            let place = |b: usize, h: usize, i: usize, j: usize| ((b * 4 + h) * 3 + i) * 5 + j;
            let mut y = vec![0.0; 2 * STEPS * 4 * 3];
            for (b, t, h, i) in
                (0..2 * STEPS * 12).map(|n| (n / (12 * STEPS), n / 12 % STEPS, n / 3 % 4, n % 3))
            {
                let (g, beta) = (x[3].at(&[b, t, h]), x[4].at(&[b, t, h]));
                let k = |j: usize| x[1].at(&[b, t, h / 2, j]);
                (0..5).for_each(|j| state.data[place(b, h, i, j)] *= g);
                let known: f64 = (0..5).map(|j| state.data[place(b, h, i, j)] * k(j)).sum();
                let learnt = beta * (x[2].at(&[b, t, h, i]) - known);
                (0..5).for_each(|j| state.data[place(b, h, i, j)] += learnt * k(j));
                y[((b * STEPS + t) * 4 + h) * 3 + i] = (0..5)
                    .map(|j| state.data[place(b, h, i, j)] * x[0].at(&[b, t, h / 2, j]))
                    .sum();
            }
            Tensor { shape: vec![2, STEPS, 4, 3], data: y }
        },
    )
    .with(|case| case.range(-0.9..0.9).tolerance(Tolerance::Because(8.0, GROWING)))
}

/// Mamba's scan.
fn scanned() -> Known {
    let shapes: [&[usize]; 5] = [&[2, 5, 3], &[2, 5, 3], &[3, 4], &[2, 5, 4], &[2, 5, 4]];
    Known::new(
        "selective_scan",
        &shapes,
        |x| Ok(selective_scan(&x[0], &x[1], &x[2], &x[3], &x[4], None, None)?.0),
        |x| {
            Tensor::from_fn(&[2, 5, 3], |i| {
                let (b, last, c) = (i[0], i[1], i[2]);
                let mut state = [0.0; 4];
                for t in 0..=last {
                    let dt = x[1].at(&[b, t, c]);
                    for (n, state) in state.iter_mut().enumerate() {
                        let kept = (dt * x[2].at(&[c, n])).exp() * *state;
                        *state = kept + dt * x[0].at(&[b, t, c]) * x[3].at(&[b, t, n]);
                    }
                }
                (0..4).map(|n| state[n] * x[4].at(&[b, last, n])).sum()
            })
        },
    )
    .with(|case| case.range(-0.9..0.9).tolerance(Tolerance::Because(8.0, GROWING)))
}

/// Mamba-2's scan, with two heads for a group.
fn scanned2() -> Known {
    let shapes: [&[usize]; 5] = [&[2, 5, 4, 3], &[2, 5, 4], &[4], &[2, 5, 2, 6], &[2, 5, 2, 6]];
    Known::new(
        "selective_scan2",
        &shapes,
        |x| Ok(selective_scan2(&x[0], &x[1], &x[2], &x[3], &x[4], None, None)?.0),
        |x| {
            Tensor::from_fn(&[2, 5, 4, 3], |i| {
                let (b, last, h, row) = (i[0], i[1], i[2], i[3]);
                let mut state = [0.0; 6];
                for t in 0..=last {
                    let dt = x[1].at(&[b, t, h]);
                    for (n, state) in state.iter_mut().enumerate() {
                        let kept = (dt * x[2].at(&[h])).exp() * *state;
                        *state = kept + dt * x[0].at(&[b, t, h, row]) * x[3].at(&[b, t, h / 2, n]);
                    }
                }
                (0..6).map(|n| state[n] * x[4].at(&[b, last, h / 2, n])).sum()
            })
        },
    )
    .with(|case| case.range(-0.9..0.9).tolerance(Tolerance::Because(8.0, GROWING)))
}
