//! States: carried from call to call, masks, and errors.

use crate::array::{Array, DType};
use crate::device::with_device;
use crate::error::Result;
use crate::ops::movement::slice_axis;
use crate::ops::{causal_conv1d, concatenate, gated_delta, selective_scan, selective_scan2};
use crate::random;

fn draw(shape: &[usize]) -> Result<Array> {
    random::normal(shape, DType::F32, 0.0, 0.5, None)
}

fn close(a: &Array, b: &Array) -> Result<()> {
    assert_eq!(a.shape(), b.shape());
    for (a, b) in a.to_vec::<f32>()?.iter().zip(b.to_vec::<f32>()?) {
        assert!((a - b).abs() < 1e-5, "{a} and {b}");
    }
    Ok(())
}

#[test]
fn a_convolution_in_pieces_is_the_whole() -> Result<()> {
    let (x, weight) = (draw(&[2, 9, 5])?, draw(&[5, 4, 1])?);
    let (whole, last) = causal_conv1d(&x, &weight, None, None, true)?;
    let (mut pieces, mut state) = (Vec::new(), None);
    for (from, to) in [(0, 2), (2, 3), (3, 9)] {
        let piece = slice_axis(&x, 1, from, to, 1)?;
        let (y, next) = causal_conv1d(&piece, &weight, None, state.as_ref(), true)?;
        pieces.push(y);
        state = Some(next);
    }
    close(&concatenate(&pieces, 1)?, &whole)?;
    close(&state.unwrap(), &last)
}

#[test]
fn a_convolution_of_one_tap_has_no_state() -> Result<()> {
    let (x, weight) = (draw(&[2, 3, 5])?, draw(&[5, 1])?);
    let (y, state) = causal_conv1d(&x, &weight, None, None, false)?;
    assert_eq!(state.shape(), [2, 0, 5]);
    close(&causal_conv1d(&x, &weight, None, Some(&state), false)?.0, &y)
}

#[test]
fn errors_of_convolutions_tell_what_was_expected() -> Result<()> {
    let x = draw(&[2, 3, 5])?;
    let error = |weight: &[usize], state: Option<&[usize]>| -> Result<String> {
        let state = state.map(draw).transpose()?;
        let result = causal_conv1d(&x, &draw(weight)?, None, state.as_ref(), false);
        Ok(result.map(|_| ()).unwrap_err().to_string())
    };
    assert!(error(&[4, 3], None)?.contains("weight"));
    assert!(error(&[5, 0], None)?.contains("at least one tap"));
    assert!(error(&[5, 3], Some(&[2, 3, 5]))?.contains("[2, 2, 5]"));
    Ok(())
}

/// Random inputs of the delta rule for two sequences, with two heads for a key head.
fn inputs(steps: usize) -> Result<[Array; 5]> {
    let gates = |shape: &[usize]| random::uniform(0.1, 0.9, shape, DType::F32, None);
    Ok([
        draw(&[2, steps, 2, 6])?,
        draw(&[2, steps, 2, 6])?,
        draw(&[2, steps, 4, 3])?,
        gates(&[2, steps, 4])?,
        gates(&[2, steps, 4])?,
    ])
}

