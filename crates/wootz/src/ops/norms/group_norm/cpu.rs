//! Normalisation of groups on the CPU: a thread takes whole samples. Sums go down the columns, which
//! are vector lanes, by blocks of positions.

use half::{bf16, f16};

use super::super::rows::Element;
use super::{Groups, Sizes};
use crate::array::DType;
use crate::cpu::simd::dispatch;
use crate::cpu::simd::rows::Float;
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};

/// Positions that are summed before their sum joins the others: long sums stay exact.
const BLOCK: usize = 64;

/// Runs a kernel for the dtype of the call's first input.
macro_rules! for_dtype {
    ($call:expr, $kernel:ident, $norm:expr) => {
        match $call.meta(0).dtype {
            DType::F32 => $kernel::<f32>($call, $norm),
            DType::F64 => $kernel::<f64>($call, $norm),
            DType::F16 => $kernel::<f16>($call, $norm),
            DType::BF16 => $kernel::<bf16>($call, $norm),
            other => Err(Error::dtype($call.op.name(), "x", "a floating-point type", other)),
        }
    };
}

pub(super) fn forward(call: &mut CpuCall<'_>, norm: Groups) -> Result<()> {
    for_dtype!(call, forward_as, norm)
}

pub(super) fn backward(call: &mut CpuCall<'_>, norm: Groups) -> Result<()> {
    for_dtype!(call, backward_as, norm)
}

fn forward_as<T: Element>(call: &mut CpuCall<'_>, norm: Groups) -> Result<()> {
    let sizes = Sizes::new(call.meta(0));
    let sample = sizes.positions * sizes.features;
    let x = call.input::<T>(0)?;
    let weight = norm.weight().map(|input| call.input::<T>(input)).transpose()?;
    let bias = norm.bias().map(|input| call.input::<T>(input)).transpose()?;
    threads::chunks_mut(call.output::<T>(0)?, sample, |index, y| {
        let x = &x[index * sample..][..y.len()];
        let Moments { mean, r } = Moments::of(x, norm, sizes);
        let rows = x.chunks_exact(sizes.features).zip(y.chunks_exact_mut(sizes.features));
        dispatch(|| {
            for (x, y) in rows {
                for (i, (x, y)) in x.iter().zip(y).enumerate() {
                    let normal = (x.widen() - mean[i]) * r[i];
                    let scaled = weight.map_or(normal, |weight| normal * weight[i].widen());
                    *y = T::narrow(bias.map_or(scaled, |bias| scaled + bias[i].widen()));
                }
            }
        });
    });
    Ok(())
}

/// The mean of each feature's group, and one over the root of its variance.
struct Moments<W> {
    mean: Vec<W>,
    r: Vec<W>,
}

impl<W: Float> Moments<W> {
    fn of<T: Element<Wide = W>>(x: &[T], norm: Groups, sizes: Sizes) -> Moments<W> {
        let count = W::from_f64((sizes.positions * sizes.features / norm.groups) as f64);
        let rows = || x.chunks_exact(sizes.features);
        // About one of a group's numbers: where all are alike, the mean is exactly that.
        let mut shift: Vec<W> = x[..sizes.features].iter().map(|x| x.widen()).collect();
        over_groups(norm, &mut shift, |first, _| first);
        let terms = |x: &&[T], i: usize, _: usize| [x[i].widen() - shift[i], W::ZERO];
        let [mut mean, _] = column_sums(sizes, rows(), terms);
        over_groups(norm, &mut mean, |_, sum| sum / count);
        mean.iter_mut().zip(&shift).for_each(|(mean, shift)| *mean = *mean + *shift);
        let [mut r, _] = column_sums(sizes, rows(), |x, i, _| {
            let centred = x[i].widen() - mean[i];
            [centred * centred, W::ZERO]
        });
        let eps = W::from_f64(norm.eps as f64);
        over_groups(norm, &mut r, |_, sum| W::ONE / (sum / count + eps).sqrt());
        Moments { mean, r }
    }
}

