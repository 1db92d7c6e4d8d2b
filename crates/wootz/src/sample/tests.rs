//! Filters and penalties against plain loops in doubles, draws by their frequencies, on each device.

use super::*;
use crate::Device;
use crate::testing::devices;

const ROWS: usize = 3;
const VOCABULARY: usize = 301;

/// Log-probabilities with ties: every value of a row is there several times.
fn logprobs(device: &Device) -> (Vec<Vec<f64>>, Array) {
    let logit = |row: usize, token: usize| ((token * 53 + row * 17) % 97) as f64 * 0.07;
    let rows = (0..ROWS).map(|row| {
        let logits: Vec<f64> = (0..VOCABULARY).map(|token| logit(row, token)).collect();
        let sum: f64 = logits.iter().map(|x| x.exp()).sum();
        // As they are in the array, so that comparisons see the same ties.
        logits.iter().map(|x| f64::from((x - sum.ln()) as f32)).collect()
    });
    let rows: Vec<Vec<f64>> = rows.collect();
    let flat: Vec<f32> = rows.iter().flatten().map(|&x| x as f32).collect();
    let array = Array::from_slice_on(&flat, &[ROWS, VOCABULARY], device).unwrap();
    (rows, array)
}

/// Asserts that `filtered` is `rows` where `kept` says so, and −∞ elsewhere.
fn assert_kept(filtered: Array, rows: &[Vec<f64>], kept: impl Fn(&[f64], usize) -> bool) {
    let filtered = filtered.to_vec::<f32>().unwrap();
    let mut dropped = 0;
    for (row, values) in rows.iter().enumerate() {
        for token in 0..VOCABULARY {
            let keeps = kept(values, token);
            let expected = if keeps { values[token] as f32 } else { f32::NEG_INFINITY };
            assert_eq!(filtered[row * VOCABULARY + token], expected, "row {row}, token {token}");
            dropped += usize::from(!keeps);
        }
    }
    assert!(dropped > 0 && dropped < ROWS * VOCABULARY, "{dropped} dropped");
}

/// How many tokens of a row are more probable, or as probable with a lower index.
fn rank(values: &[f64], token: usize) -> usize {
    let better = |&other: &usize| {
        values[other] > values[token] || (values[other] == values[token] && other < token)
    };
    (0..values.len()).filter(better).count()
}

#[test]
fn filters_keep_what_their_definitions_say() {
    for device in devices() {
        let (rows, x) = logprobs(&device);
        for k in [1, 7, VOCABULARY - 1] {
            assert_kept(top_k(&x, k).unwrap(), &rows, |values, token| rank(values, token) < k);
        }
        for p in [0.1, 0.53, 0.97] {
            assert_kept(top_p(&x, p).unwrap(), &rows, |values, token| {
                // What is more probable has less than p together; ties stay together.
                let more = values.iter().filter(|&&other| other > values[token]);
                more.map(|x| x.exp()).sum::<f64>() < p * values.iter().map(|x| x.exp()).sum::<f64>()
            });
        }
        let highest = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for (p, keep) in [(0.013, 1), (0.51, 1), (0.9, 40)] {
            assert_kept(min_p(&x, p, keep).unwrap(), &rows, |values, token| {
                values[token] >= highest(values) + p.ln() || rank(values, token) < keep
            });
        }
    }
}