#[test]
fn long_sequences_agree_on_every_device() -> Result<()> {
    const STEPS: usize = 1025;
    let (x, taps) = (draw(&[1, STEPS, 4])?, draw(&[4, 3, 1])?);
    let of_conv = |x: &[Array]| Ok(vec![causal_conv1d(&x[0], &x[1], None, None, true)?.0]);
    agree_on_every_device(of_conv, &[x, taps])?;
    let inputs = inputs(STEPS)?.map(|x| slice_axis(&x, 0, 0, 1, 1));
    let inputs = inputs.into_iter().collect::<Result<Vec<_>>>()?;
    let of_rule = |x: &[Array]| {
        let (y, state) = gated_delta(&x[0], &x[1], &x[2], &x[3], &x[4], None, None)?;
        Ok(vec![y, state])
    };
    agree_on_every_device(of_rule, &inputs)?;
    let lengths = |shape: &[usize]| random::uniform(0.1, 0.9, shape, DType::F32, None);
    let rates = |shape: &[usize]| random::uniform(-0.9, -0.1, shape, DType::F32, None);
    let scan = [draw(&[1, STEPS, 2])?, lengths(&[1, STEPS, 2])?, rates(&[2, 3])?];
    let states = [draw(&[1, STEPS, 3])?, draw(&[1, STEPS, 3])?];
    let of_scan = |x: &[Array]| {
        let (y, state) = selective_scan(&x[0], &x[1], &x[2], &x[3], &x[4], None, None)?;
        Ok(vec![y, state])
    };
    agree_on_every_device(of_scan, &[&scan[..], &states].concat())?;
    let scan = [draw(&[1, STEPS, 2, 3])?, lengths(&[1, STEPS, 2])?, rates(&[2])?];
    let states = [draw(&[1, STEPS, 1, 3])?, draw(&[1, STEPS, 1, 3])?];
    let of_scan = |x: &[Array]| {
        let (y, state) = selective_scan2(&x[0], &x[1], &x[2], &x[3], &x[4], None, None)?;
        Ok(vec![y, state])
    };
    agree_on_every_device(of_scan, &[&scan[..], &states].concat())
}

#[test]
fn gates_of_any_size_are_exact_in_chunks() -> Result<()> {
    // Gates that products of a chunk's gates vanish with, that are zero, one, or negative.
    const STEPS: usize = 70;
    let mut inputs = inputs(STEPS)?;
    let gates = [1e-30, 1.0, 0.0, 0.999, 1e-8, 1.0, -0.5, 1.0, 0.9, 1.0, 1.0].iter().cycle();
    let gates: Vec<f32> = gates.take(2 * STEPS * 4).copied().collect();
    inputs[3] = Array::from_slice(&gates, &[2, STEPS, 4])?;
    let of_rule = |x: &[Array]| {
        let (y, state) = gated_delta(&x[0], &x[1], &x[2], &x[3], &x[4], None, None)?;
        Ok(vec![y, state])
    };
    agree_on_every_device(of_rule, &inputs)
}

/// Results and gradients of a function on each device are near those in `float64`.
fn agree_on_every_device(
    function: impl Fn(&[Array]) -> Result<Vec<Array>>,
    inputs: &[Array],
) -> Result<()> {
    let run = |inputs: &[Array]| -> Result<Vec<Array>> {
        let outputs = function(inputs)?;
        let ones = outputs.iter().map(crate::ones_like).collect::<Result<Vec<_>>>()?;
        let (mut results, gradients) = crate::vjp(&function, inputs, &ones)?;
        results.extend(gradients);
        Ok(results)
    };
    let wide = inputs.iter().map(|x| x.astype(DType::F64)).collect::<Result<Vec<_>>>()?;
    let wants = run(&wide)?;
    for device in crate::testing::devices() {
        let moved = inputs.iter().map(|x| crate::to_device(x, &device));
        let results = run(&moved.collect::<Result<Vec<_>>>()?)?;
        for (i, (got, want)) in results.iter().zip(&wants).enumerate() {
            let (got, want) = (got.to_vec::<f32>()?, want.to_vec::<f64>()?);
            let most = want.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
            for (got, want) in got.iter().zip(want) {
                let off = (*got as f64 - want).abs();
                assert!(off <= 2e-5 * most, "result {i} on {device}: {got}, not {want}");
            }
        }
    }
    Ok(())
}

