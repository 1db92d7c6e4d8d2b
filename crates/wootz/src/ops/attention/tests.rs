//! What the harness cannot say: lengths of more than a few tiles on both devices, errors, and rows
//! that see nothing.

#[cfg(feature = "gpu")]
mod kernels;

use super::*;
use crate::autograd::{grad, vjp};
use crate::op::Op;
use crate::ops::{Quantized, dequantize, quantize, quantized_cache_append};
use crate::quant::Scheme;
use crate::testing::{devices, worst};
use crate::{Device, Encoder, Workspace, eval};

/// Numbers that repeat after a prime, in ±1.
fn numbers(seed: usize, shape: &[usize], device: &Device) -> Array {
    let count = shape.iter().product();
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0;
    let values: Vec<f32> = (0..count).map(value).collect();
    Array::from_slice_on(&values, shape, device).unwrap()
}

/// The largest difference, over that of the second list's largest number and 1.
fn error(got: &Array, want: &Array) -> f64 {
    let [got, want] = [got, want].map(|x| x.astype(DType::F32).unwrap().to_vec::<f32>().unwrap());
    let largest = want.iter().fold(1f32, |most, x| most.max(x.abs()));
    let off = got.iter().zip(&want).map(|(a, b)| match a == b {
        true => 0.0,
        false => (a - b).abs() as f64,
    });
    worst(off) / largest as f64
}

struct Given {
    q: Array,
    k: Array,
    v: Array,
    dout: Array,
}

impl Given {
    fn astype(self, dtype: DType) -> Given {
        let [q, k, v, dout] = [self.q, self.k, self.v, self.dout].map(|x| x.astype(dtype).unwrap());
        Given { q, k, v, dout }
    }
}

fn given(
    device: &Device,
    [heads, key_heads]: [usize; 2],
    [queries, keys]: [usize; 2],
    dims: usize,
) -> Given {
    Given {
        q: numbers(1, &[1, heads, queries, dims], device),
        k: numbers(2, &[1, key_heads, keys, dims], device),
        v: numbers(3, &[1, key_heads, keys, dims], device),
        dout: numbers(4, &[1, heads, queries, dims], device),
    }
}

/// The output and the gradients of `q`, `k` and `v`.
fn trained(x: &Given, options: &AttentionOptions<'_>) -> Vec<Array> {
    let inputs = [x.q.clone(), x.k.clone(), x.v.clone()];
    let function = |x: &[Array]| Ok(vec![attention(&x[0], &x[1], &x[2], options)?]);
    let (mut outputs, gradients) = vjp(function, &inputs, &[x.dout.clone()]).unwrap();
    outputs.extend(gradients);
    eval(&outputs).unwrap();
    outputs
}

#[test]
fn long_rows_agree_with_the_composition_on_every_device() {
    let causal = AttentionOptions { causal: true, ..AttentionOptions::new(0.5) };
    for device in devices() {
        // One query of a token, a tile more than many, and queries without keys.
        for (lengths, options) in [
            ([1, 1025], AttentionOptions::new(0.5)),
            ([1025, 1025], AttentionOptions { window: Some(100), ..causal }),
            ([300, 200], causal),
        ] {
            let x = given(&device, [2, 1], lengths, 4);
            let cpu = given(&Device::cpu(), [2, 1], lengths, 4);
            let (spec, inputs) = prepared(&cpu.q, &cpu.k, &cpu.v, &options).unwrap();
            let op = Attention::new(spec);
            let plain = |x: &[Array]| op.composed(x).unwrap();
            let (mut want, gradients) = vjp(plain, &inputs, &[cpu.dout.clone()]).unwrap();
            want.extend(gradients);
            for (i, (got, want)) in trained(&x, &options).iter().zip(&want).enumerate() {
                let got = crate::to_device(got, &Device::cpu()).unwrap();
                let off = error(&got, want);
                assert!(off < 2e-5, "{device}, {lengths:?}, result {i}: off by {off:e}");
            }
        }
    }
}

#[test]
fn scores_of_magnitude_50_are_as_exact_as_others() {
    let wide = given(&Device::cpu(), [2, 2], [70, 130], 16).astype(DType::F64);
    let options = AttentionOptions { causal: true, ..AttentionOptions::new(7.0) };
    let scores = crate::ops::matmul(&wide.q, &wide.k.swapaxes(2, 3).unwrap()).unwrap();
    let largest = scores.abs().unwrap().max(()).unwrap().item::<f64>().unwrap() * options.scale;
    assert!((45.0..60.0).contains(&largest), "{largest}");
    let want = trained(&wide, &options);
    for device in devices() {
        let x = given(&device, [2, 2], [70, 130], 16);
        for (i, (got, want)) in trained(&x, &options).iter().zip(&want).enumerate() {
            let got = crate::to_device(got, &Device::cpu()).unwrap();
            let off = error(&got, want);
            assert!(off < 2e-5, "{device}, result {i}: off by {off:e}");
            assert!(got.to_vec::<f32>().unwrap().iter().all(|x| x.is_finite()));
        }
    }
}

