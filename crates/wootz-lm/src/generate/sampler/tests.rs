//! The compiled sampler beside plain sums, and what it keeps from draw to draw.

use std::collections::BTreeMap;

use super::*;

const VOCABULARY: usize = 50;

/// The CPU, and a GPU if there is one or there must be.
fn devices() -> Vec<Device> {
    let wanted = std::env::var("WOOTZ_TEST_GPU").unwrap_or_default();
    let mut devices = vec![Device::cpu()];
    match Device::gpu() {
        _ if wanted == "skip" => eprintln!("SKIPPED: the GPU, as WOOTZ_TEST_GPU says"),
        Ok(gpu) => devices.push(gpu),
        Err(error) if wanted == "required" => panic!("{error}"),
        Err(error) => eprintln!("SKIPPED: the GPU: {error}"),
    }
    devices
}

fn logits(step: usize, device: &Device) -> Array {
    let values: Vec<f32> =
        (0..VOCABULARY).map(|i| ((i * 37 + step * 11) % 41) as f32 * 0.1).collect();
    Array::from_slice_on(&values, &[1, VOCABULARY], device).unwrap()
}

fn values(step: usize) -> Vec<f64> {
    (0..VOCABULARY).map(|i| f64::from(((i * 37 + step * 11) % 41) as f32 * 0.1)).collect()
}

/// The first of the largest.
fn best(values: &[f64]) -> u32 {
    let largest = values.iter().copied().fold(f64::MIN, f64::max);
    values.iter().position(|&value| value == largest).unwrap() as u32
}

#[test]
fn penalties_look_at_the_last_tokens_and_never_at_more() {
    let options = GenerateOptions {
        logit_bias: BTreeMap::from([(3, 0.75)]),
        repetition_penalty: 1.5,
        repetition_context_size: 4,
        presence_penalty: 0.3,
        presence_context_size: 7,
        frequency_penalty: 0.21,
        frequency_context_size: 9,
        ..GenerateOptions::default()
    };
    for device in devices() {
        let sampler = TokenSampler::new(&options, &[], VOCABULARY, &device).unwrap();
        let mut seen = vec![1, 2, 1];
        let mut state = sampler.start(&seen, None).unwrap();
        for step in 0..25 {
            let mut expected = values(step);
            expected[3] += 0.75;
            let last = |count: usize| &seen[seen.len().saturating_sub(count)..];
            for token in 0..VOCABULARY as u32 {
                let value = &mut expected[token as usize];
                if last(4).contains(&token) {
                    *value = if *value < 0.0 { *value * 1.5 } else { *value / 1.5 };
                }
                if last(7).contains(&token) {
                    *value -= 0.3;
                }
                *value -= 0.21 * last(9).iter().filter(|&&other| other == token).count() as f64;
            }
            let (draw, next) = sampler.draw(&logits(step, &device), &state).unwrap();
            let token = draw.read().unwrap().token;
            assert_eq!(token, best(&expected), "step {step} on {device}");
            seen.push(token);
            state = next;
        }
        assert_eq!(sampler.step.stats().traces, 1);
    }
}

#[test]
fn a_draw_can_be_taken_back() {
    let options = GenerateOptions { temperature: 1.5, top_k: 30, ..GenerateOptions::default() };
    for device in devices() {
        let sampler = TokenSampler::new(&options, &[], VOCABULARY, &device).unwrap();
        let start = sampler.start(&[1], Some(9)).unwrap();
        let draws = |mut state: SamplerState, count: usize| {
            let mut tokens = Vec::new();
            for step in 0..count {
                let (draw, next) = sampler.draw(&logits(step, &device), &state).unwrap();
                tokens.push(draw.read().unwrap().token);
                state = next;
            }
            tokens
        };
        let first = draws(start.clone(), 12);
        assert_eq!(draws(start, 12), first);
        assert!(first.iter().any(|token| *token != first[0]));
    }
}

#[test]
fn what_cannot_be_is_an_error() {
    let device = Device::cpu();
    let biased =
        GenerateOptions { logit_bias: BTreeMap::from([(50, 1.0)]), ..GenerateOptions::default() };
    let error = TokenSampler::new(&biased, &[], VOCABULARY, &device).err().unwrap().to_string();
    assert_eq!(error, "logit_bias: expected tokens below 50, got 50");
    let options = GenerateOptions { presence_penalty: 1.0, ..GenerateOptions::default() };
    let sampler = TokenSampler::new(&options, &[], VOCABULARY, &device).unwrap();
    assert!(sampler.start(&[], None).is_err());
    assert!(sampler.start(&[50], None).is_err());
    let state = sampler.start(&[1], None).unwrap();
    let wrong = Array::from_slice_on(&[0.0f32; 49], &[1, 49], &device).unwrap();
    assert!(sampler.draw(&wrong, &state).is_err());
}
