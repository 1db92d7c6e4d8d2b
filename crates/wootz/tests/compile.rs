//! Compiled functions: the same bits as uncompiled ones, recorded once per signature, replayed in
//! memory that was laid out ahead.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wootz::nn::{self, Module};
use wootz::optim::{AdamW, Optimizer};
use wootz::testing::counters;
use wootz::{
    Array, DType, Device, Error, Result, Tree, checkpoint, compile, compile_of, custom, grad, ops,
    random, value_and_grad, value_and_grad_of, vmap,
};

/// Held by each test while it runs: the CPU's counters are for the process.
fn take_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn devices() -> Vec<Device> {
    match Device::gpu() {
        Ok(gpu) => vec![Device::cpu(), gpu],
        Err(error) if !wootz::testing::ci() => {
            eprintln!("SKIPPED: {error}");
            vec![Device::cpu()]
        }
        Err(error) => panic!("{error}"),
    }
}

fn normal(seed: u64, shape: &[usize], device: &Device) -> Result<Array> {
    let x = random::normal(shape, DType::F32, 0.0, 1.0, Some(&random::key(seed)?))?;
    let x = wootz::to_device(&x, device)?;
    x.eval()?;
    Ok(x)
}

/// Two layers with everything a plan must handle: fused runs, views, reductions, constants.
fn network(x: &[Array]) -> Result<Vec<Array>> {
    let hidden = ops::maximum(ops::matmul(&x[0], &x[1])? + 0.5, 0.0)?;
    let scale = Array::from_slice_on(&[1.0f32, 2.0, 3.0], &[3], x[0].device())?;
    let out = ops::matmul(&hidden, &x[2].transpose()?)? * scale;
    let normed = ops::softmax(&out, -1)?;
    Ok(vec![normed.sum(())?, hidden.transpose()?, x[1].clone(), normed])
}

/// Steps of the device before and after one that the host computes.
fn through_the_host(x: &[Array]) -> Result<Vec<Array>> {
    let a = ops::matmul(&x[0], &x[0].transpose()?)? + 0.5;
    let inverse = wootz::linalg::inv(&a)?;
    let (q, r) = wootz::linalg::qr(&(&inverse * 2.0))?;
    Ok(vec![ops::matmul(&inverse, &a)? + 1.0, ops::matmul(&q, &r)?])
}

#[test]
fn scalars_come_to_a_plan_from_any_device() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let scale = compile(|x: &[Array]| Ok(vec![&x[1] * &x[0]]));
        let x = normal(1, &[5], &device)?;
        for other in devices() {
            let factor = Array::from_slice_on(&[0.5f32], &[], &other)?;
            let got = scale.call(&[factor.clone(), x.clone()])?.remove(0);
            assert_eq!(*got.device(), device);
            assert_eq!(got.to_bytes()?, (&x * &factor).to_bytes()?, "{device}, from {other}");
            let longer = Array::from_slice_on(&[0.5f32], &[1], &other)?;
            assert_eq!(scale.call(&[longer, x.clone()]).is_ok(), device == other);
        }
        assert_eq!(scale.stats().traces, 2, "{device}");

        // The step's number and the learning rate are where the optimizer was made.
        type Training = (nn::Linear, BTreeMap<String, Array>, Array);
        let mut model = wootz::with_device(&device, || nn::Linear::new(4, 3, true))?;
        let mut optimizer = AdamW::new(0.1)?;
        let loss = |x: &Array, model: &nn::Linear| model.forward(x)?.square()?.mean(());
        let step = compile_of(|(model, state, x): &Training| {
            let (mut model, mut optimizer) = (model.clone(), AdamW::new(0.1)?);
            optimizer.set_state(state)?;
            let (_, gradients) = value_and_grad_of(|model: &nn::Linear| loss(x, model))(&model)?;
            optimizer.update(&mut model, &gradients)?;
            Ok((model, optimizer.state()))
        });
        optimizer.init(&model.parameters())?;
        let x = normal(2, &[6, 4], &device)?;
        let mut compiled = (model.clone(), optimizer.state());
        for _ in 0..3 {
            let (_, gradients) = value_and_grad_of(|model: &nn::Linear| loss(&x, model))(&model)?;
            optimizer.update(&mut model, &gradients)?;
            compiled = step.call(&(compiled.0, compiled.1, x.clone()))?;
        }
        let close = wootz::allclose(&compiled.0.weight, &model.weight, 1e-4, 1e-5, false)?;
        assert!(close.item::<bool>()?, "{device}");
        assert_eq!(step.stats().traces, 1, "{device}");
    }
    Ok(())
}

