//! The router: ties on both devices, groups as mlx-lm has them, and errors.

use super::{ExpertGroups, Router, Scores, Ties, combine_experts, router};
use crate::array::{Array, DType};
use crate::device::{Device, with_device};
use crate::error::Result;

#[test]
fn of_equal_experts_the_first_are_chosen_on_every_device() -> Result<()> {
    let mut devices = vec![Device::cpu()];
    devices.extend(Device::gpu().ok());
    for device in devices {
        with_device(&device, || {
            let equal = Array::ones(&[2, 300], DType::F32)?;
            let chosen =
                |ties| router(&equal, &Router { ties, ..Router::new(3) })?.indices.to_vec::<u32>();
            assert_eq!(chosen(Ties::LowerFirst)?, [0, 1, 2, 0, 1, 2]);
            assert_eq!(chosen(Ties::HigherFirst)?, [297, 298, 299, 297, 298, 299]);
            // Zeros of either sign are equal.
            let logits = Array::new([[-0.0f32, 1.0, 0.0, -0.0]])?;
            let best = router(&logits, &Router { scores: Scores::Sigmoid, ..Router::new(3) })?;
            assert_eq!(best.indices.to_vec::<u32>()?, [1, 0, 2]);
            // Groups of equal scores, too.
            let groups = Some(ExpertGroups { count: 100, keep: 2, best: 1 });
            let best = router(&equal, &Router { groups, ..Router::new(4) })?;
            assert_eq!(best.indices.to_vec::<u32>()?[..4], [0, 1, 2, 3]);
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn groups_and_a_bias_choose_as_deepseek_does() -> Result<()> {
    let logits = Array::new([
        [0.5f32, -1.0, 2.0, 0.25, 1.5, 1.5, -0.5, 3.0],
        [1.0, 1.0, 1.0, 1.0, -2.0, 0.0, 0.75, 0.5],
    ])?;
    let bias = Array::new([0.0f32, 0.3, -0.2, 0.1, 0.0, 0.05, 0.6, -0.9])?;
    let routes = router(
        &logits,
        &Router {
            scores: Scores::Sigmoid,
            renormalise: true,
            groups: Some(ExpertGroups { count: 4, keep: 2, best: 2 }),
            bias: Some(&bias),
            scale: 2.5,
            ..Router::new(3)
        },
    )?;
    assert_eq!(routes.indices.to_vec::<u32>()?, [5, 4, 2, 1, 3, 0]);
    let expected = [0.8123927, 0.8123927, 0.8752146, 0.8333334, 0.8333334, 0.8333334];
    for (got, want) in routes.weights.to_vec::<f32>()?.into_iter().zip(expected) {
        assert!((got - want).abs() < 1e-6, "{got} and {want}");
    }
    Ok(())
}

#[test]
fn more_experts_than_a_workgroup_holds_are_chosen_by_groups_and_a_bias_on_every_device()
-> Result<()> {
    const EXPERTS: usize = 1100;
    const GROUP: usize = 100;
    let spread = |factor: usize, size: f32| -> Vec<f32> {
        (0..EXPERTS).map(|i| ((i * factor % EXPERTS) as f32 / 550.0 - 1.0) * size).collect()
    };
    let rows = [spread(7, 3.0), spread(373, 2.0)];
    let bias = spread(57, 0.3);
    for device in crate::testing::devices() {
        for dtype in [DType::F32, DType::BF16] {
            let array =
                |x: &[f32], shape: &[usize]| Array::from_slice_on(x, shape, &device)?.astype(dtype);
            let (logits, bias) = (array(&rows.concat(), &[2, EXPERTS])?, array(&bias, &[EXPERTS])?);
            let held = |x: &Array| x.astype(DType::F32)?.to_vec::<f32>();
            let options = Router {
                scores: Scores::Sigmoid,
                groups: Some(ExpertGroups { count: EXPERTS / GROUP, keep: 4, best: 2 }),
                bias: Some(&bias),
                renormalise: true,
                ..Router::new(6)
            };
            let routes = router(&logits, &options)?;
            let (indices, weights) = (routes.indices.to_vec::<u32>()?, held(&routes.weights)?);
            let (logits, bias) = (held(&logits)?, held(&bias)?);
            for (row, logits) in logits.chunks(EXPERTS).enumerate() {
                let scores: Vec<f32> = logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
                let preferred: Vec<f32> = scores.iter().zip(&bias).map(|(s, b)| s + b).collect();
                let best_of_group = |group: usize| {
                    let mut own = preferred[group * GROUP..][..GROUP].to_vec();
                    own.sort_by(|a, b| b.total_cmp(a));
                    own[0] + own[1]
                };
                let mut groups: Vec<usize> = (0..EXPERTS / GROUP).collect();
                groups.sort_by(|&a, &b| best_of_group(b).total_cmp(&best_of_group(a)));
                let of_groups = |&expert: &usize| groups[..4].contains(&(expert / GROUP));
                let mut experts: Vec<usize> = (0..EXPERTS).filter(of_groups).collect();
                experts.sort_by(|&a, &b| preferred[b].total_cmp(&preferred[a]));
                let total: f32 = experts[..6].iter().map(|&expert| scores[expert]).sum();
                for (place, &expert) in experts[..6].iter().enumerate() {
                    let (index, weight) = (indices[6 * row + place], weights[6 * row + place]);
                    assert_eq!(index as usize, expert, "row {row}, {dtype} on {device}");
                    let want = scores[expert] / total;
                    assert!((weight - want).abs() < 1e-6, "{weight} and {want} on {device}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn the_weights_of_experts_are_scaled_behind_their_sum_on_every_device() -> Result<()> {
    for device in crate::testing::devices() {
        with_device(&device, || {
            let logits = Array::new([[1.0f32, 1.0, 0.0], [0.0, 1.0, 1.0]])?;
            let scale = Array::new([2.0f32, 3.0, 10.0])?;
            let options = Router {
                expert_scale: Some(&scale),
                renormalise: true,
                scale: 2.0,
                ..Router::new(2)
            };
            let weights = router(&logits, &options)?.weights;
            assert_eq!(weights.to_vec::<f32>()?, [2.0, 3.0, 3.0, 10.0], "{device}");
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn results_of_experts_that_are_integers_are_errors_instead_of_cut_off_sums() -> Result<()> {
    let y = Array::ones(&[2, 3, 4], DType::I32)?;
    let weights = Array::ones(&[2, 3], DType::F32)?;
    let error = combine_experts(&y, &weights).unwrap_err();
    assert!(matches!(error, crate::Error::Dtype { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("combine_experts") && text.contains("int32"), "{text}");
    Ok(())
}

#[test]
fn options_that_do_not_fit_are_errors_with_the_numbers() -> Result<()> {
    let logits = Array::ones(&[2, 6], DType::F32)?;
    let bias = Array::ones(&[5], DType::F32)?;
    let groups = |count, keep, best| Router {
        groups: Some(ExpertGroups { count, keep, best }),
        ..Router::new(4)
    };
    for (options, expected) in [
        (Router::new(7), "k: expected 1 to 6, the number of experts, got 7"),
        (Router::new(0), "k: expected 1 to 6, the number of experts, got 0"),
        (groups(4, 1, 1), "groups.count: expected a divisor of 6, the number of experts, got 4"),
        (groups(3, 1, 1), "groups.keep: expected 2 to 3, got 1"),
        (groups(3, 4, 1), "groups.keep: expected 2 to 3, got 4"),
        (groups(3, 2, 3), "groups.best: expected 1 to 2, got 3"),
        (Router { bias: Some(&bias), ..Router::new(2) }, "bias: expected [6], got [5]"),
        (
            Router { expert_scale: Some(&bias), ..Router::new(2) },
            "expert_scale: expected [6], got [5]",
        ),
    ] {
        let error = router(&logits, &options).map(|_| ()).unwrap_err().to_string();
        let (argument, numbers) = expected.split_once(": expected ").unwrap();
        let (wanted, got) = numbers.split_once(", got ").unwrap();
        assert!(error.contains(argument) && error.contains(wanted), "{error}");
        assert!(error.ends_with(&format!("got {got}")), "{error}");
    }
    Ok(())
}