#[test]
fn long_sequences_of_many_keys_are_not_cut_off_on_a_gpu() -> Result<()> {
    // Software drivers end loops after 65,535 turns of all of a thread's loops together.
    const STEPS: usize = 2048;
    let gates = |shape: &[usize]| random::uniform(0.1, 0.9, shape, DType::F32, None);
    let keys = |size: usize| random::normal(&[1, STEPS, 1, size], DType::F32, 0.0, 0.1, None);
    for (gate, size) in [(&[1, STEPS, 1][..], 128), (&[1, STEPS, 1, 128], 128)] {
        let (q, k, v) = (keys(size)?, keys(size)?, draw(&[1, STEPS, 1, 2])?);
        let inputs = [q, k, v, gates(gate)?, gates(&[1, STEPS, 1])?];
        let of_rule = |x: &[Array]| {
            let (y, state) = gated_delta(&x[0], &x[1], &x[2], &x[3], &x[4], None, None)?;
            Ok(vec![y, state])
        };
        agree_on_every_device(of_rule, &inputs)?;
    }
    // States of this size take a turn for each of their numbers.
    let lengths = |shape: &[usize]| random::uniform(0.1, 0.9, shape, DType::F32, None);
    let rates = |shape: &[usize]| random::uniform(-0.9, -0.1, shape, DType::F32, None);
    let scan = [draw(&[1, STEPS, 2])?, lengths(&[1, STEPS, 2])?, rates(&[2, 64])?];
    let states = [draw(&[1, STEPS, 64])?, draw(&[1, STEPS, 64])?];
    let of_scan = |x: &[Array]| {
        let (y, state) = selective_scan(&x[0], &x[1], &x[2], &x[3], &x[4], None, None)?;
        Ok(vec![y, state])
    };
    agree_on_every_device(of_scan, &[&scan[..], &states].concat())
}

#[test]
fn scans_of_large_states_agree_on_every_device() -> Result<()> {
    // More numbers of a channel's state than threads of a GPU have room for.
    const SIZE: usize = 300;
    let scan = [draw(&[1, 5, 2])?, draw(&[1, 5, 2])?, draw(&[2, SIZE])?, draw(&[1, 5, SIZE])?];
    let others = [draw(&[1, 5, SIZE])?, draw(&[2])?, draw(&[1, 2, SIZE])?];
    let of_scan = |x: &[Array]| {
        let (y, state) =
            selective_scan(&x[0], &x[1], &x[2], &x[3], &x[4], Some(&x[5]), Some(&x[6]))?;
        Ok(vec![y, state])
    };
    agree_on_every_device(of_scan, &[&scan[..], &others].concat())
}

#[test]
fn the_delta_rule_in_pieces_is_the_whole() -> Result<()> {
    let inputs = inputs(70)?;
    let run = |from: usize, to: usize, state: Option<&Array>| {
        let [q, k, v, g, beta] = inputs.each_ref().map(|x| slice_axis(x, 1, from, to, 1));
        gated_delta(&q?, &k?, &v?, &g?, &beta?, state, None)
    };
    let (whole, last) = run(0, 70, None)?;
    let (first, state) = run(0, 33, None)?;
    let (second, end) = run(33, 70, Some(&state))?;
    close(&concatenate(&[first, second], 1)?, &whole)?;
    close(&end, &last)
}

#[test]
fn a_state_that_nobody_holds_is_changed_in_place() -> Result<()> {
    for device in crate::testing::devices() {
        with_device(&device, || {
            let inputs = inputs(2)?;
            crate::eval(&inputs)?;
            let [q, k, v, g, beta] = &inputs;
            let state = draw(&[2, 4, 3, 6])?;
            let own = crate::ops::add(&state, 0.0)?;
            crate::eval(&[state.clone(), own.clone()])?;
            let written = |results: &(Array, Array)| -> Result<u64> {
                let before = crate::testing::counters();
                crate::eval(&[results.0.clone(), results.1.clone()])?;
                Ok(crate::testing::counters().since(&before).written_bytes)
            };
            let want = gated_delta(q, k, v, g, beta, Some(&state), None)?;
            let copied = written(&want)?;
            let result = gated_delta(q, k, v, g, beta, Some(&own), None)?;
            drop(own);
            let in_place = written(&result)?;
            // One that somebody holds stays as it is, so another is written; the rest is the same.
            assert_eq!(copied - in_place, state.nbytes() as u64, "{device}");
            close(&result.0, &want.0)?;
            close(&result.1, &want.1)
        })?;
    }
    Ok(())
}