#[test]
fn gradients_in_narrow_types_are_within_a_hundredth_of_those_in_doubles() {
    let options = AttentionOptions { causal: true, ..AttentionOptions::new(0.3) };
    for device in devices() {
        for dtype in [DType::F16, DType::BF16] {
            let x = given(&device, [4, 2], [70, 90], 64).astype(dtype);
            let here = |x: &Array| crate::to_device(x, &Device::cpu()).unwrap();
            let [q, k, v, dout] = [&x.q, &x.k, &x.v, &x.dout].map(here);
            let want = trained(&Given { q, k, v, dout }.astype(DType::F64), &options);
            for (i, (got, want)) in trained(&x, &options).iter().zip(&want).enumerate() {
                let [got, want] = [&here(got), want]
                    .map(|x| x.astype(DType::F32).unwrap().to_vec::<f32>().unwrap());
                let largest = want.iter().fold(0f32, |most, x| most.max(x.abs()));
                let off = worst(got.iter().zip(&want).map(|(a, b)| (a - b).abs() as f64));
                assert!(
                    off <= 1e-2 * largest as f64,
                    "{dtype} on {device}, result {i}: {off} of {largest}"
                );
            }
        }
    }
}

/// The output and the gradients of `q`, `mask` and, if there are some, of `sinks`.
fn trained_with_mask(x: &Given, mask: &Array, sinks: Option<&Array>) -> Vec<Vec<f32>> {
    let inputs: Vec<Array> = [&x.q, mask].into_iter().chain(sinks).cloned().collect();
    let function = |inputs: &[Array]| {
        let options = AttentionOptions {
            mask: Some(&inputs[1]),
            sinks: inputs.get(2),
            ..AttentionOptions::new(1.0)
        };
        Ok(vec![attention(&inputs[0], &x.k, &x.v, &options)?])
    };
    let (mut results, gradients) = vjp(function, &inputs, &[x.dout.clone()]).unwrap();
    results.extend(gradients);
    results.iter().map(|x| x.astype(DType::F32).unwrap().to_vec().unwrap()).collect()
}

#[test]
fn a_query_that_sees_nothing_gets_zeros_and_gives_none() {
    let (queries, keys, dims) = (6, 4, 8);
    let hidden = |i: usize| i / keys == 2;
    let seen: Vec<f32> =
        (0..queries * keys).map(|i| if hidden(i) { f32::NEG_INFINITY } else { 0.0 }).collect();
    for device in devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let x = Given {
                q: numbers(1, &[2, 2, queries, dims], &device),
                k: numbers(2, &[2, 1, keys, dims], &device),
                v: numbers(3, &[2, 1, keys, dims], &device),
                dout: numbers(4, &[2, 2, queries, dims], &device),
            };
            let x = x.astype(dtype);
            let of = |values: &[f32], shape: &[usize]| {
                let array = Array::from_slice_on(values, shape, &device).unwrap();
                array.astype(dtype).unwrap()
            };
            let (mask, sinks) = (of(&seen, &[queries, keys]), of(&[0.5, -0.25], &[2]));
            for sinks in [None, Some(&sinks)] {
                let place = format!("{dtype} on {device}, sinks {}", sinks.is_some());
                let values = trained_with_mask(&x, &mask, sinks);
                assert!(values.iter().flatten().all(|x| x.is_finite()), "{place}");
                for (what, values) in [("output", &values[0]), ("gradient", &values[1])] {
                    for head in 0..4 {
                        let row = |query: usize| &values[(head * queries + query) * dims..][..dims];
                        assert_eq!(row(2), [0.0; 8], "{what} of {place}");
                        assert_ne!(row(3)[0], 0.0, "{what} of {place}");
                    }
                }
                for (i, &dmask) in values[2].iter().enumerate() {
                    assert_eq!(dmask == 0.0, hidden(i), "gradient of the mask, {i}, {place}");
                }
                let options =
                    AttentionOptions { mask: Some(&mask), sinks, ..AttentionOptions::new(1.0) };
                let with_lse = attention_with_lse(&x.q, &x.k, &x.v, &options).unwrap();
                let want = if sinks.is_some() { 0.5 } else { f32::NEG_INFINITY };
                assert_eq!(with_lse.1.to_vec::<f32>().unwrap()[2], want, "{place}");
            }
        }
        nothing_comes_of_what_sees_nothing(&device);
    }
}