#[test]
fn operations_of_the_host_are_steps_of_a_plan() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let compiled = compile(through_the_host);
        for seed in 0..3 {
            let arguments = [normal(seed, &[3, 8], &device)?];
            let (expected, got) = (through_the_host(&arguments)?, compiled.call(&arguments)?);
            for (expected, got) in expected.iter().zip(&got) {
                assert_eq!(got.device(), &device);
                assert_eq!(expected.to_bytes()?, got.to_bytes()?, "{device}");
            }
            let product = got[0].to_vec::<f32>()?;
            let identity = [2.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 2.0f32];
            assert!(product.iter().zip(identity).all(|(x, y)| (x - y).abs() < 1e-3), "{product:?}");
        }
        // What goes wrong on the host is an error of the replay, and the plan works again.
        let zeros = wootz::to_device(&Array::zeros(&[3, 8], DType::F32)?, &device)?;
        let error = compiled.call(&[zeros]).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("singular")));
        assert!(compiled.call(&[normal(9, &[3, 8], &device)?]).is_ok());
    }
    Ok(())
}

#[test]
fn while_compiling_is_disabled_functions_run_by_themselves() -> Result<()> {
    let _turn = take_turn();
    let double = compile(|x: &[Array]| Ok(vec![&x[0] * 2.0]));
    let x = normal(1, &[3], &Device::cpu())?;
    wootz::disable_compile();
    let by_itself = double.call(&[x.clone()]);
    wootz::enable_compile();
    let by_itself = by_itself?;
    assert_eq!((double.stats().traces, double.stats().replays), (0, 0));
    assert_eq!(by_itself[0].to_bytes()?, double.call(&[x])?[0].to_bytes()?);
    assert_eq!((double.stats().traces, double.stats().replays), (1, 1));
    Ok(())
}

#[test]
fn a_panic_ends_its_recording() -> Result<()> {
    let _turn = take_turn();
    let x = normal(1, &[3], &Device::cpu())?;
    // Operators panic where functions return errors.
    let wrong = compile(|x: &[Array]| Ok(vec![&x[0] + Array::new([1.0f32, 2.0])?]));
    let call = std::panic::AssertUnwindSafe(|| wrong.call(&[x.clone()]));
    assert!(std::panic::catch_unwind(call).is_err());
    // While something is recorded, a draw needs a key, and compiled functions run by themselves.
    random::normal(&[2], DType::F32, 0.0, 1.0, None)?.eval()?;
    let double = compile(|x: &[Array]| Ok(vec![&x[0] * 2.0]));
    double.call(&[x])?;
    assert_eq!((double.stats().traces, double.stats().replays), (1, 1));
    Ok(())
}

#[test]
fn results_have_the_bits_of_the_function_itself() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let compiled = compile(network);
        for seed in 0..3 {
            let arguments = [
                normal(seed, &[5, 7], &device)?,
                normal(seed + 10, &[7, 6], &device)?,
                normal(seed + 20, &[3, 6], &device)?,
            ];
            let (expected, got) = (network(&arguments)?, compiled.call(&arguments)?);
            for (index, (expected, got)) in expected.iter().zip(&got).enumerate() {
                assert_eq!(expected.shape(), got.shape());
                assert_eq!(expected.to_bytes()?, got.to_bytes()?, "{device} output {index}");
            }
        }
        assert_eq!(compiled.stats().traces, 1);
        assert_eq!(compiled.stats().replays, 3);
    }
    Ok(())
}

#[test]
fn results_that_are_kept_keep_their_values() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let double = compile(|x: &[Array]| Ok(vec![&x[0] * 2.0, (&x[0] * 2.0).sum(())?]));
        let mut kept = Vec::new();
        for i in 0..6 {
            let x = Array::from_slice_on(&[i as f32; 100], &[100], &device)?;
            kept.push(double.call(&[x])?);
        }
        for (i, results) in kept.iter().enumerate() {
            assert_eq!(results[0].to_vec::<f32>()?, [2.0 * i as f32; 100], "{device}");
            assert_eq!(results[1].item::<f32>()?, 200.0 * i as f32, "{device}");
        }
    }
    Ok(())
}

