//! Experts: plain loops over doubles.

use wootz::op::Tolerance;
use wootz::{Array, DType, ExpertGroups, Result, Router, Routes, Scores, combine_experts, router};

use super::tensor::Tensor;
use super::{Function, Known};

pub(crate) fn cases() -> Vec<Known> {
    vec![
        routed("softmax", || Router { renormalise: true, scale: 2.0, ..Router::new(3) }),
        routed("groups", || Router {
            scores: Scores::Sigmoid,
            groups: Some(ExpertGroups { count: 4, keep: 2, best: 2 }),
            ..Router::new(4)
        }),
        scaled(),
        combined(|weights| Ok(weights.clone())),
        combined(|weights| weights.astype(DType::promote(weights.dtype(), DType::F32)))
            .label("wide weights"),
    ]
}

/// Experts' results with weights that become something else first.
fn combined(weights: fn(&Array) -> Result<Array>) -> Known {
    let call = move |x: &[Array]| combine_experts(&x[0], &weights(&x[1])?);
    let known = Known::new("combine_experts", &[&[3, 4, 5], &[3, 4]], call, |x| {
        Tensor::from_fn(&[3, 5], |i| {
            (0..4).map(|j| x[0].at(&[i[0], j, i[1]]) * x[1].at(&[i[0], j])).sum()
        })
    });
    known.with(|case| case.tolerance(Tolerance::Contraction))
}

/// The router with a factor for each of six experts.
fn scaled() -> Known {
    let mut known = Known::new("router", &[&[5, 6], &[6]], |x| Ok(x[0].clone()), |x| x[0].clone());
    known.case.call = wootz::op::CaseCall(Box::new(|x: &[Array]| {
        let options = Router { expert_scale: Some(&x[1]), renormalise: true, ..Router::new(2) };
        let Routes { indices, weights } = router(&x[0], &options)?;
        Ok(vec![indices, weights])
    }));
    known.function = Function::new(|x, _| {
        let (mut indices, mut weights) = (Vec::new(), Vec::new());
        for row in x[0].data.chunks(6) {
            let mut order: Vec<usize> = (0..6).collect();
            order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
            let sum = row[order[0]].exp() + row[order[1]].exp();
            for &i in &order[..2] {
                indices.push(i as f64);
                weights.push(row[i].exp() / sum * x[1].data[i]);
            }
        }
        let shape = vec![5, 2];
        vec![Tensor { shape: shape.clone(), data: indices }, Tensor { shape, data: weights }]
    });
    let single = |case: wootz::op::Case| case.dtypes(&[DType::F32]);
    known.label("scale of each expert").with(|case| single(case).tolerance(Tolerance::Reduction))
}

/// The router on rows of twelve experts, which sorts indices by score and then by number.
fn routed(label: &str, options: fn() -> Router<'static>) -> Known {
    let mut known = Known::new("router", &[&[5, 12]], |x| Ok(x[0].clone()), |x| x[0].clone());
    known.case.call = wootz::op::CaseCall(Box::new(move |x: &[Array]| {
        let Routes { indices, weights } = router(&x[0], &options())?;
        Ok(vec![indices, weights])
    }));
    known.function = Function::new(move |x, _| {
        let Router { k, scores, renormalise, groups, scale, .. } = options();
        let (mut indices, mut weights) = (Vec::new(), Vec::new());
        for row in x[0].data.chunks(12) {
            let all: f64 = row.iter().map(|x| x.exp()).sum();
            let score = |x: &f64| match scores {
                Scores::Softmax => x.exp() / all,
                Scores::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            };
            let scores: Vec<f64> = row.iter().map(score).collect();
            let falling = |of: &[f64]| {
                let mut order: Vec<usize> = (0..of.len()).collect();
                order.sort_by(|&a, &b| of[b].total_cmp(&of[a]));
                order
            };
            let mut allowed = vec![true; 12];
            if let Some(ExpertGroups { count, keep, best }) = groups {
                let size = 12 / count;
                let best_of = |group: &[f64]| -> f64 {
                    falling(group)[..best].iter().map(|&i| group[i]).sum()
                };
                let of_group: Vec<f64> = scores.chunks(size).map(best_of).collect();
                let kept = &falling(&of_group)[..keep];
                allowed = (0..12).map(|i| kept.contains(&(i / size))).collect();
            }
            let chosen: Vec<usize> =
                falling(&scores).into_iter().filter(|&i| allowed[i]).take(k).collect();
            let sum: f64 = chosen.iter().map(|&i| scores[i]).sum();
            let divisor = if renormalise { sum } else { 1.0 };
            indices.extend(chosen.iter().map(|&i| i as f64));
            weights.extend(chosen.iter().map(|&i| scores[i] / divisor * scale));
        }
        let shape = vec![5, indices.len() / 5];
        vec![Tensor { shape: shape.clone(), data: indices }, Tensor { shape, data: weights }]
    });
    // In narrow dtypes scores are equal that are not in doubles.
    known.label(label).with(|case| case.dtypes(&[DType::F32]).tolerance(Tolerance::Reduction))
}