/// Where no query of any batch sees a key, all gradients are zeros.
fn nothing_comes_of_what_sees_nothing(device: &Device) {
    let x = given(device, [2, 1], [3, 40], 8);
    let mask = Array::from_slice_on(&[f32::NEG_INFINITY; 120], &[3, 40], device).unwrap();
    let options = AttentionOptions { mask: Some(&mask), ..AttentionOptions::new(1.0) };
    for result in trained(&x, &options) {
        assert!(result.to_vec::<f32>().unwrap().iter().all(|&x| x == 0.0), "{device}");
    }
}

#[test]
fn what_lies_behind_the_valid_length_may_be_anything() {
    for device in devices() {
        let x = given(&device, [2, 1], [3, 40], 8);
        let rows = numbers(2, &[1, 1, 40, 8], &Device::cpu()).to_vec::<f32>().unwrap();
        let spoiled: Vec<f32> =
            rows.iter().enumerate().map(|(i, &x)| if i < 8 * 21 { x } else { f32::NAN }).collect();
        let spoiled = Array::from_slice_on(&spoiled, &[1, 1, 40, 8], &device).unwrap();
        let length = Array::from_slice_on(&[21i32], &[], &device).unwrap();
        let options = AttentionOptions {
            causal: true,
            key_length: Some(&length),
            ..AttentionOptions::new(1.0)
        };
        let got = attention(&x.q, &spoiled, &spoiled, &options).unwrap();
        let valid = spoiled.index((crate::Ellipsis, ..21, ..)).unwrap();
        let options = AttentionOptions { key_length: None, ..options };
        let want = attention(&x.q, &valid, &valid, &options).unwrap();
        let off = error(&got, &want);
        assert!(off < 1e-5, "{device}: off by {off:e}");
    }
}

#[test]
fn sequences_one_after_the_other_are_as_each_alone() {
    for device in devices() {
        let x = given(&device, [2, 1], [40, 90], 8);
        let (queries, keys) = ([0, 17, 17, 40], [0, 33, 50, 90]);
        let ends = |ends: &[i32]| Array::from_slice_on(ends, &[4], &device).unwrap();
        let (query_ends, key_ends) = (ends(&queries), ends(&keys));
        let causal =
            AttentionOptions { causal: true, window: Some(21), ..AttentionOptions::new(0.5) };
        let options = AttentionOptions { sequences: Some((&query_ends, &key_ends)), ..causal };
        let all = trained(&x, &options);
        for i in 0..3 {
            let part = |x: &Array, ends: [i32; 4]| {
                let range = ends[i] as i64..ends[i + 1] as i64;
                x.index((crate::Ellipsis, range, ..)).unwrap().contiguous().unwrap()
            };
            let one = Given {
                q: part(&x.q, queries),
                k: part(&x.k, keys),
                v: part(&x.v, keys),
                dout: part(&x.dout, queries),
            };
            let alone = trained(&one, &causal);
            let ends = [queries, queries, keys, keys];
            for ((all, ends), alone) in all.iter().zip(ends).zip(&alone) {
                let off = error(&part(all, ends), alone);
                assert!(off < 1e-5, "{device}, sequence {i}: off by {off:e}");
            }
        }
    }
}

#[test]
fn the_explicit_level_runs_the_same_kernels_in_given_memory() {
    for device in devices() {
        let x = given(&device, [2, 1], [2, 300], 8);
        eval([&x.q, &x.k, &x.v, &x.dout]).unwrap();
        let spec = AttentionSpec::causal(0.5);
        let empty = |x: &Array| Array::empty_on(x.shape(), DType::F32, &device).unwrap();
        let rows = || Array::empty_on(&[1, 2, 2], DType::F32, &device).unwrap();
        let (out, lse, d) = (empty(&x.q), rows(), rows());
        let gradients = [empty(&x.q), empty(&x.k), empty(&x.v)];
        let metas = [x.q.meta(), x.k.meta(), x.v.meta()];
        let forward = Attention::with_lse(spec);
        let scratch = forward.scratch(&metas, device.is_gpu());
        let mut encoder = Encoder::new(&device).unwrap();
        if scratch > 0 {
            let mut none = Workspace::none(&device);
            let result = encoder.run(&forward, &[&x.q, &x.k, &x.v], &[&out, &lse], &mut none);
            assert!(result.unwrap_err().to_string().contains(&scratch.to_string()));
        }
        let mut workspace = Workspace::new(&device, 1 << 16).unwrap();
        encoder.run(&forward, &[&x.q, &x.k, &x.v], &[&out, &lse], &mut workspace).unwrap();
        encoder.run(&AttentionBackwardD, &[&out, &x.dout], &[&d], &mut workspace).unwrap();
        let inputs = [&x.q, &x.k, &x.v, &x.dout, &lse, &d];
        let outputs = [&gradients[0], &gradients[1], &gradients[2]];
        encoder.run(&AttentionBackward::new(spec), &inputs, &outputs, &mut workspace).unwrap();
        encoder.submit().unwrap().wait().unwrap();
        let options = AttentionOptions { causal: true, ..AttentionOptions::new(0.5) };
        for (lazy, explicit) in
            trained(&x, &options).iter().zip([&out].into_iter().chain(&gradients))
        {
            assert_eq!(
                lazy.to_vec::<f32>().unwrap(),
                explicit.to_vec::<f32>().unwrap(),
                "{device}"
            );
        }
    }
}