#[test]
fn new_shapes_and_dtypes_record_anew_and_numbers_do_not() -> Result<()> {
    let _turn = take_turn();
    let scaled = compile(|x: &[Array]| Ok(vec![ops::multiply(&x[0], &x[1])?])).capacity(2);
    let call = |count: usize, dtype, rate: f32| -> Result<f32> {
        let x = Array::ones(&[count], dtype)?;
        let rate = Array::scalar(rate, DType::F32)?;
        Ok(scaled.call(&[x, rate])?[0].sum(())?.item::<f32>()? / count as f32)
    };
    for rate in [0.5, 0.25, 3.0] {
        assert_eq!(call(4, DType::F32, rate)?, rate);
    }
    assert_eq!(scaled.stats().traces, 1);
    call(5, DType::F32, 1.0)?;
    call(4, DType::I32, 1.0)?;
    assert_eq!(scaled.stats().traces, 3);
    // The first was forgotten, the other two were not.
    call(4, DType::I32, 1.0)?;
    call(5, DType::F32, 1.0)?;
    assert_eq!(scaled.stats().traces, 3);
    call(4, DType::F32, 1.0)?;
    assert_eq!(scaled.stats().traces, 4);
    Ok(())
}

#[test]
fn the_peak_of_a_replay_is_known_before_it_runs() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let deep = compile(|x: &[Array]| {
            let mut y = x[0].clone();
            for _ in 0..20 {
                y = ops::softmax(&ops::matmul(&y, &x[1])?, -1)?;
            }
            Ok(vec![y])
        });
        let size = if device.is_gpu() { 32 } else { 256 };
        let arguments = [normal(1, &[size, size], &device)?, normal(2, &[size, size], &device)?];
        let plan = deep.plan(&arguments)?;
        assert_eq!(plan.nodes, 40 + 2);
        // Two intermediate results at a time, the last, and a place for what is not there.
        assert!(plan.bytes <= 3 * size * size * 4 + 256, "{device}: {plan:?}");
        device.reset_peak_memory();
        let before = device.memory().active;
        let mut x = deep.call(&arguments)?;
        assert_eq!((device.memory().peak - before) as usize, plan.bytes, "{device}");
        // Nothing more is allocated when the results before the last are let go.
        x = deep.call(&[x[0].clone(), arguments[1].clone()])?;
        x = deep.call(&[x[0].clone(), arguments[1].clone()])?;
        device.reset_peak_memory();
        let settled = device.memory().active;
        for _ in 0..5 {
            x = deep.call(&[x[0].clone(), arguments[1].clone()])?;
        }
        assert_eq!(device.memory().peak, settled, "{device}");
        assert_eq!(x[0].shape(), [size, size]);
    }
    Ok(())
}

#[test]
fn a_replay_allocates_nothing_and_infers_no_shapes() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let step = |x: &[Array]| {
            let loss = |w: &[Array]| ops::matmul(&x[0], &w[0])?.tanh()?.square()?.mean(());
            let (value, gradients) = value_and_grad(loss)(&x[1..2])?;
            Ok(vec![&x[1] - &gradients[0] * &x[2], value])
        };
        let compiled = compile(step);
        let (x, mut w) = (normal(1, &[9, 17], &device)?, normal(2, &[17, 5], &device)?);
        let rate = Array::from_slice_on(&[0.1f32], &[], &device)?;
        let once = |w: &Array| compiled.call(&[x.clone(), w.clone(), rate.clone()]);
        // The first results are new memory; those before the last are used again.
        for _ in 0..3 {
            w = once(&w)?.remove(0);
        }
        let before = (counters(), gpu_allocations(&device));
        for _ in 0..10 {
            w = once(&w)?.remove(0);
        }
        let done = counters().since(&before.0);
        assert_eq!((done.inferences, done.allocations), (0, 0), "{device}");
        assert!(done.written_bytes > 0);
        assert_eq!(gpu_allocations(&device), before.1);
        // The counters do count: the function itself infers and allocates.
        let before = counters();
        wootz::eval(&step(&[x.clone(), w.clone(), rate.clone()])?)?;
        let done = counters().since(&before);
        assert!(done.inferences > 5 && done.allocations > 2, "{device}: {done:?}");
    }
    Ok(())
}