#[test]
fn masked_steps_leave_the_state_as_it_is() -> Result<()> {
    let [q, k, v, g, beta] = inputs(3)?;
    let mask = Array::new([[true, true, false], [true, true, true]])?;
    let (y, state) = gated_delta(&q, &k, &v, &g, &beta, None, Some(&mask))?;
    let [q, k, v, g, beta] = [&q, &k, &v, &g, &beta].map(|x| slice_axis(x, 1, 0, 2, 1));
    let (shorter, before) = gated_delta(&q?, &k?, &v?, &g?, &beta?, None, None)?;
    close(&slice_axis(&y, 1, 0, 2, 1)?, &shorter)?;
    close(&slice_axis(&state, 0, 0, 1, 1)?, &slice_axis(&before, 0, 0, 1, 1)?)?;
    let last = slice_axis(&slice_axis(&y, 1, 2, 3, 1)?, 0, 0, 1, 1)?;
    assert!(last.to_vec::<f32>()?.iter().all(|y| *y == 0.0));
    Ok(())
}

#[test]
fn nothing_at_a_masked_step_reaches_states_or_gradients() -> Result<()> {
    // Several chunks, of which one begins with masked steps.
    const STEPS: usize = 40;
    let inputs = inputs(STEPS)?;
    let hidden = |step: usize| (30..35).contains(&step);
    let mask: Vec<bool> = (0..2 * STEPS).map(|i| !hidden(i % STEPS)).collect();
    let mask = Array::from_slice(&mask, &[2, STEPS])?;
    let strange = |x: &Array, value: f32| -> Result<Array> {
        let ones = vec![1; x.rank() - 2];
        crate::where_(crate::reshape(&mask, &[&[2, STEPS], &ones[..]].concat())?, x, value)
    };
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for device in crate::testing::devices() {
            let run = |inputs: &[Array]| -> Result<Vec<Array>> {
                let moved = inputs.iter().map(|x| crate::to_device(x, &device));
                let moved = moved.collect::<Result<Vec<_>>>()?;
                let mask = crate::to_device(&mask, &device)?;
                let rule = |x: &[Array]| {
                    let mask = Some(&mask);
                    let (y, state) = gated_delta(&x[0], &x[1], &x[2], &x[3], &x[4], None, mask)?;
                    Ok(vec![y, state])
                };
                let outputs = rule(&moved)?;
                let ones = outputs.iter().map(crate::ones_like).collect::<Result<Vec<_>>>()?;
                let (mut results, gradients) = crate::vjp(rule, &moved, &ones)?;
                results.extend(gradients);
                Ok(results)
            };
            let poisoned = inputs.iter().map(|x| strange(x, value)).collect::<Result<Vec<_>>>()?;
            for (got, want) in run(&poisoned)?.iter().zip(run(&inputs)?) {
                assert_eq!(got.to_vec::<f32>()?, want.to_vec::<f32>()?, "{device}, {value}");
            }
        }
    }
    Ok(())
}

#[test]
fn what_is_not_finite_reaches_the_same_steps_on_every_device() -> Result<()> {
    // Two chunks; the numbers are amid the first one, among eight steps that are not its first.
    const STEPS: usize = 40;
    for value in [f32::NAN, f32::INFINITY] {
        for argument in 0..5 {
            let mut inputs = inputs(STEPS)?;
            let mut numbers = inputs[argument].to_vec::<f32>()?;
            let row = numbers.len() / (2 * STEPS);
            numbers[11 * row + 1] = value;
            inputs[argument] = Array::from_slice(&numbers, inputs[argument].shape())?;
            let cotangents = [draw(&[2, STEPS, 4, 3])?, draw(&[2, 4, 3, 6])?];
            let run = |device: &crate::Device| -> Result<Vec<Vec<bool>>> {
                let moved = |x: &[Array]| -> Result<Vec<Array>> {
                    x.iter().map(|x| crate::to_device(x, device)).collect()
                };
                let rule = |x: &[Array]| {
                    let (y, state) = gated_delta(&x[0], &x[1], &x[2], &x[3], &x[4], None, None)?;
                    Ok(vec![y, state])
                };
                let (mut results, gradients) =
                    crate::vjp(rule, &moved(&inputs)?, &moved(&cotangents)?)?;
                results.extend(gradients);
                let finite = |x: &Array| -> Result<Vec<bool>> {
                    Ok(x.to_vec::<f32>()?.iter().map(|x| x.is_finite()).collect())
                };
                results.iter().map(finite).collect()
            };
            let want = run(&crate::Device::cpu())?;
            for device in crate::testing::devices() {
                assert_eq!(run(&device)?, want, "{value} in argument {argument} on {device}");
            }
        }
    }
    Ok(())
}