#[test]
fn windows_longer_than_any_text_hide_nothing() {
    let causal = AttentionOptions { causal: true, ..AttentionOptions::new(0.5) };
    for device in devices() {
        // Queries before the first key have the lowest positions.
        for lengths in [[5, 9], [9, 5]] {
            let x = given(&device, [2, 1], lengths, 4);
            let inputs = [x.q.clone(), x.k.clone(), x.v.clone()];
            let pushed = |options: &AttentionOptions<'_>| {
                let function = |x: &[Array]| Ok(vec![attention(&x[0], &x[1], &x[2], options)?]);
                let tangents = crate::autograd::jvp(function, &inputs, &inputs).unwrap().1;
                [trained(&x, options), tangents].concat()
            };
            let bits =
                |x: &[Array]| -> Vec<Vec<f32>> { x.iter().map(|x| x.to_vec().unwrap()).collect() };
            let all = bits(&pushed(&causal));
            for window in [9, 1 << 32, i64::MAX] {
                let found = bits(&pushed(&AttentionOptions { window: Some(window), ..causal }));
                assert_eq!(found, all, "a window of {window}, {lengths:?}, on {device}");
            }
            let widest = AttentionSpec { window: Some(usize::MAX), ..AttentionSpec::causal(0.5) };
            let op = Attention::new(widest);
            let got = Array::apply(op, &inputs.each_ref()).unwrap();
            assert_eq!(got.to_vec::<f32>().unwrap(), all[0], "{lengths:?} on {device}");
            let plain = &op.composed(&inputs).unwrap().unwrap()[0];
            assert!(error(plain, &got) < 1e-5, "{lengths:?} on {device}");
        }
    }
}

#[test]
fn bad_arguments_are_errors_with_the_numbers() {
    let cpu = Device::cpu();
    let x = |shape: &[usize]| Array::zeros(shape, DType::F32).unwrap();
    let says = |result: Result<Array>, words: &[&str]| {
        let text = result.unwrap_err().to_string();
        for word in words {
            assert!(text.contains(word), "{text}: no {word}");
        }
    };
    let plain = AttentionOptions::new(1.0);
    let (q, k) = (x(&[1, 6, 3, 8]), x(&[1, 2, 5, 8]));
    let (odd, wide) = (x(&[1, 4, 5, 8]), x(&[1, 2, 3, 513]));
    says(attention(&q, &odd, &odd, &plain), &["6", "4"]);
    says(attention(&wide, &wide, &wide, &plain), &["512", "513"]);
    says(attention(&q, &k, &odd, &plain), &["v", "[1, 2, 5, dims]", "[1, 4, 5, 8]"]);
    let mask = x(&[4, 5]);
    let options = AttentionOptions { mask: Some(&mask), ..plain };
    says(attention(&q, &k, &k, &options), &["mask", "[1, 6, 3, 5]", "[1, 1, 4, 5]"]);
    let options = AttentionOptions { causal: true, window: Some(-2), ..plain };
    says(attention(&q, &k, &k, &options), &["window", "-2"]);
    let options = AttentionOptions { causal: true, window: Some(0), ..plain };
    says(attention(&q, &k, &k, &options), &["window", "0"]);
    let sinks = x(&[2]);
    let options = AttentionOptions { sinks: Some(&sinks), ..plain };
    says(attention(&q, &k, &k, &options), &["sinks", "[6]", "[2]"]);
    let [half, half_k] = [&q, &k].map(|x| x.astype(DType::F16).unwrap());
    for dtype in [DType::F32, DType::BF16] {
        let sinks = x(&[6]).astype(dtype).unwrap();
        let options = AttentionOptions { sinks: Some(&sinks), ..plain };
        let result = attention(&half, &half_k, &half_k, &options);
        says(result, &["sinks", "float16", &dtype.to_string()]);
        let mask = x(&[5]).astype(dtype).unwrap();
        let options = AttentionOptions { mask: Some(&mask), ..plain };
        says(attention(&half, &half_k, &half_k, &options), &["mask", "float16"]);
    }
    let length = Array::from_slice(&[1i32, 2], &[2]).unwrap();
    let options = AttentionOptions { key_length: Some(&length), ..plain };
    says(attention(&q, &k, &k, &options), &["key_length", "[1]", "[2]"]);
    let ends = Array::from_slice(&[0, 2, 1, 3], &[4]).unwrap();
    let options = AttentionOptions { sequences: Some((&ends, &ends)), ..plain };
    let result = attention(&q, &k, &k, &options).unwrap();
    says(result.eval().map(|()| result), &["query_ends", "3", "[0, 2, 1, 3]"]);
    let options = AttentionOptions { softcap: Some(-1.0), ..plain };
    says(attention(&q, &k, &k, &options), &["softcap", "-1"]);
    // Numbers that are not there in the type that is computed with.
    for softcap in [1e-50, 1e-40, 1e39] {
        let options = AttentionOptions { softcap: Some(softcap), ..plain };
        let words = ["softcap", "float32", &format!("{softcap:?}")];
        says(attention(&q, &k, &k, &options), &words);
        says(attention(&half, &half_k, &half_k, &options), &words);
    }
    for scale in [1e300, f64::NAN] {
        let options = AttentionOptions::new(scale);
        let words = ["scale", "float32", &format!("{scale:?}")];
        says(attention(&q, &k, &k, &options), &words);
    }
    let steep = AttentionOptions { softcap: Some(1e-30), ..AttentionOptions::new(1e10) };
    says(attention(&q, &k, &k, &steep), &["softcap", "10000000000.0", "1e-30"]);
    let doubles = [&q, &k].map(|x| x.astype(DType::F64).unwrap());
    for (scale, softcap) in [(1e300, 1e300), (1.0, 1e-50)] {
        let options = AttentionOptions { softcap: Some(softcap), ..AttentionOptions::new(scale) };
        attention(&doubles[0], &doubles[1], &doubles[1], &options).unwrap().eval().unwrap();
    }
    let op = AttentionBackward::new(AttentionSpec::new(1.0));
    let rows = x(&[1, 6, 4]);
    let result = Array::apply(op, &[&q, &k, &k, &q, &rows, &x(&[1, 6, 3])]);
    says(result, &["lse", "[1, 6, 3]", "[1, 6, 4]"]);

    // At the explicit level as well.
    let mut encoder = Encoder::new(&cpu).unwrap();
    let (out, d) = (x(&[1, 6, 3, 8]), x(&[1, 6, 4]));
    eval([&q, &out, &d]).unwrap();
    let result = encoder.run(&AttentionBackwardD, &[&q, &out], &[&d], &mut Workspace::none(&cpu));
    says(result.map(|()| q.clone()), &["d", "[1, 6, 3]", "[1, 6, 4]"]);
}