#[test]
fn a_replay_for_a_structure_allocates_nothing_and_infers_no_shapes() -> Result<()> {
    type Training = (Array, Array, f64);
    let _turn = take_turn();
    for device in devices() {
        let step = |(w, x, rate): &Training| {
            let loss = |w: &Array| ops::matmul(x, w)?.tanh()?.square()?.mean(());
            let (value, gradient) = value_and_grad_of(loss)(w)?;
            Ok((w - gradient * *rate, value))
        };
        let compiled = compile_of(step);
        let (x, mut w) = (normal(1, &[9, 17], &device)?, normal(2, &[17, 5], &device)?);
        let plan = compiled.plan(&(w.clone(), x.clone(), 0.1))?;
        assert!(plan.nodes > plan.kernels && plan.kernels > 2 && plan.bytes > 0, "{plan:?}");
        for _ in 0..3 {
            w = compiled.call(&(w, x.clone(), 0.1))?.0;
        }
        let before = (counters(), gpu_allocations(&device));
        for _ in 0..10 {
            w = compiled.call(&(w, x.clone(), 0.1))?.0;
        }
        let done = counters().since(&before.0);
        assert_eq!((done.inferences, done.allocations), (0, 0), "{device}");
        assert_eq!(gpu_allocations(&device), before.1);
        assert_eq!((compiled.stats().traces, compiled.stats().replays), (1, 13));
        // The counters do count: the function itself infers and allocates.
        let before = counters();
        let (w, value) = step(&(w, x, 0.1))?;
        wootz::eval([&w, &value])?;
        let done = counters().since(&before);
        assert!(done.inferences > 5 && done.allocations > 2, "{device}: {done:?}");
    }
    Ok(())
}

/// Buffers that the driver of a GPU was asked for.
fn gpu_allocations(device: &Device) -> u64 {
    #[cfg(feature = "gpu")]
    if let Some(gpu) = device.as_gpu() {
        return gpu.counters().allocations;
    }
    let _ = device;
    0
}

#[test]
fn a_growing_cache_is_recorded_when_it_grows_and_never_copied() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        // 40 capacities on the CPU.
        let steps = if device.is_gpu() { 600 } else { 10_000 };
        grow_a_cache(&device, steps)?;
    }
    Ok(())
}

/// One step: appends a row at a position, reads the last rows, and makes the next row of them.
fn append(x: &[Array]) -> Result<Vec<Array>> {
    let (cache, position, row) = (&x[0], &x[1], &x[2]);
    let cache = ops::slice_update_dynamic(cache, row, position, &[0])?;
    let from = ops::maximum(position - 3, 0)?;
    let last = ops::slice_dynamic(&cache, &from, &[0], &[1, cache.shape()[1]])?;
    Ok(vec![cache, position + 1, (last * 0.5 + row).sin()?])
}

fn grow_a_cache(device: &Device, steps: usize) -> Result<()> {
    const ROOM: usize = 256;
    const WIDTH: usize = 64;
    let room = || {
        let zeros = vec![0.0f32; ROOM * WIDTH];
        Array::from_slice_on(&zeros, &[ROOM, WIDTH], device)
    };
    let first = || -> Result<[Array; 2]> {
        let position = Array::from_slice_on(&[0i32], &[1], device)?;
        Ok([position, normal(9, &[1, WIDTH], device)?])
    };
    let step = compile(append);
    let (mut cache, [mut position, mut row]) = (room()?, first()?);
    let mut traces = 0;
    let mut usual = None;
    for number in 0..steps {
        if number == cache.shape()[0] {
            cache = ops::concatenate(&[&cache, &room()?], 0)?;
            cache.eval()?;
        }
        let before = counters();
        let results = step.call_owned(vec![cache, position, row])?;
        let done = counters().since(&before);
        [cache, position, row] = results.try_into().unwrap();
        // Steps that record are others, and those whose results are new memory.
        if step.stats().traces > traces {
            traces = step.stats().traces;
        } else if number % ROOM > 4 {
            // Another order of steps may save a few bytes more.
            let most = *usual.get_or_insert(done.written_bytes);
            assert!(done.written_bytes <= most, "{device}, step {number}: {done:?}");
            assert_eq!((done.allocations, done.inferences), (0, 0), "{device}, step {number}");
        }
    }
    assert_eq!(traces as usize, steps.div_ceil(ROOM), "{device}");
    // The next position and row, and what they are made of: nothing of the size of the cache.
    assert!(usual.unwrap() < 4 * WIDTH as u64 * 4, "{device}: {usual:?} bytes in a step");
    // The same rows as without plans.
    let (mut plain, [mut position, mut row]) = (room()?, first()?);
    for _ in 0..20 {
        [plain, position, row] = append(&[plain, position, row])?.try_into().unwrap();
        wootz::eval([&plain, &position, &row])?;
    }
    let rows = |x: &Array| wootz::slice(x, &[0, 0], &[20, WIDTH], &[1, 1])?.to_bytes();
    assert_eq!(rows(&cache)?, rows(&plain)?, "{device}");
    Ok(())
}

