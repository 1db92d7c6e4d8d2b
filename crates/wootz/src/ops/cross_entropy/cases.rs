//! Cases of losses over a vocabulary for the harness.

use super::{
    CrossEntropy, CrossEntropyBackward, CrossEntropyOptions, KlDivergence, KlDivergenceBackward,
    KlDivergenceOptions, KlSide, cross_entropy_with, kl_divergence, kl_divergence_with, wide,
};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::op::{Case, Entry, Op, Tolerance, evaluate_argument};

const SMOOTHING: f64 = 0.1;

/// Cases of the operations and of their gradients.
pub(crate) fn entries() -> Vec<Entry> {
    let entry = |name: &'static str, cases: Vec<Case>| Entry { name, cases };
    let summed = |case: Case| case.tolerance(Tolerance::Reduction);
    let forward = |label: &str, shape: &'static [usize], options: CrossEntropyOptions<'static>| {
        let (rows, classes) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
        summed(Case::new(label, &[shape, rows], move |x| {
            Ok(vec![cross_entropy_with(&x[0], &x[1], &options)?])
        }))
        .fixed(1, DType::I32, 0.0..classes as f64)
    };
    let plain = CrossEntropyOptions::default();
    let smooth = CrossEntropyOptions { label_smoothing: SMOOTHING, ..plain };
    let cross_entropy = vec![
        forward("rows", &[3, 5], plain),
        forward("one class", &[4, 1], plain),
        forward("no rows", &[0, 4], plain),
        forward("smoothed", &[2, 3, 17], smooth),
        forward("ignored", &[6, 3], CrossEntropyOptions { ignore_index: Some(1), ..smooth }),
        summed(Case::new("pieces, both results", &[&[2, 1025], &[2]], |x| {
            all_results(CrossEntropy::new(0.0, None, false), x)
        }))
        .fixed(1, DType::U32, 0.0..1025.0),
        summed(Case::new("masked, both results", &[&[7, 5], &[7], &[7]], |x| {
            all_results(CrossEntropy::new(0.0, None, true), x)
        }))
        .fixed(1, DType::I64, 0.0..5.0)
        .fixed(2, DType::Bool, 0.0..2.0),
    ];
    let backward = |label: &str, shape: &'static [usize], op: CrossEntropyBackward| {
        let rows = &shape[..shape.len() - 1];
        let case =
            Case::new(label, &[shape, rows, rows, rows, rows], move |x| with_numbers(op, x, 2));
        let mut case = summed(case).fixed(1, DType::U8, 0.0..shape[shape.len() - 1] as f64);
        // Above any logit, because powers are at most 1.
        case.inputs[2].range = 2.5..4.0;
        case
    };
    let cross_entropy_backward = vec![
        backward("rows", &[3, 5], CrossEntropyBackward::new(0.0, None, false)),
        backward("pieces", &[2, 1025], CrossEntropyBackward::new(0.0, None, false)),
        backward(
            "smoothed, ignored",
            &[6, 3],
            CrossEntropyBackward::new(SMOOTHING, Some(1), false),
        ),
    ];
    let divergence = |shape: &'static [usize]| {
        summed(Case::new(format!("{shape:?}"), &[shape, shape], |x| {
            Ok(vec![kl_divergence(&x[0], &x[1])?])
        }))
    };
    let kl = vec![
        divergence(&[3, 5]),
        divergence(&[2, 4, 2]),
        divergence(&[0, 4]),
        summed(Case::new("pieces, all results", &[&[2, 1025], &[2, 1025]], |x| {
            all_results(KlDivergence { masked: false }, x)
        })),
        summed(Case::new("masked", &[&[2, 3, 6], &[2, 3, 6], &[2, 3]], |x| {
            let options = KlDivergenceOptions { mask: Some(&x[2]) };
            Ok(vec![kl_divergence_with(&x[0], &x[1], &options)?])
        }))
        .fixed(2, DType::Bool, 0.0..2.0),
        summed(Case::new("masked, all results", &[&[7, 5], &[7, 5], &[7]], |x| {
            all_results(KlDivergence { masked: true }, x)
        }))
        .fixed(2, DType::Bool, 0.0..2.0),
    ];
    let divergence_backward = |side: KlSide, masked: bool| {
        let rows: &[usize] = &[3];
        let mut shapes: Vec<&[usize]> = vec![&[3, 9], &[3, 9], rows, rows, rows, rows];
        let mut label = format!("{side:?}");
        if masked {
            shapes.push(rows);
            label.push_str(", masked");
        }
        let first = 2 + masked as usize;
        let mut case = summed(Case::new(label, &shapes, move |x| {
            with_numbers(KlDivergenceBackward { side, masked }, x, first)
        }));
        for lse in first + 1..first + 3 {
            case.inputs[lse].range = 2.5..4.0;
        }
        if masked { case.fixed(2, DType::Bool, 0.0..2.0) } else { case }
    };
    let kl_backward = [false, true].into_iter().flat_map(|masked| {
        [KlSide::Targets, KlSide::Predictions].map(|side| divergence_backward(side, masked))
    });
    vec![
        entry("cross_entropy", cross_entropy),
        entry("cross_entropy_backward", cross_entropy_backward),
        entry("kl_divergence", kl),
        entry("kl_divergence_backward", kl_backward.collect()),
    ]
}

/// All results of an operation.
fn all_results(op: impl Op, x: &[Array]) -> Result<Vec<Array>> {
    let inputs = x.iter().map(Array::contiguous).collect::<Result<Vec<_>>>()?;
    Ok(Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?.into_vec())
}

/// Applies an operation whose inputs from `first` on are numbers in the wide type.
fn with_numbers(op: impl Op, x: &[Array], first: usize) -> Result<Vec<Array>> {
    let dtype = wide(x[0].dtype());
    let mut inputs = Vec::new();
    for (index, x) in x.iter().enumerate() {
        let x = if index < first { x.contiguous()? } else { x.astype(dtype)?.contiguous()? };
        if index >= first {
            evaluate_argument(&x)?;
        }
        inputs.push(x);
    }
    all_results(op, &inputs)
}