/// The gradients, to what `attend` takes, of the sum of the squares of all gradients of a loss.
fn second_gradients(x: &Given, attend: impl Fn(&[Array]) -> Result<Array>) -> Vec<Array> {
    let loss = |x: &[Array]| attend(x)?.square()?.sum(());
    let slope = |x: &[Array]| {
        let slopes = grad(loss)(x)?;
        let squares = slopes.iter().map(|slope| slope.square()?.sum(()));
        let squares = squares.collect::<Result<Vec<Array>>>()?;
        Ok(&squares[0] + &squares[1] + &squares[2])
    };
    grad(slope)(&[x.q.clone(), x.k.clone(), x.v.clone()]).unwrap()
}

#[test]
fn gradients_of_gradients_are_those_of_the_composition() {
    let options = AttentionOptions { causal: true, ..AttentionOptions::new(0.5) };
    let wide = given(&Device::cpu(), [2, 1], [5, 7], 4).astype(DType::F64);
    let want = second_gradients(&wide, |x| {
        let (spec, inputs) = prepared(&x[0], &x[1], &x[2], &options)?;
        Ok(Attention::new(spec).composed(&inputs).unwrap()?.remove(0))
    });
    for device in devices() {
        let x = given(&device, [2, 1], [5, 7], 4);
        let got = second_gradients(&x, |x| attention(&x[0], &x[1], &x[2], &options));
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!(want.abs().unwrap().max(()).unwrap().item::<f64>().unwrap() > 0.1);
            let off = error(&crate::to_device(got, &Device::cpu()).unwrap(), want);
            assert!(off < 2e-5, "{device}, to input {i}: off by {off:e}");
        }
    }
}

/// Quantized as MLX does it.
fn coded(x: &Array, bits: usize, group_size: usize) -> Quantized {
    quantize(x, Scheme::Affine { group_size, bits }).unwrap()
}