#[test]
fn a_ring_is_written_in_place_and_goes_round() -> Result<()> {
    let _turn = take_turn();
    const ROOM: usize = 64;
    const WIDTH: usize = 32;
    for device in devices() {
        let room = || Array::from_slice_on(&[0.0f32; ROOM * WIDTH], &[1, ROOM, WIDTH], &device);
        let step = compile(|x: &[Array]| {
            let ring = wootz::cache_ring(&x[0], &x[2], &x[1])?;
            Ok(vec![ring, &x[1] + 2, &x[2] + 1.0])
        });
        let first = || -> Result<[Array; 2]> {
            let position = Array::from_slice_on(&[0i32], &[1], &device)?;
            Ok([position, normal(9, &[1, 2, WIDTH], &device)?])
        };
        let (mut ring, [mut position, mut rows]) = (room()?, first()?);
        let steps = ROOM;
        for number in 0..steps {
            let before = counters();
            let results = step.call_owned(vec![ring, position, rows])?;
            let done = counters().since(&before);
            [ring, position, rows] = results.try_into().unwrap();
            if number > 4 {
                // The rows, the position and where it leads to: nothing of the size of the ring.
                assert!(done.written_bytes < 8 * WIDTH as u64 * 4, "{device}: {done:?}");
                assert_eq!((done.allocations, done.inferences), (0, 0), "{device}");
            }
        }
        let (mut plain, [mut position, mut rows]) = (room()?, first()?);
        for _ in 0..steps {
            plain = wootz::cache_ring(&plain, &rows, &position)?;
            (position, rows) = (&position + 2, &rows + 1.0);
            wootz::eval([&plain, &position, &rows])?;
        }
        assert_eq!(ring.to_bytes()?, plain.to_bytes()?, "{device}");
    }
    Ok(())
}

#[test]
fn arguments_given_away_are_written_only_if_nobody_else_sees_them() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let ones = || {
            let x = Array::from_slice_on(&[1.0f32; 4096], &[64, 64], &device)?;
            x.eval()?;
            Ok::<_, Error>(x)
        };
        let row = normal(3, &[1, 64], &device)?;
        // In place twice, one after the other.
        let twice = compile(|x: &[Array]| {
            let once = wootz::slice_update(&x[0], &x[1], &[2, 0], &[3, 64], &[1, 1])?;
            Ok(vec![wootz::slice_update(&once, &x[1], &[5, 0], &[6, 64], &[1, 1])?])
        });
        let expected = twice.call(&[ones()?, row.clone()])?[0].to_bytes()?;
        let written = |arguments: Vec<Array>| -> Result<u64> {
            let before = counters();
            let result = twice.call_owned(arguments)?.remove(0);
            let done = counters().since(&before);
            assert_eq!(result.to_bytes()?, expected, "{device}");
            Ok(done.written_bytes)
        };
        assert_eq!(written(vec![ones()?, row.clone()])?, 0, "{device}");
        let (held, viewed) = (ones()?, ones()?);
        assert_eq!(written(vec![held.clone(), row.clone()])?, 4096 * 4, "{device}");
        assert_eq!(held.to_vec::<f32>()?, [1.0; 4096], "{device}");
        // A view that is evaluated holds the memory too.
        let view = viewed.transpose()?;
        view.eval()?;
        assert_eq!(written(vec![viewed, row.clone()])?, 4096 * 4, "{device}");
        assert_eq!(view.to_vec::<f32>()?, [1.0; 4096], "{device}");
        // The same array twice, and one that is a result as well.
        let sum = compile(|x: &[Array]| Ok(vec![&x[0] + &x[1] * 2.0, x[1].clone()]));
        let both = ones()?;
        let got = sum.call_owned(vec![both.clone(), both])?;
        assert_eq!(got[0].to_vec::<f32>()?, [3.0; 4096], "{device}");
        assert_eq!(got[1].to_vec::<f32>()?, [1.0; 4096], "{device}");
        // The beginning of something larger has not its memory.
        let beginning = compile(|x: &[Array]| {
            let (wide, of) = (&x[0] * 3.0, |x: &Array| wootz::slice(x, &[0, 0], &[2, 64], &[1, 1]));
            let first = ops::softmax(&of(&ops::softmax(&wide, 0)?)?, 1)?;
            Ok(vec![first, ops::softmax(&of(&x[1])?, 1)?])
        });
        for got in beginning.call_owned(vec![ones()?, ones()?])? {
            assert_eq!(got.to_vec::<f32>()?, [1.0 / 64.0; 128], "{device}");
        }
        // What a plan gave as a result is given away to it again.
        let mut x = twice.call(&[ones()?, row.clone()])?.remove(0);
        for _ in 0..3 {
            let before = counters();
            x = twice.call_owned(vec![x, row.clone()])?.remove(0);
            assert_eq!(counters().since(&before).allocations, 0, "{device}");
        }
        assert_eq!(x.to_bytes()?, expected, "{device}");
    }
    Ok(())
}