#[test]
fn narrow_inputs_have_a_wide_state() -> Result<()> {
    let [q, k, v, g, beta] = inputs(4)?.map(|x| x.astype(DType::BF16));
    let (y, state) = gated_delta(&q?, &k?, &v?, &g?, &beta?, None, None)?;
    assert_eq!((y.dtype(), state.dtype()), (DType::BF16, DType::F32));
    Ok(())
}

#[test]
fn nodes_of_the_gradient_do_not_grow_with_the_length() -> Result<()> {
    let nodes = |steps: usize| -> Result<usize> {
        let inputs = inputs(steps)?;
        crate::eval(&inputs)?;
        let rule = |x: &[Array]| {
            let (y, state) = gated_delta(&x[0], &x[1], &x[2], &x[3], &x[4], None, None)?;
            Ok(vec![y, state])
        };
        let before = crate::testing::counters();
        let cotangents = [draw(&[2, steps, 4, 3])?, draw(&[2, 4, 3, 6])?];
        let (_, gradients) = crate::vjp(rule, &inputs, &cotangents)?;
        crate::eval(&gradients)?;
        Ok(crate::testing::counters().since(&before).inferences as usize)
    };
    assert_eq!(nodes(3)?, nodes(300)?);
    let nodes = |steps: usize| -> Result<usize> {
        let scan = [draw(&[1, steps, 2])?, draw(&[1, steps, 2])?, draw(&[2, 3])?];
        let states = [draw(&[1, steps, 3])?, draw(&[1, steps, 3])?];
        let scan = [&scan[..], &states].concat();
        let convolution = [draw(&[2, steps, 5])?, draw(&[5, 4])?];
        crate::eval(scan.iter().chain(&convolution))?;
        let of_scan = |x: &[Array]| {
            let (y, state) = selective_scan(&x[0], &x[1], &x[2], &x[3], &x[4], None, None)?;
            Ok(vec![y, state])
        };
        let of_convolution = |x: &[Array]| {
            let (y, state) = causal_conv1d(&x[0], &x[1], None, None, true)?;
            Ok(vec![y, state])
        };
        let before = crate::testing::counters();
        let cotangents = [draw(&[1, steps, 2])?, draw(&[1, 2, 3])?];
        let (_, mut gradients) = crate::vjp(of_scan, &scan, &cotangents)?;
        let cotangents = [draw(&[2, steps, 5])?, draw(&[2, 3, 5])?];
        gradients.extend(crate::vjp(of_convolution, &convolution, &cotangents)?.1);
        crate::eval(&gradients)?;
        Ok(crate::testing::counters().since(&before).inferences as usize)
    };
    assert_eq!(nodes(3)?, nodes(300)?);
    Ok(())
}