#[test]
fn quantized_keys_are_attended_to_as_decoded_ones_are_on_every_device() {
    let causal = AttentionOptions { causal: true, ..AttentionOptions::new(0.2) };
    for device in devices() {
        // A token, tokens of heads that share keys, and a prompt of more than one tile.
        for (heads, lengths, dims, options) in [
            ([1, 1], [1, 1025], 64, AttentionOptions::new(0.2)),
            ([8, 2], [1, 700], 128, AttentionOptions { window: Some(300), ..causal }),
            ([2, 1], [70, 130], 64, causal),
        ] {
            for (bits, group, dtype) in
                [(8, 64, DType::F16), (6, 32, DType::BF16), (4, 32, DType::F32)]
            {
                let plain = given(&Device::cpu(), heads, lengths, dims);
                let [k, v] = [&plain.k, &plain.v].map(|x| x.astype(dtype).unwrap());
                let (k, v) = (coded(&k, bits, group), coded(&v, bits, group));
                let wide = |x: &Quantized| {
                    let scale = |x: &Array| x.astype(DType::F32).unwrap();
                    let arrays = [1, 2].map(|index| scale(&x.arrays()[index]));
                    let [scales, biases] = &arrays;
                    let x = Quantized::new(x.scheme(), x.codes(), Some(scales), Some(biases));
                    dequantize(&x.unwrap(), None).unwrap()
                };
                let want = attention(&plain.q, &wide(&k), &wide(&v), &options).unwrap();
                let there = |x: &Quantized| {
                    let arrays: Vec<Array> = (x.arrays().iter())
                        .map(|array| crate::to_device(array, &device).unwrap())
                        .collect();
                    Quantized::new(x.scheme(), &arrays[0], arrays.get(1), arrays.get(2)).unwrap()
                };
                let q = crate::to_device(&plain.q, &device).unwrap();
                let got = quantized_attention(&q, &there(&k), &there(&v), &options).unwrap();
                assert_eq!(got.dtype(), DType::F32);
                let off = error(&crate::to_device(&got, &Device::cpu()).unwrap(), &want);
                assert!(off < 2e-5, "{device}, {lengths:?}, {bits} bits: off by {off:e}");
            }
        }
    }
}

#[test]
fn tokens_appended_to_a_quantized_cache_are_seen_as_if_they_had_been_there() {
    for device in devices() {
        let x = given(&device, [4, 2], [5, 5], 32);
        let empty = || {
            let zeros = vec![0.0f32; 2 * 8 * 32];
            coded(&Array::from_slice_on(&zeros, &[1, 2, 8, 32], &device).unwrap(), 8, 32)
        };
        let whole = AttentionOptions { causal: true, ..AttentionOptions::new(0.3) };
        let want =
            quantized_attention(&x.q, &coded(&x.k, 8, 32), &coded(&x.v, 8, 32), &whole).unwrap();
        let (mut k, mut v) = (empty(), empty());
        for token in 0..5 {
            let of = |x: &Array| x.index((.., .., token..token + 1, ..)).unwrap();
            let at = |number: i64| Array::from_slice_on(&[number as i32], &[1], &device).unwrap();
            k = quantized_cache_append(&k, &of(&x.k), &at(token)).unwrap();
            v = quantized_cache_append(&v, &of(&x.v), &at(token)).unwrap();
            let length = at(token + 1);
            let options = AttentionOptions { key_length: Some(&length), ..whole };
            let got = quantized_attention(&of(&x.q), &k, &v, &options).unwrap();
            let off = error(&got, &of(&want));
            assert!(off < 1e-5, "{device}, token {token}: off by {off:e}");
        }
        let row = Array::from_slice_on(&[0.0f32; 2 * 32], &[1, 2, 1, 32], &device).unwrap();
        let position = Array::from_slice_on(&[8i32], &[1], &device).unwrap();
        let full = quantized_cache_append(&k, &row, &position).unwrap();
        assert!(full.codes().eval().is_err(), "{device}");
    }
}