#[test]
fn views_are_arguments_and_arguments_may_be_results() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let x = normal(3, &[6, 8], &device)?;
        let pass = compile(|x: &[Array]| Ok(vec![x[0].clone(), &x[0] + 1.0, x[0].transpose()?]));
        let part = wootz::slice(&x.transpose()?, &[1, 2], &[7, 6], &[2, 1])?;
        let got = pass.call(&[part.clone()])?;
        assert_eq!(got[0].to_bytes()?, part.to_bytes()?, "{device}");
        assert_eq!(got[1].to_bytes()?, (&part + 1.0).to_bytes()?, "{device}");
        assert_eq!(got[2].to_bytes()?, part.transpose()?.to_bytes()?, "{device}");
    }
    Ok(())
}

#[test]
fn empty_arrays_are_results_and_parts_of_others() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let join = compile(|x: &[Array]| {
            let empty = ops::matmul(&wootz::slice(&x[0], &[0, 0], &[0, 3], &[1, 1])?, &x[1])?;
            Ok(vec![ops::concatenate(&[&empty, &x[0]], 0)? * 2.0, empty])
        });
        let (x, y) = (normal(6, &[2, 3], &device)?, normal(7, &[3, 3], &device)?);
        for _ in 0..2 {
            let got = join.call(&[x.clone(), y.clone()])?;
            assert_eq!(got[0].to_bytes()?, (&x * 2.0).to_bytes()?, "{device}");
            assert_eq!(got[1].shape(), [0, 3], "{device}");
        }
    }
    Ok(())
}

#[test]
fn transforms_go_through_compiled_functions_and_into_them() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let loss = |x: &[Array]| ops::matmul(&x[0], &x[1])?.tanh()?.sum(());
        let arguments = [normal(4, &[5, 4], &device)?, normal(5, &[4, 3], &device)?];
        let expected = grad(loss)(&arguments)?;
        let inside = compile(|x: &[Array]| grad(loss)(x));
        for _ in 0..2 {
            for (expected, got) in expected.iter().zip(inside.call(&arguments)?) {
                assert_eq!(expected.to_bytes()?, got.to_bytes()?, "{device}");
            }
        }
        let compiled = compile(|x: &[Array]| Ok(vec![loss(x)?]));
        let around = grad(|x: &[Array]| Ok(compiled.call(x)?.remove(0)));
        for (expected, got) in expected.iter().zip(around(&arguments)?) {
            assert_eq!(expected.to_bytes()?, got.to_bytes()?, "{device}");
        }
        let each = vmap(|x: &[Array]| compiled.call(x), [Some(0), None], 0);
        let rows = compile(|x: &[Array]| each(x));
        assert_eq!(rows.call(&arguments)?[0].shape(), [5]);
        assert_eq!(rows.call(&arguments)?[0].to_bytes()?, each(&arguments)?[0].to_bytes()?);
    }
    Ok(())
}