#[test]
fn cutoffs_of_long_rows_are_those_of_sorted_ones() {
    const LONG: usize = 20011;
    // Peaked, moderate and flat rows, one of equal numbers, and one with little that is possible.
    let spreads = [9.0f32, 2.0, 0.01, 0.0, 5.0];
    for (row, spread) in spreads.into_iter().enumerate() {
        let noise = random::normal(&[LONG], DType::F32, 0.0, spread as f64, None).unwrap();
        let mut logits = noise.to_vec::<f32>().unwrap();
        if row == 4 {
            logits[1..].iter_mut().step_by(2).for_each(|x| *x = f32::NEG_INFINITY);
        }
        let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        logits.iter_mut().for_each(|x| *x -= sum.ln() as f32);
        let x = Array::from_slice_on(&logits, &[1, LONG], &Device::cpu()).unwrap();
        let mut order: Vec<usize> = (0..LONG).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        for k in [1, 50, 400, 9000] {
            let y = top_k(&x, k).unwrap().to_vec::<f32>().unwrap();
            let mut kept = vec![false; LONG];
            order[..k].iter().for_each(|&token| kept[token] = true);
            for token in 0..LONG {
                let want = if kept[token] { logits[token] } else { f32::NEG_INFINITY };
                assert_eq!(y[token], want, "row {row}, {k} kept, token {token}");
            }
        }
        for p in [0.0, 0.3, 0.9, 0.999] {
            let y = top_p(&x, p).unwrap().to_vec::<f32>().unwrap();
            let kept = |token: usize| y[token] != f32::NEG_INFINITY;
            let mass = |tokens: &dyn Fn(usize) -> bool| -> f64 {
                (0..LONG).filter(|&t| tokens(t)).map(|t| f64::from(logits[t]).exp()).sum::<f64>()
            };
            let least = (0..LONG).filter(|&t| kept(t)).map(|t| logits[t]).fold(0.0, f32::min);
            assert!((0..LONG).all(|t| !kept(t) || y[t] == logits[t]), "row {row}, {p}");
            assert!((0..LONG).all(|t| kept(t) == (logits[t] >= least)), "row {row}, {p}");
            // Enough, and not without the least of them.
            let slack = 1e-5 * total;
            assert!(mass(&kept) >= p * total - slack, "row {row}, {p}");
            assert!(mass(&|t| logits[t] > least) <= p * total + slack, "row {row}, {p}");
        }
    }
}

#[test]
fn the_obvious_is_left_out_but_not_special_tokens() {
    for device in devices() {
        let x = Array::from_slice_on(&[0.4f32, 0.3, 0.2, 0.1].map(f32::ln), &[4], &device).unwrap();
        let mut settings = Xtc { probability: 1.0, threshold: 0.15, special_tokens: vec![] };
        let kept = |settings: &Xtc| {
            let y = xtc(&x, settings, None).unwrap().to_vec::<f32>().unwrap();
            y.iter().map(|y| y.is_finite()).collect::<Vec<bool>>()
        };
        assert_eq!(kept(&settings), [false, false, true, true]);
        settings.special_tokens = vec![0];
        assert_eq!(kept(&settings), [true, false, true, true]);
        settings.probability = 0.0;
        assert_eq!(kept(&settings), [true; 4]);
    }
}

#[test]
fn draws_follow_the_filtered_probabilities() {
    for device in devices() {
        let weights = [8.0f32, 4.0, 2.0, 1.0, 1.0];
        let row = weights.map(|w| (w / 16.0).ln());
        let many = 2000;
        let flat: Vec<f32> = (0..many).flat_map(|_| row).collect();
        let x = Array::from_slice_on(&flat, &[many, 5], &device).unwrap();
        let sampler = Sampler { temperature: 0.5, top_k: 3, ..Sampler::default() };
        let key = to_device(&random::key(3).unwrap(), &device).unwrap();
        let drawn = sampler.sample(&x, Some(&key)).unwrap().to_vec::<u32>().unwrap();
        // At half the temperature probabilities are squared: 64, 16 and 4 of 84.
        for (token, part) in [(0, 64.0 / 84.0), (1, 16.0 / 84.0), (2, 4.0 / 84.0), (3, 0.0)] {
            let count = drawn.iter().filter(|&&drawn| drawn == token).count() as f64;
            let spread = (many as f64 * part * (1.0 - part)).sqrt();
            assert!((count - many as f64 * part).abs() <= 4.0 * spread, "{token}: {count}");
        }
        let greedy = Sampler::default().sample(&x, None).unwrap().to_vec::<u32>().unwrap();
        assert_eq!(greedy, vec![0; many]);
        let again = sampler.sample(&x, Some(&key)).unwrap().to_vec::<u32>().unwrap();
        assert_eq!(drawn, again);
    }
}