#[test]
fn quantized_keys_that_do_not_fit_are_errors_with_the_numbers() {
    let x = |shape: &[usize]| Array::zeros(shape, DType::F32).unwrap();
    let says = |result: Result<Array>, words: &[&str]| {
        let text = result.unwrap_err().to_string();
        for word in words {
            assert!(text.contains(word), "{text}: no {word}");
        }
    };
    let plain = AttentionOptions::new(1.0);
    let (q, k) = (x(&[1, 6, 3, 64]), coded(&x(&[1, 2, 5, 64]), 8, 32));
    let attend = |k: &Quantized, v: &Quantized| quantized_attention(&q, k, v, &plain);
    let heads = coded(&x(&[1, 4, 5, 64]), 8, 32);
    says(attend(&heads, &heads), &["quantized_attention", "6", "4"]);
    let dims = coded(&x(&[1, 2, 5, 32]), 8, 32);
    says(attend(&dims, &k), &["k", "64]", "[1, 2, 5, 32]"]);
    let longer = coded(&x(&[1, 2, 6, 64]), 8, 32);
    says(attend(&k, &longer), &["v", "[1, 2, 5, dims]", "[1, 2, 6, 64]"]);
    let blocks = quantize(&x(&[1, 2, 5, 64]), crate::quant::Format::Q8_0).unwrap();
    says(attend(&blocks, &k), &["k", "affine", "Q8_0"]);
    let length = Array::from_slice(&[6i32], &[1]).unwrap();
    let options = AttentionOptions { key_length: Some(&length), ..plain };
    let result = quantized_attention(&q, &k, &k, &options).unwrap();
    says(result.eval().map(|()| result), &["key_length", "6"]);
    // A group that does not divide a row, bits that there are not, and rows of another width.
    let group = quantize(&x(&[1, 2, 5, 32]), Scheme::Affine { group_size: 64, bits: 8 });
    says(group.map(|_| q.clone()), &["64", "32"]);
    let bits = quantize(&x(&[1, 2, 5, 64]), Scheme::Affine { group_size: 64, bits: 7 });
    says(bits.map(|_| q.clone()), &["bits", "7"]);
    let position = Array::from_slice(&[0i32], &[1]).unwrap();
    let result = quantized_cache_append(&k, &x(&[1, 2, 1, 32]), &position);
    says(result.map(|_| q.clone()), &["update", "[1, 2, 5, 64]", "[1, 2, 1, 32]"]);
    // The operation itself, which anybody can make.
    let [codes, scales, biases] = [0, 1, 2].map(|index| &k.arrays()[index]);
    let spec = AttentionSpec::new(1.0);
    let apply = |keys: Scheme, codes: &Array, scales: &Array| {
        let op = QuantizedAttention { spec, keys, values: k.scheme() };
        let rest = k.arrays();
        Array::apply(op, &[&q, codes, scales, biases, &rest[0], &rest[1], &rest[2]])
    };
    says(apply(Scheme::Mxfp8, codes, scales), &["k", "affine", "mxfp8"]);
    says(apply(k.scheme(), codes, &x(&[1, 2, 5, 1])), &["scales of k", "[1, 2, 5, 2]"]);
    says(apply(k.scheme(), &x(&[1, 2, 5, 16]), scales), &["codes of k", "uint32", "float32"]);
}

#[test]
fn lengths_and_ends_of_many_bits_are_not_cut_to_small_ones() {
    for device in devices() {
        let x = given(&device, [2, 1], [3, 5], 8);
        let plain = AttentionOptions::new(0.5);
        let fails = |options: &AttentionOptions<'_>, argument: &str| {
            let result = attention(&x.q, &x.k, &x.v, options).unwrap();
            let text = result.to_vec::<f32>().unwrap_err().to_string();
            assert!(text.contains(argument), "{device}: {text}");
        };
        let wide = |numbers: &[i64]| Array::from_slice_on(numbers, &[numbers.len()], &device);
        // Their low halves would fit.
        for number in [(1i64 << 32) + 3, 3 - (1 << 32)] {
            let length = wide(&[number]).unwrap();
            fails(&AttentionOptions { key_length: Some(&length), ..plain }, "key_length");
            let (right, wrong) = (wide(&[0, 3]).unwrap(), wide(&[0, number + 2]).unwrap());
            fails(&AttentionOptions { sequences: Some((&right, &wrong)), ..plain }, "key_ends");
        }
        let unsigned = Array::from_slice_on(&[u32::MAX], &[1], &device).unwrap();
        fails(&AttentionOptions { key_length: Some(&unsigned), ..plain }, "key_length");
        let length = wide(&[4]).unwrap();
        let options = AttentionOptions { key_length: Some(&length), ..plain };
        let [k, v] = [&x.k, &x.v].map(|x| x.index((.., .., ..4, ..)).unwrap());
        let want = attention(&x.q, &k, &v, &plain).unwrap();
        assert!(error(&attention(&x.q, &x.k, &x.v, &options).unwrap(), &want) < 1e-6, "{device}");
    }
}

#[test]
fn a_length_that_there_is_no_room_for_leaves_the_output_as_it_was() {
    for device in devices() {
        // As one part, and split over many workgroups.
        for keys in [20, 1000] {
            let x = given(&device, [2, 1], [2, keys], 8);
            let length = Array::from_slice_on(&[keys as i32 + 1], &[1], &device).unwrap();
            let before = numbers(9, &[1, 2, 2, 8], &device);
            let out =
                Array::from_slice_on(&before.to_vec::<f32>().unwrap(), &[1, 2, 2, 8], &device);
            let out = out.unwrap();
            eval([&x.q, &x.k, &x.v]).unwrap();
            let op = Attention::new(AttentionSpec {
                lengths: Lengths::Valid,
                ..AttentionSpec::new(0.5)
            });
            let mut workspace = Workspace::new(&device, 1 << 16).unwrap();
            let mut encoder = Encoder::new(&device).unwrap();
            let inputs = [&x.q, &x.k, &x.v, &length];
            let done = encoder
                .run(&op, &inputs, &[&out], &mut workspace)
                .and_then(|()| encoder.submit()?.wait());
            assert!(done.unwrap_err().to_string().contains("key_length"), "{device}");
            let kept = out.memory_bytes().unwrap() == before.to_bytes().unwrap();
            assert!(kept, "{device}, {keys} keys");
        }
    }
}