/// Scratch memory is for some heads at a time, in unit tests for six of these eight; and products of keys are for as
/// many chunks as queries take memory, here for one.
#[cfg(feature = "gpu")]
#[test]
fn heads_take_turns_for_memory() -> Result<()> {
    use crate::ops::GatedDeltaBackward;
    const STEPS: usize = 40;
    let device = match crate::Device::gpu() {
        Ok(device) => device,
        Err(error) if !crate::testing::ci() => {
            eprintln!("SKIPPED: {error}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    // Of its own, so that nobody else's launches are counted.
    let index = device.as_gpu().map_or(0, |gpu| gpu.summary().index);
    let device = crate::Device::gpu_with(index, &crate::gpu::GpuOptions::default())?;
    let gates = random::uniform(0.1, 0.9, &[2, 4, STEPS, 1], DType::F32, None)?;
    let rates = random::uniform(0.1, 0.9, &[2, 4, STEPS], DType::F32, None)?;
    let (keys, values, states) = ([2, 2, STEPS, 6], [2, 4, STEPS, 3], [2, 4, 3, 6]);
    let (q, k, v, state) = (draw(&keys)?, draw(&keys)?, draw(&values)?, draw(&states)?);
    let inputs = [q, k, v, gates, rates, state, draw(&values)?, draw(&states)?];
    let run = |inputs: &[Array]| -> Result<Vec<Array>> {
        crate::eval(inputs)?;
        let op = GatedDeltaBackward { corrects: true };
        let gradients = Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?.into_vec();
        crate::eval(&gradients)?;
        Ok(gradients)
    };
    let moved = inputs.iter().map(|x| crate::to_device(x, &device)).collect::<Result<Vec<_>>>()?;
    crate::eval(&moved)?;
    let dispatches = || device.as_gpu().map_or(0, |gpu| gpu.counters().dispatches);
    let before = dispatches();
    let got = run(&moved)?;
    // Forward through two parts with products of keys, back through them with those of the first, four kernels each,
    // both for each turn; and one for each gradient.
    assert_eq!(dispatches() - before, 2 * (2 * 2 + 2 * 4 + 1) + 6);
    let wants = run(&inputs)?;
    for (got, want) in got.iter().zip(&wants) {
        close(got, want)?;
    }
    Ok(())
}

/// Products of chunks are of cooperative matrices where there are some and keys are of their size, within the
/// memory of an M1's workgroup; others need no more than any device has.
#[cfg(feature = "gpu")]
#[test]
fn chunks_are_of_cooperative_matrices_where_there_are_some() -> Result<()> {
    use crate::gpu::{Collector, GpuOptions, fits_apple7};
    const STEPS: usize = 40;
    let collector = std::sync::Arc::new(Collector::default());
    let options = GpuOptions { simulator: Some(collector.clone()), ..Default::default() };
    let device = crate::Device::gpu_with(0, &options)?;
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (keys, matrices) in
            [(8, true), (24, true), (128, true), (256, true), (33, false), (512, false)]
        {
            let of_keys = [1, STEPS, 1, keys];
            let inputs = [
                draw(&of_keys)?.astype(dtype)?,
                draw(&of_keys)?.astype(dtype)?,
                draw(&[1, STEPS, 2, 20])?.astype(dtype)?,
                draw(&[1, STEPS, 2])?,
                draw(&[1, STEPS, 2])?,
            ];
            let moved = inputs.iter().map(|x| crate::to_device(x, &device));
            let moved = moved.collect::<Result<Vec<_>>>()?;
            crate::eval(&moved)?;
            collector.take();
            let rule = |x: &[Array]| {
                Ok(vec![gated_delta(&x[0], &x[1], &x[2], &x[3], &x[4], None, None)?.0])
            };
            let cotangent = crate::to_device(&draw(&[1, STEPS, 2, 20])?.astype(dtype)?, &device)?;
            // Its results are meaningless.
            let (results, gradients) = crate::vjp(rule, &moved, &[cotangent])?;
            crate::eval(results.iter().chain(&gradients))?;
            let launched = collector.take();
            for (op, names) in [
                ("gated_delta", &["keys", "chunked"][..]),
                ("gated_delta_backward", &["keys", "chunked", "slopes", "pairs", "gradients"]),
            ] {
                for name in names {
                    let way = if matrices { "cooperative" } else { "tiled" };
                    let name = format!("{op}/{name}/{way}/{dtype}/{keys}/true");
                    let named = |key: String| key == name;
                    let kernel = launched.iter().find(|one| named(one.launch.key.to_string()));
                    let Some(kernel) = kernel else { panic!("{name} was not launched") };
                    let source = &kernel.launch.source;
                    assert_eq!(source.contains("coopMultiplyAdd"), matrices, "{name}");
                    assert_eq!(source.contains("coop_mat8x8<f32"), matrices, "{name}");
                    let cost = kernel.cost().unwrap();
                    fits_apple7(&cost).unwrap();
                    let most = if matrices { 32 << 10 } else { 16 << 10 };
                    assert!(cost.workgroup_bytes <= most, "{name}: {}", cost.workgroup_bytes);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn errors_of_the_delta_rule_tell_what_was_expected() -> Result<()> {
    let [q, k, v, g, beta] = inputs(3)?;
    let error = |result: Result<(Array, Array)>| result.map(|_| ()).unwrap_err().to_string();
    let odd = draw(&[2, 3, 3, 3])?;
    let of_odd = draw(&[2, 3, 3])?;
    assert!(error(gated_delta(&q, &k, &odd, &of_odd, &of_odd, None, None)).contains("2 key heads"));
    assert!(error(gated_delta(&q, &k, &v, &g, &draw(&[2, 3, 2])?, None, None)).contains("beta"));
    let state = draw(&[2, 4, 6, 3])?;
    assert!(error(gated_delta(&q, &k, &v, &g, &beta, Some(&state), None)).contains("[2, 4, 3, 6]"));
    let mask = Array::new([[true, true, true]])?;
    let of_mask = error(gated_delta(&q, &k, &v, &g, &beta, None, Some(&mask)));
    assert!(of_mask.contains("mask") && of_mask.contains("[2, 3]"), "{of_mask}");
    Ok(())
}

#[test]
fn scans_of_integers_are_errors_instead_of_cut_off_results() -> Result<()> {
    let ones = |shape: &[usize]| Array::ones(shape, DType::F32);
    let (x, a) = (ones(&[1, 2, 3])?.astype(DType::I32)?, ones(&[3, 2])?);
    let (dt, b) = (ones(&[1, 2, 3])?, ones(&[1, 2, 2])?);
    let one = selective_scan(&x, &dt, &a, &b, &b, None, None).map(|_| ());
    let x = x.reshape(&[1, 2, 3, 1])?;
    let b = ones(&[1, 2, 1, 2])?;
    let two = selective_scan2(&x, &dt, &ones(&[3])?, &b, &b, None, None).map(|_| ());
    for (error, name) in [(one, "selective_scan"), (two, "selective_scan2")] {
        let error = error.unwrap_err();
        assert!(matches!(error, crate::Error::Dtype { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(name) && text.contains('x') && text.contains("int32"), "{text}");
    }
    Ok(())
}

#[test]
fn errors_of_mamba2s_scan_name_its_arguments() -> Result<()> {
    let (x, dt, a) = (draw(&[2, 3, 4, 5])?, draw(&[2, 3, 4])?, draw(&[4])?);
    let right = draw(&[2, 3, 2, 6])?;
    let error = |b: &Array, c: &Array, state: Option<&Array>| {
        let result = selective_scan2(&x, &dt, &a, b, c, None, state);
        let error = result.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("selective_scan2"), "{error}");
        error
    };
    for shape in [&[2, 3, 6][..], &[1, 3, 2, 6], &[2, 4, 2, 6], &[2, 3, 3, 6], &[2, 3, 0, 6]] {
        let of_b = error(&draw(shape)?, &right, None);
        assert!(of_b.contains("] b: "), "{of_b}");
    }
    for shape in [&[2, 3, 2][..], &[2, 3, 1, 6], &[2, 3, 2, 7]] {
        let of_c = error(&right, &draw(shape)?, None);
        assert!(of_c.contains("] c: ") && of_c.contains("[2, 3, 2, 6]"), "{of_c}");
    }
    let of_state = error(&right, &right, Some(&draw(&[2, 4, 6, 5])?));
    assert!(of_state.contains("] state: ") && of_state.contains("[2, 4, 5, 6]"), "{of_state}");
    let none = error(&draw(&[2, 3, 2, 0])?, &draw(&[2, 3, 2, 0])?, None);
    assert!(none.contains("] b: "), "{none}");
    Ok(())
}
