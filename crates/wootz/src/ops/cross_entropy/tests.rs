//! Losses over a vocabulary against plain loops in double precision, on both devices.

use super::*;
use crate::autograd::{grad, vjp};
use crate::ops::{sum, to_device};
use crate::testing::devices;

/// Elements that look random, in ±`size`.
fn numbers(count: usize, size: f32) -> Vec<f32> {
    let mut state = 7u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * size
    };
    (0..count).map(|_| next()).collect()
}

fn lse(row: &[f32]) -> f64 {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
    most + row.iter().map(|&x| (x as f64 - most).exp()).sum::<f64>().ln()
}

fn assert_close(got: &Array, want: &[f64], allowed: f64) -> Result<()> {
    let got = got.astype(DType::F32)?.to_vec::<f32>()?;
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (*got as f64 - want).abs();
        assert!(error <= allowed * want.abs().max(1.0), "element {i} is {got}, expected {want}");
    }
    Ok(())
}

/// Scores of magnitude 50 in more than one piece of a row, with labels that do not count.
#[test]
fn losses_and_gradients_are_those_of_double_precision() -> Result<()> {
    let (rows, classes) = (4, 2501);
    let values = numbers(rows * classes, 50.0);
    let labels = [2500i32, -100, 0, 1300];
    for device in devices() {
        for (dtype, loose) in [(DType::F32, 2e-5), (DType::F16, 1e-3), (DType::BF16, 8e-3)] {
            for smoothing in [0.0, 0.1] {
                let x = Array::from_slice_on(&values, &[rows, classes], &device)?.astype(dtype)?;
                let held = x.astype(DType::F32)?.to_vec::<f32>()?;
                let targets = Array::from_slice_on(&labels, &[rows], &device)?;
                let options = CrossEntropyOptions {
                    label_smoothing: smoothing,
                    ignore_index: Some(-100),
                    mask: None,
                };
                let (mut want, mut gradient) = (Vec::new(), Vec::new());
                for (row, &label) in held.chunks(classes).zip(&labels) {
                    let (lse, counts) = (lse(row), label != -100);
                    let mean = row.iter().map(|&x| x as f64).sum::<f64>() / classes as f64;
                    let of_label = if counts { row[label as usize] as f64 } else { 0.0 };
                    let loss = lse - (1.0 - smoothing) * of_label - smoothing * mean;
                    want.push(if counts { loss } else { 0.0 });
                    gradient.extend(row.iter().enumerate().map(|(class, &x)| {
                        let hot = if class as i32 == label { 1.0 - smoothing } else { 0.0 };
                        let target = hot + smoothing / classes as f64;
                        if counts { 3.0 * ((x as f64 - lse).exp() - target) } else { 0.0 }
                    }));
                }
                let loss = |x: &[Array]| Ok(vec![cross_entropy_with(&x[0], &targets, &options)?]);
                let g = to_device(&Array::new([3.0f32; 4])?, &device)?;
                let (losses, gradients) = vjp(loss, &[x], &[g])?;
                assert_eq!(losses[0].dtype(), DType::F32);
                assert_close(&losses[0], &want, 2e-5)?;
                assert_eq!(gradients[0].dtype(), dtype);
                assert_close(&gradients[0], &gradient, loose)?;
            }
        }
    }
    Ok(())
}

#[test]
fn rows_that_do_not_count_may_hold_anything() -> Result<()> {
    for device in devices() {
        let x = [f32::NAN, 1.0, 2.0, 3.0];
        let x = Array::from_slice_on(&x, &[2, 2], &device)?;
        let targets = to_device(&Array::new([77i64, 1])?, &device)?;
        let mask = to_device(&Array::new([false, true])?, &device)?;
        let loss = |x: &Array| {
            let options = CrossEntropyOptions { mask: Some(&mask), ..Default::default() };
            cross_entropy_with(x, &targets, &options)
        };
        let want = (1.0 + (-1.0f64).exp()).ln();
        assert_close(&loss(&x)?, &[0.0, want], 1e-6)?;
        let chance = 1.0 / (1.0 + 1f64.exp());
        let gradient = grad(|x: &[Array]| sum(&loss(&x[0])?, (), false))(&[x])?;
        assert_close(&gradient[0], &[0.0, 0.0, chance, -chance], 1e-6)?;
    }
    Ok(())
}

#[test]
fn labels_out_of_range_are_errors_with_the_numbers() -> Result<()> {
    for device in devices() {
        let x = to_device(&Array::zeros(&[3, 4], DType::F32)?, &device)?;
        let cases = [
            (Array::new([0i32, 3, 4])?, "4"),
            (Array::new([0i32, -1, 3])?, "-1"),
            (Array::new([0i64, 2, -100])?, "-100"),
            (Array::new([0i64, 100_000, 3])?, "100000"),
            (Array::new([0u8, 200, 3])?, "200"),
        ];
        for (labels, number) in cases {
            let labels = to_device(&labels, &device)?;
            let error = cross_entropy(&x, &labels)?.to_vec::<f32>().unwrap_err().to_string();
            assert!(error.contains(number) && error.contains("cross_entropy"), "{error}");
        }
        let flat = to_device(&Array::new([0, 1])?, &device)?;
        let error = cross_entropy(&x, &flat).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("[3]") && error.contains("[2]")));
        let floats = to_device(&Array::new([0.0f32, 1.0, 2.0])?, &device)?;
        assert!(cross_entropy(&x, &floats).is_err());
        let options = CrossEntropyOptions { label_smoothing: 1.5, ..Default::default() };
        let labels = to_device(&Array::new([0, 1, 2])?, &device)?;
        assert!(cross_entropy_with(&x, &labels, &options).is_err());
    }
    Ok(())
}