/// Two sums down each column, by blocks of rows; `terms` tells what a row adds to column `i`.
fn column_sums<W: Float, R>(
    sizes: Sizes,
    rows: impl Iterator<Item = R>,
    terms: impl Fn(&R, usize, usize) -> [W; 2],
) -> [Vec<W>; 2] {
    let zeros = || vec![W::ZERO; sizes.features];
    let ([mut first, mut second], [mut one, mut two]) = ([zeros(), zeros()], [zeros(), zeros()]);
    let mut add = |one: &mut [W], two: &mut [W]| {
        for (total, part) in [(&mut first, one), (&mut second, two)] {
            for (total, part) in total.iter_mut().zip(part) {
                *total = *total + *part;
                *part = W::ZERO;
            }
        }
    };
    for (number, row) in rows.enumerate() {
        let (one, two) = (&mut one[..], &mut two[..]);
        dispatch(|| {
            for (i, (one, two)) in one.iter_mut().zip(two.iter_mut()).enumerate() {
                let [first, second] = terms(&row, i, number);
                *one = *one + first;
                *two = *two + second;
            }
        });
        if number % BLOCK == BLOCK - 1 {
            add(one, two);
        }
    }
    add(&mut one, &mut two);
    [first, second]
}

/// Replaces each column's number by a function of its group's first and of the sum over the group.
fn over_groups<W: Float>(norm: Groups, columns: &mut [W], function: impl Fn(W, W) -> W) {
    let size = columns.len() / norm.groups;
    for group in 0..norm.groups {
        let place =
            |i: usize| if norm.neighbours { group * size + i } else { i * norm.groups + group };
        let sum = (0..size).fold(W::ZERO, |sum, i| sum + columns[place(i)]);
        let value = function(columns[place(0)], sum);
        (0..size).for_each(|i| columns[place(i)] = value);
    }
}

fn backward_as<T: Element>(call: &mut CpuCall<'_>, norm: Groups) -> Result<()> {
    let sizes = Sizes::new(call.meta(0));
    let Sizes { batch, positions, features } = sizes;
    let sample = positions * features;
    let (x, dy) = (call.input::<T>(0)?, call.input::<T>(norm.cotangent())?);
    let weight: Vec<T::Wide> = match norm.weight() {
        Some(input) => call.input::<T>(input)?.iter().map(|weight| weight.widen()).collect(),
        None => vec![T::Wide::ONE; features],
    };
    // Of each sample the sums of `dy` and of `dy` times the normalised values, for each feature.
    let (dx, partials) = call.output_and_scratch::<T, T::Wide>(0)?;
    let partials = &mut partials[..2 * batch * features];
    if sample == 0 {
        partials.fill(T::Wide::ZERO);
    } else {
        threads::chunks2_mut(dx, sample, partials, 2 * features, |index, dx, partials| {
            let [x, dy] = [x, dy].map(|x| &x[index * sample..][..sample]);
            let moments = Moments::of(x, norm, sizes);
            sample_backward(norm, sizes, &moments, &weight, [x, dy], dx, partials);
        });
    }
    let partials = partials.to_vec();
    let sums = [(norm.weighted, 1), (norm.biased, 0)].into_iter().filter(|(there, _)| *there);
    for (output, (_, part)) in sums.enumerate() {
        let mut total = vec![T::Wide::ZERO; features];
        for sums in partials.chunks_exact(2 * features) {
            for (total, &sum) in total.iter_mut().zip(&sums[part * features..]) {
                *total = *total + sum;
            }
        }
        T::narrow_slice(&total, call.output::<T>(1 + output)?);
    }
    Ok(())
}

fn sample_backward<T: Element>(
    norm: Groups,
    sizes: Sizes,
    moments: &Moments<T::Wide>,
    weight: &[T::Wide],
    [x, dy]: [&[T]; 2],
    dx: &mut [T],
    partials: &mut [T::Wide],
) {
    let features = sizes.features;
    let Moments { mean, r } = moments;
    let rows = || x.chunks_exact(features).zip(dy.chunks_exact(features));
    let [of_dy, of_normal] = column_sums(sizes, rows(), |(x, dy), i, _| {
        let dy = dy[i].widen();
        [dy, dy * ((x[i].widen() - mean[i]) * r[i])]
    });
    partials[..features].copy_from_slice(&of_dy);
    partials[features..].copy_from_slice(&of_normal);
    let count = <T::Wide as Float>::from_f64((sizes.positions * features / norm.groups) as f64);
    let of_groups = |sums: &[T::Wide]| {
        let mut terms: Vec<T::Wide> = sums.iter().zip(weight).map(|(&a, &b)| a * b).collect();
        over_groups(norm, &mut terms, |_, sum| sum / count);
        terms
    };
    let (level, slope) = (of_groups(&of_dy), of_groups(&of_normal));
    dispatch(|| {
        for ((x, dy), dx) in rows().zip(dx.chunks_exact_mut(features)) {
            for (i, dx) in dx.iter_mut().enumerate() {
                let normal = (x[i].widen() - mean[i]) * r[i];
                let term = dy[i].widen() * weight[i] - level[i] - normal * slope[i];
                *dx = T::narrow(term * r[i]);
            }
        }
    });
}