/// The operations that take the ends of sequences, with what else they take.
fn of_sequences(x: &Given, queries: &Array, keys: &Array) -> Vec<(crate::op::OpRef, Vec<Array>)> {
    let device = x.q.device();
    let spec = AttentionSpec {
        lengths: Lengths::Sequences,
        mask: MaskKind::Additive,
        ..AttentionSpec::new(0.5)
    };
    let mask = numbers(5, &[1, 1, x.q.shape()[2], x.k.shape()[2]], device);
    let rows = || numbers(6, &x.q.shape()[..3], device);
    let with = |before: Vec<Array>| {
        let more = [mask.clone(), queries.clone(), keys.clone()];
        before.into_iter().chain(more).collect::<Vec<_>>()
    };
    let forward = vec![x.q.clone(), x.k.clone(), x.v.clone()];
    let backward = [forward.clone(), vec![x.dout.clone(), rows(), rows()]].concat();
    vec![
        (Attention::new(spec).into(), with(forward)),
        (AttentionBackward::new(spec).into(), with(backward.clone())),
        (AttentionBackwardMask::new(spec).into(), with(backward)),
    ]
}

#[test]
fn ends_of_sequences_that_are_not_in_order_are_errors_on_every_device() {
    let right = [[0, 2, 3], [0, 1, 5]];
    for device in devices() {
        let x = given(&device, [6, 2], [3, 5], 8);
        for (argument, wrong) in [
            ("query_ends", [0, 4, 3]),
            ("query_ends", [1, 2, 3]),
            ("query_ends", [0, 2, 2]),
            ("query_ends", [0, -1, 3]),
            ("key_ends", [0, 6, 5]),
            ("key_ends", [0, 2, 6]),
            ("key_ends", [0, 2, 4]),
            ("key_ends", [-2, 2, 5]),
        ] {
            let ends = |own: &str, right: [i32; 3]| {
                let ends = if own == argument { wrong } else { right };
                Array::from_slice_on(&ends, &[3], &device).unwrap()
            };
            let (queries, keys) = (ends("query_ends", right[0]), ends("key_ends", right[1]));
            let length = if argument == "query_ends" { 3 } else { 5 };
            for (op, inputs) in of_sequences(&x, &queries, &keys) {
                let name = op.name();
                let outputs = Array::apply_all(op, &inputs.iter().collect::<Vec<_>>()).unwrap();
                let text = outputs[0].to_vec::<f32>().unwrap_err().to_string();
                for word in [name, argument, &format!("ends in order from 0 to {length}")] {
                    assert!(text.contains(word), "{device}, {wrong:?}: {text}: no {word}");
                }
            }
        }
        let ends = right.map(|ends| Array::from_slice_on(&ends, &[3], &device).unwrap());
        for (op, inputs) in of_sequences(&x, &ends[0], &ends[1]) {
            let outputs = Array::apply_all(op, &inputs.iter().collect::<Vec<_>>()).unwrap();
            outputs[0].to_vec::<f32>().unwrap();
        }
    }
}

#[test]
fn ends_that_are_not_in_order_leave_the_outputs_as_they_were() {
    for device in devices() {
        // Few queries are split over many workgroups.
        for lengths in [[40, 50], [2, 1000]] {
            let x = given(&device, [2, 1], lengths, 8);
            let ends = |last: i32| Array::from_slice_on(&[0, last], &[2], &device).unwrap();
            let (queries, keys) = (ends(lengths[0] as i32), ends(lengths[1] as i32 - 1));
            for (op, inputs) in of_sequences(&x, &queries, &keys) {
                eval(&inputs).unwrap();
                let metas: Vec<_> = inputs.iter().map(Array::meta).collect();
                let outputs: Vec<Array> = (op.infer(&metas).unwrap().iter())
                    .map(|meta| {
                        let before = numbers(9, meta.shape(), &Device::cpu());
                        let before = before.to_vec::<f32>().unwrap();
                        Array::from_slice_on(&before, meta.shape(), &device).unwrap()
                    })
                    .collect();
                let before: Vec<_> = outputs.iter().map(|x| x.to_bytes().unwrap()).collect();
                let mut workspace = Workspace::new(&device, 1 << 16).unwrap();
                let mut encoder = Encoder::new(&device).unwrap();
                let (inputs, outputs): (Vec<&Array>, Vec<&Array>) =
                    (inputs.iter().collect(), outputs.iter().collect());
                let done = encoder
                    .run(&*op, &inputs, &outputs, &mut workspace)
                    .and_then(|()| encoder.submit()?.wait());
                assert!(done.unwrap_err().to_string().contains("key_ends"), "{device}");
                for (output, before) in outputs.iter().zip(&before) {
                    let kept = output.memory_bytes().unwrap() == *before;
                    assert!(kept, "{} on {device}, {lengths:?}", op.name());
                }
            }
        }
    }
}