/// A step as a model takes it, from logits on.
#[cfg(feature = "gpu")]
#[test]
fn only_the_tokens_travel_to_the_host() {
    // Of its own, so that its counters are too.
    let Ok(gpu) = crate::Device::gpu() else {
        return assert!(!crate::testing::ci(), "a GPU is needed");
    };
    let index = gpu.as_gpu().unwrap().summary().index;
    let device = crate::Device::gpu_with(index, &Default::default()).unwrap();
    let downloaded = || device.as_gpu().unwrap().counters().downloaded_bytes;
    let (rows, words) = (3, 100);
    let values: Vec<f32> = (0..rows * words).map(|i| ((i * 37) % 101) as f32 / 20.0).collect();
    let logits = Array::from_slice_on(&values, &[rows, words], &device).unwrap();
    let seen = Array::from_slice_on(&[1u32, 2, 1], &[3], &device).unwrap();
    let key = to_device(&random::key(3).unwrap(), &device).unwrap();
    crate::eval([&logits, &seen, &key]).unwrap();
    let xtc = Xtc { probability: 0.5, threshold: 0.1, special_tokens: vec![0] };
    let sampler = Sampler {
        temperature: 0.7,
        top_p: 0.9,
        min_p: 0.05,
        top_k: 20,
        xtc: Some(xtc),
        ..Sampler::default()
    };
    for sampler in [Sampler::default(), sampler] {
        let before = downloaded();
        let logits = repetition_penalty(&logits, &seen, 1.3).unwrap();
        let logits = presence_penalty(&logits, &seen, 0.5).unwrap();
        let logits = frequency_penalty(&logits, &seen, 0.25).unwrap();
        let logprobs = log_probabilities(&logits).unwrap();
        let tokens = sampler.sample(&logprobs, Some(&key)).unwrap();
        tokens.eval().unwrap();
        assert_eq!(downloaded() - before, 0);
        assert_eq!(tokens.to_vec::<u32>().unwrap().len(), rows);
        // And the status word.
        let came = downloaded() - before;
        assert!((4 * rows as u64..=4 * rows as u64 + 16).contains(&came), "{came} bytes");
    }
}

#[test]
fn penalties_touch_the_tokens_seen() {
    for device in devices() {
        let logits = Array::from_slice_on(&[1.0f32, -2.0, 3.0, 4.0, 0.5, 6.0], &[2, 3], &device);
        let logits = logits.unwrap();
        let seen = Array::from_slice_on(&[1u32, 2, 1], &[3], &device).unwrap();
        let list = |x: Result<Array>| x.unwrap().to_vec::<f32>().unwrap();
        let repeated = list(repetition_penalty(&logits, &seen, 2.0));
        assert_eq!(repeated, [1.0, -4.0, 1.5, 4.0, 0.25, 3.0]);
        assert_eq!(list(presence_penalty(&logits, &seen, 0.5)), [1.0, -2.5, 2.5, 4.0, 0.0, 5.5]);
        assert_eq!(list(frequency_penalty(&logits, &seen, 0.5)), [1.0, -3.0, 2.5, 4.0, -0.5, 5.5]);
        assert_eq!(list(logit_bias(&logits, &[(0, 1.5)])), [2.5, -2.0, 3.0, 5.5, 0.5, 6.0]);
        let none = Array::from_slice_on::<u32>(&[], &[0], &device).unwrap();
        assert_eq!(list(frequency_penalty(&logits, &none, 0.5)), list(Ok(logits)));
    }
}

#[test]
fn penalties_of_a_batch_touch_each_row_by_its_own_tokens() {
    for device in devices() {
        let floats = |x: &[f32], shape: &[usize]| Array::from_slice_on(x, shape, &device).unwrap();
        let tokens = |x: &[u32], shape: &[usize]| Array::from_slice_on(x, shape, &device).unwrap();
        let logits = floats(&[1.0, -2.0, 3.0, 4.0, 0.5, -6.0], &[2, 3]);
        let seen = tokens(&[1, 1, 2, 2, 0, 2], &[2, 3]);
        let list = |x: Result<Array>| x.unwrap().to_vec::<f32>().unwrap();
        let repeated = list(repetition_penalty(&logits, &seen, 2.0));
        assert_eq!(repeated, [1.0, -4.0, 1.5, 2.0, 0.5, -12.0], "{device}");
        let present = list(presence_penalty(&logits, &seen, 0.5));
        assert_eq!(present, [1.0, -2.5, 2.5, 3.5, 0.5, -6.5], "{device}");
        let frequent = list(frequency_penalty(&logits, &seen, 0.5));
        assert_eq!(frequent, [1.0, -3.0, 2.5, 3.5, 0.5, -7.0], "{device}");
        // Every row by itself is the same.
        for row in 0..2 {
            let own = (logits.index(row).unwrap(), seen.index(row).unwrap());
            let alone = list(frequency_penalty(&own.0, &own.1, 0.5));
            assert_eq!(alone, frequent[3 * row as usize..][..3], "{device}");
        }
        // Tokens of other rows than there are.
        for shape in [&[3, 2][..], &[1, 6], &[1, 2, 3]] {
            let seen = tokens(&[1, 1, 2, 2, 0, 2], shape);
            for error in [
                repetition_penalty(&logits, &seen, 2.0).unwrap_err(),
                presence_penalty(&logits, &seen, 2.0).unwrap_err(),
                frequency_penalty(&logits, &seen, 2.0).unwrap_err(),
            ] {
                let text = error.to_string();
                assert!(text.contains("[2, 3]") && text.contains(&format!("{shape:?}")), "{text}");
            }
        }
    }
}