#[test]
fn divergences_and_gradients_are_those_of_double_precision() -> Result<()> {
    let (rows, classes) = (3, 2051);
    let both = numbers(2 * rows * classes, 20.0);
    let (p, q) = both.split_at(rows * classes);
    let (mut want, mut of_p, mut of_q) = (Vec::new(), Vec::new(), Vec::new());
    for (p, q) in p.chunks(classes).zip(q.chunks(classes)) {
        let (p_lse, q_lse) = (lse(p), lse(q));
        let logs: Vec<(f64, f64)> =
            p.iter().zip(q).map(|(&p, &q)| (p as f64 - p_lse, q as f64 - q_lse)).collect();
        let divergence: f64 = logs.iter().map(|(p, q)| p.exp() * (p - q)).sum();
        want.push(divergence);
        of_p.extend(logs.iter().map(|(p, q)| p.exp() * (p - q - divergence)));
        of_q.extend(logs.iter().map(|(p, q)| q.exp() - p.exp()));
    }
    for device in devices() {
        let [p, q] = [p, q].map(|x| Array::from_slice_on(x, &[rows, classes], &device));
        let g = to_device(&Array::new([1.0f32; 3])?, &device)?;
        let divergence = |x: &[Array]| Ok(vec![kl_divergence(&x[0], &x[1])?]);
        let (found, gradients) = vjp(divergence, &[p?, q?], &[g])?;
        assert_close(&found[0], &want, 2e-5)?;
        assert_close(&gradients[0], &of_p, 2e-5)?;
        assert_close(&gradients[1], &of_q, 2e-5)?;
    }
    Ok(())
}

#[test]
fn rows_of_distributions_that_do_not_count_may_hold_anything() -> Result<()> {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let p = [[nan, 1.0, 2.0], [0.0, 1.0, 2.0], [inf, -inf, 0.0]];
    let q = [[1.0, 2.0, 3.0], [2.0, 0.0, 1.0], [nan, inf, -inf]];
    for device in devices() {
        let mask = to_device(&Array::new([false, true, false])?, &device)?;
        for dtype in [DType::F32, DType::BF16] {
            let [p, q] = [p, q]
                .map(|x| Array::from_slice_on(x.as_flattened(), &[3, 3], &device)?.astype(dtype));
            let inputs = [p?, q?];
            let of = |x: &[Array]| {
                kl_divergence_with(&x[0], &x[1], &KlDivergenceOptions { mask: Some(&mask) })
            };
            let alone = |x: &[Array]| kl_divergence(&x[0], &x[1]);
            let row = [inputs[0].index(1..2)?, inputs[1].index(1..2)?];
            let divergence = of(&inputs)?.to_vec::<f32>()?;
            assert_eq!([divergence[0], divergence[2]], [0.0; 2], "{dtype} on {device}");
            assert_eq!(divergence[1], alone(&row)?.item::<f32>()?, "{dtype} on {device}");
            let slopes = |f: &dyn Fn(&[Array]) -> Result<Array>, x: &[Array]| {
                let loss = |x: &[Array]| sum(&f(x)?, (), false);
                let wide = |x: &Array| x.astype(DType::F32)?.to_vec::<f32>();
                grad(loss)(x)?.iter().map(wide).collect::<Result<Vec<_>>>()
            };
            let (all, own) = (slopes(&of, &inputs)?, slopes(&alone, &row)?);
            for (all, own) in all.iter().zip(&own) {
                assert_eq!(&all[3..6], own, "{dtype} on {device}");
                let others = [&all[..3], &all[6..]].concat();
                assert_eq!(others, [0.0; 6], "{dtype} on {device}");
            }
        }
    }
    Ok(())
}

#[test]
fn infinite_logits_are_certain_or_impossible() -> Result<()> {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for device in devices() {
        let rows = [[1.0, inf, 3.0], [-inf, -inf, -inf], [0.0, -inf, 0.0], [0.0, nan, 0.0]];
        let x = Array::from_slice_on(rows.as_flattened(), &[4, 3], &device)?;
        let labels = to_device(&Array::new([0, 1, 1, 0])?, &device)?;
        let loss = cross_entropy(&x, &labels)?.to_vec::<f32>()?;
        // As in MLX.
        assert!(
            loss[0] == inf && loss[1].is_nan() && loss[2] == inf && loss[3].is_nan(),
            "{loss:?}"
        );
        let certain = Array::from_slice_on(&[0.0, -inf], &[1, 2], &device)?;
        let even = Array::from_slice_on(&[0.0f32, 0.0], &[1, 2], &device)?;
        let ln2 = std::f32::consts::LN_2;
        assert!((kl_divergence(&certain, &even)?.item::<f32>()? - ln2).abs() < 1e-6);
        assert_eq!(kl_divergence(&even, &certain)?.item::<f32>()?, inf);
    }
    Ok(())
}