#[test]
fn checkpoints_and_custom_functions_are_recorded() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let layer = checkpoint(|x: &[Array]| Ok(vec![ops::matmul(&x[0], &x[1])?.tanh()?]));
        let halved = custom(|x: &[Array]| Ok(vec![&x[0] * 0.5]))
            .with_vjp(|_, cotangents, _| Ok(vec![&cotangents[0] * 7.0]));
        let loss = |x: &[Array]| halved.call(&layer(x)?)?[0].sum(());
        let step = |x: &[Array]| {
            let (value, mut gradients) = value_and_grad(loss)(x)?;
            gradients.push(value);
            Ok(gradients)
        };
        let compiled = compile(step);
        for seed in 0..2 {
            let arguments = [normal(seed, &[5, 4], &device)?, normal(seed + 5, &[4, 3], &device)?];
            let (expected, got) = (step(&arguments)?, compiled.call(&arguments)?);
            for (expected, got) in expected.iter().zip(got) {
                assert_eq!(expected.to_bytes()?, got.to_bytes()?, "{device}");
            }
        }
        assert_eq!(compiled.stats().traces, 1);
    }
    Ok(())
}

#[test]
fn what_a_plan_cannot_do_is_an_error() -> Result<()> {
    let _turn = take_turn();
    let x = Array::ones(&[3], DType::F32)?;
    let reason = |result: Result<Vec<Array>>| match result {
        Err(Error::Transform { transform: "compile", reason }) => reason,
        other => panic!("{other:?}"),
    };
    let looks = compile(|x: &[Array]| {
        let _value = x[0].to_vec::<f32>()?;
        Ok(x.to_vec())
    });
    assert!(reason(looks.call(&[x.clone()])).contains("must not evaluate"));
    let draws =
        compile(|x: &[Array]| Ok(vec![random::uniform(0.0, 1.0, &[3], DType::F32, None)? + &x[0]]));
    assert!(reason(draws.call(&[x.clone()])).contains("without a key"));
    // A gradient that would be lost.
    let outer = grad(|y: &[Array]| {
        let captures = compile(|x: &[Array]| Ok(vec![(&x[0] * &y[0]).sum(())?]));
        Ok(captures.call(&[x.clone()])?.remove(0))
    });
    assert!(matches!(outer(&[x.clone()]), Err(Error::Transform { transform: "compile", .. })));
    // The function works again after a failure.
    let fails_once = std::sync::atomic::AtomicBool::new(true);
    let retried =
        compile(|x: &[Array]| match fails_once.swap(false, std::sync::atomic::Ordering::Relaxed) {
            true => ops::matmul(&x[0], &Array::ones(&[4], DType::F32)?).map(|y| vec![y]),
            false => Ok(vec![&x[0] + 1.0]),
        });
    assert!(retried.call(&[x.clone()]).is_err());
    assert_eq!(retried.call(&[x.clone()])?[0].to_vec::<f32>()?, [2.0; 3]);
    Ok(())
}

#[test]
fn a_bad_index_in_a_replay_is_an_error_and_the_next_replay_is_right() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let take = compile(|x: &[Array]| Ok(vec![ops::take(&x[0], &x[1], Some(0))? * 2.0]));
        let x = Array::from_slice_on(&[1.0f32, 2.0, 3.0], &[3], &device)?;
        let index = |i: i32| Array::from_slice_on(&[i], &[1], &device);
        let bad = take.call(&[x.clone(), index(7)?]).and_then(|y| y[0].to_vec::<f32>());
        assert!(matches!(bad, Err(Error::Index { got: 7, .. })), "{device}: {bad:?}");
        assert_eq!(take.call(&[x, index(1)?])?[0].to_vec::<f32>()?, [4.0], "{device}");
    }
    Ok(())
}

#[test]
fn threads_share_a_compiled_function() -> Result<()> {
    let _turn = take_turn();
    let cube = compile(|x: &[Array]| Ok(vec![&x[0] * &x[0] * &x[0]]));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cube = &cube;
            scope.spawn(move || {
                for i in 0..50 {
                    let value = (thread * 50 + i) as f32;
                    let x = Array::from_slice_on(&[value; 64], &[64], &Device::cpu()).unwrap();
                    let y = cube.call(&[x]).unwrap().remove(0);
                    assert_eq!(y.to_vec::<f32>().unwrap(), [value * value * value; 64]);
                }
            });
        }
    });
    Ok(())
}