#[test]
fn settings_of_a_sampler_that_are_out_of_range_are_named_at_any_temperature() {
    let x = Array::zeros(&[1, 5], DType::F32).unwrap();
    let xtc = |probability: f64, threshold: f64| {
        Some(Xtc { probability, threshold, special_tokens: vec![] })
    };
    for temperature in [0.0, 0.7] {
        let with = Sampler { temperature, ..Sampler::default() };
        for (sampler, argument, number) in [
            (Sampler { top_p: 1.5, ..with.clone() }, "top_p", "1.5"),
            (Sampler { top_p: -0.2, ..with.clone() }, "top_p", "-0.2"),
            (Sampler { top_p: f64::NAN, ..with.clone() }, "top_p", "NaN"),
            (Sampler { min_p: 7.0, ..with.clone() }, "min_p", "7"),
            (Sampler { min_p: -0.5, ..with.clone() }, "min_p", "-0.5"),
            (Sampler { min_p: f64::NAN, ..with.clone() }, "min_p", "NaN"),
            (Sampler { top_k: 5, ..with.clone() }, "top_k", "5"),
            (Sampler { top_k: 700, ..with.clone() }, "top_k", "700"),
            (Sampler { min_tokens_to_keep: 0, ..with.clone() }, "min_tokens_to_keep", "0"),
            (Sampler { min_tokens_to_keep: 6, ..with.clone() }, "min_tokens_to_keep", "6"),
            (Sampler { xtc: xtc(1.1, 0.1), ..with.clone() }, "probability", "1.1"),
            (Sampler { xtc: xtc(0.1, 0.6), ..with.clone() }, "threshold", "0.6"),
        ] {
            let error = sampler.sample(&x, None).unwrap_err().to_string();
            assert!(error.contains(argument) && error.ends_with(number), "{error}");
        }
        // Both ends keep all.
        for top_p in [0.0, 1.0] {
            Sampler { top_p, top_k: 4, ..with.clone() }.sample(&x, None).unwrap();
        }
    }
}

#[test]
fn bad_settings_are_named() {
    let x = Array::zeros(&[1, 5], DType::F32).unwrap();
    let errors = [
        top_k(&x, 5).unwrap_err(),
        top_k(&x, 0).unwrap_err(),
        top_p(&x, 1.5).unwrap_err(),
        min_p(&x, f64::NAN, 1).unwrap_err(),
        min_p(&x, 0.5, 6).unwrap_err(),
        repetition_penalty(&x, &Array::new([0]).unwrap(), -1.0).unwrap_err(),
        presence_penalty(&x, &Array::new([0]).unwrap(), f64::NAN).unwrap_err(),
        frequency_penalty(&x, &Array::new([0]).unwrap(), f64::INFINITY).unwrap_err(),
        Sampler { temperature: -1.0, ..Sampler::default() }.sample(&x, None).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::Argument { .. }), "{error}");
    }
    let integers = Array::zeros(&[1, 5], DType::I32).unwrap();
    assert!(matches!(top_k(&integers, 1).unwrap_err(), Error::Dtype { .. }));
}

#[test]
fn next_to_no_temperature_takes_one_of_the_most_probable() {
    for device in devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            // As probable as each other; far from 0, as among many tokens, or above it, as logits may be.
            for most in [-12.0f32, 8.0] {
                let row = [f32::NEG_INFINITY, most - 1.0, most, most - 0.5, most];
                let x = Array::from_slice_on(&row.repeat(64), &[64, 5], &device).unwrap();
                let x = x.astype(dtype).unwrap();
                let key = to_device(&random::key(5).unwrap(), &device).unwrap();
                for temperature in [9e-4, 1e-5, 1e-39, 1e-46, 5e-324] {
                    let sampler = Sampler { temperature, top_k: 4, ..Sampler::default() };
                    let drawn = sampler.sample(&x, Some(&key)).unwrap().to_vec::<u32>().unwrap();
                    let counts = [2, 4].map(|token| drawn.iter().filter(|&&t| t == token).count());
                    let all = counts[0] + counts[1] == 64 && counts.iter().all(|&count| count > 8);
                    assert!(all, "{device} {dtype} at {temperature}: {counts:?} of 64");
                }
            }
        }
    }
}
