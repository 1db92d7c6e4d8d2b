//! Laziness: what runs when, in how many passes, and in whose memory.
#![allow(missing_docs)]
#![cfg(feature = "gpu")]

use wootz::{Array, DType, Device, Ellipsis, IndexStep, Result, to_device};

/// A GPU device of the test's own, so that its counters are too.
fn own_gpu() -> Option<Device> {
    let opened = Device::gpu().and_then(|gpu| {
        Device::gpu_with(gpu.as_gpu().map_or(0, |gpu| gpu.summary().index), &Default::default())
    });
    match opened {
        Ok(device) => Some(device),
        Err(error) if !wootz::testing::ci() => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn ramp(device: &Device, count: usize) -> Array {
    let values: Vec<f32> = (0..count).map(|i| i as f32).collect();
    Array::from_slice_on(&values, &[count], device).unwrap()
}

#[test]
fn views_of_nothing_lie_within_their_memory() -> Result<()> {
    for device in [Some(Device::cpu()), own_gpu()].into_iter().flatten() {
        let x = to_device(&Array::zeros(&[3, 8, 3, 0], DType::I32)?, &device)?;
        let turned = x.index((.., (..).step(-1)))?.moveaxis(0, 1)?;
        assert_eq!((turned.shape(), turned.to_vec::<i32>()?), (&[8, 3, 3, 0][..], vec![]));
        // Nor do gradients look where nothing is.
        let x = to_device(&Array::zeros(&[2, 0, 64], DType::F32)?, &device)?;
        let x = x.index((Ellipsis, (..).step(-1)))?;
        let weight = to_device(&Array::ones(&[64], DType::F32)?, &device)?;
        let (_, gradients) = wootz::vjp(
            |x| Ok(vec![wootz::rms_norm(&x[0], Some(&x[1]), 1e-5)?]),
            &[x.clone(), weight],
            &[x],
        )?;
        assert_eq!(gradients[1].to_vec::<f32>()?, [0.0; 64]);
    }
    Ok(())
}

#[test]
fn nothing_runs_before_it_is_asked_for() -> Result<()> {
    let Some(device) = own_gpu() else { return Ok(()) };
    let gpu = device.as_gpu().unwrap();
    let x = ramp(&device, 100);
    let before = gpu.counters();
    let memory = device.memory().active;
    let y = (&x + 1.0).square()?.sum(())?;
    let unused = (&x * 3.0).sum(())?;
    assert_eq!(gpu.counters(), before);
    assert_eq!(device.memory().active, memory);
    assert!(!y.is_evaluated());
    y.eval()?;
    assert!(y.is_evaluated() && !unused.is_evaluated());
    let after = gpu.counters();
    assert_eq!(after.submissions - before.submissions, 1);
    assert_eq!(after.downloaded_bytes, before.downloaded_bytes);
    y.eval()?;
    assert_eq!(gpu.counters().dispatches, after.dispatches, "evaluated once");
    Ok(())
}

#[test]
fn a_chain_of_elementwise_operations_is_one_kernel() -> Result<()> {
    let Some(device) = own_gpu() else { return Ok(()) };
    let gpu = device.as_gpu().unwrap();
    let (x, z) = (ramp(&device, 1000), ramp(&device, 1000));
    let before = gpu.counters().dispatches;
    let y = wootz::negative((((&x + &z) * 0.5 - 3.0).square()? * &z + 1.0).exp()? - &x)?;
    y.eval()?;
    assert_eq!(gpu.counters().dispatches - before, 1);
    Ok(())
}

#[test]
fn results_that_somebody_holds_come_from_one_kernel_with_those_made_of_them() -> Result<()> {
    let mut devices = vec![Device::cpu()];
    devices.extend(own_gpu());
    // The step of an optimizer with two states; narrow parameters have wide states.
    let step = |p: &Array, g: &Array, m: &Array, v: &Array| {
        let m = m * 0.9 + g * 0.1;
        let v = v * 0.99 + g.square()? * 0.01;
        let p = p - wootz::astype(&(&m / (v.sqrt()? + 1e-3)), p.dtype())?;
        Ok([p, m, v])
    };
    for device in devices {
        for (count, dtype) in [(1, DType::F32), (1025, DType::BF16), (20_001, DType::F32)] {
            let p = wootz::astype(&(ramp(&device, count) / 100.0), dtype)?;
            let [g, m, v] = [3.0, 5.0, 7.0].map(|c| (ramp(&device, count) / c).sin());
            let (g, m, v) = (g?, m?, v?.square()?);
            wootz::eval([&p, &g, &m, &v])?;
            // Each result by itself, and all of them, without and with memory to write over.
            let mut expected = Vec::new();
            for index in 0..3 {
                expected.push(step(&p, &g, &m, &v)?[index].to_bytes()?);
            }
            let dispatches = || device.as_gpu().map_or(0, |gpu| gpu.counters().dispatches);
            let before = dispatches();
            let kept = step(&p, &g, &m, &v)?;
            wootz::eval(&kept)?;
            let given = step(&p, &g, &m, &v)?;
            drop((p, m, v));
            wootz::eval(&given)?;
            assert!(dispatches() - before <= 2, "{} kernels", dispatches() - before);
            for results in [kept, given] {
                for (result, expected) in results.iter().zip(&expected) {
                    assert_eq!(&result.to_bytes()?, expected, "{device} {count} {dtype}");
                }
            }
        }
    }
    Ok(())
}

/// But for Adafactor, whose moments are means of rows and columns, and Muon, which multiplies matrices.
#[test]
fn an_optimizer_takes_one_kernel_for_a_parameter() -> Result<()> {
    use wootz::optim::*;
    let Some(device) = own_gpu() else { return Ok(()) };
    let optimizers = || -> Result<[(&str, Box<dyn Optimizer>); 9]> {
        Ok([
            ("SGD", Box::new(SGD::new(0.1)?.momentum(0.9, 0.1, false)?.weight_decay(0.1))),
            ("nesterov", Box::new(SGD::new(0.1)?.momentum(0.9, 0.0, true)?)),
            ("Adam", Box::new(Adam::new(0.1)?.bias_correction(true))),
            ("AdamW", Box::new(AdamW::new(0.1)?.bias_correction(true))),
            ("Adamax", Box::new(Adamax::new(0.1)?)),
            ("Lion", Box::new(Lion::new(0.1)?.weight_decay(0.1))),
            ("RMSprop", Box::new(RMSprop::new(0.1)?)),
            ("Adagrad", Box::new(Adagrad::new(0.1)?)),
            ("AdaDelta", Box::new(AdaDelta::new(0.1)?)),
        ])
    };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (name, mut optimizer) in optimizers()? {
            let kernels = |count: usize, optimizer: &mut dyn Optimizer| -> Result<u64> {
                let x = (0..count).map(|i| wootz::astype(&ramp(&device, 70 + i), dtype));
                let mut x = x.collect::<Result<Vec<Array>>>()?;
                wootz::eval(&x)?;
                let gradients = x.clone();
                optimizer.update(&mut x, &gradients)?;
                wootz::eval(&optimizer.arrays(&x))?;
                let before = device.as_gpu().map_or(0, |gpu| gpu.counters().dispatches);
                optimizer.update(&mut x, &gradients)?;
                wootz::eval(&optimizer.arrays(&x))?;
                Ok(device.as_gpu().map_or(0, |gpu| gpu.counters().dispatches) - before)
            };
            let (one, three) = wootz::with_device(&device, || -> Result<(u64, u64)> {
                Ok((kernels(1, &mut *optimizer)?, kernels(3, &mut *optimizer)?))
            })?;
            let place = format!("{name}, {dtype}");
            assert_eq!(
                three - one,
                2,
                "{place}: {one} kernels for one parameter, {three} for three"
            );
        }
    }
    Ok(())
}

#[test]
fn an_optimizer_moves_each_array_of_a_parameter_once() -> Result<()> {
    use wootz::gpu::{Collected, Collector, GpuOptions};
    use wootz::optim::*;
    let collector = std::sync::Arc::new(Collector::default());
    let options = GpuOptions { simulator: Some(collector.clone()), ..Default::default() };
    let device = Device::gpu_with(0, &options)?;
    // Arrays that are read and written, and the gradient beside them.
    let optimizers = || -> Result<[(&str, Box<dyn Optimizer>, u64); 9]> {
        Ok([
            ("SGD", Box::new(SGD::new(0.1)?), 1),
            ("momentum", Box::new(SGD::new(0.1)?.momentum(0.9, 0.1, false)?.weight_decay(0.1)), 2),
            ("Lion", Box::new(Lion::new(0.1)?.weight_decay(0.1)), 2),
            ("RMSprop", Box::new(RMSprop::new(0.1)?), 2),
            ("Adagrad", Box::new(Adagrad::new(0.1)?), 2),
            ("Adam", Box::new(Adam::new(0.1)?.bias_correction(true)), 3),
            ("AdamW", Box::new(AdamW::new(0.1)?.bias_correction(true)), 3),
            ("Adamax", Box::new(Adamax::new(0.1)?), 3),
            ("AdaDelta", Box::new(AdaDelta::new(0.1)?), 3),
        ])
    };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (name, mut optimizer, changed) in optimizers()? {
            wootz::with_device(&device, || {
                const COUNT: usize = 1 << 16;
                let array = || wootz::astype(&ramp(&device, COUNT), dtype);
                let mut x = vec![array()?];
                let gradients = vec![array()?];
                optimizer.update(&mut x, &gradients)?;
                wootz::eval(&optimizer.arrays(&x))?;
                wootz::eval(&gradients)?;
                collector.take();
                let before = device.as_gpu().unwrap().counters().dispatches;
                optimizer.update(&mut x, &gradients)?;
                wootz::eval(&optimizer.arrays(&x))?;
                let launched = device.as_gpu().unwrap().counters().dispatches - before;
                let kernels = collector.take();
                assert_eq!(kernels.len() as u64, launched, "{name}: a kernel that ran twice");
                let moved = |kernel: &Collected| {
                    let cost = kernel.cost().unwrap();
                    cost.bytes_read() + cost.bytes_written()
                };
                let moved: u64 = kernels.iter().map(moved).sum();
                let best = (2 * changed + 1) * dtype.size() as u64 * COUNT as u64;
                let place = format!("{name}, {dtype}");
                assert!(
                    (best..=best * 11 / 10).contains(&moved),
                    "{place}: {moved} bytes, not {best}"
                );
                Ok(())
            })?;
        }
    }
    Ok(())
}

#[test]
fn fusion_does_not_change_a_bit() -> Result<()> {
    let mut devices = vec![Device::cpu()];
    devices.extend(own_gpu());
    for device in devices {
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::I8] {
            let x = wootz::astype(&ramp(&device, 3000), dtype)?;
            let x = wootz::astype(&wootz::remainder(&x, 97)?, dtype)?;
            let steps: [fn(&Array) -> Result<Array>; 4] = [
                |x| wootz::multiply(x, 3),
                |x| wootz::add(x, 7),
                |x| wootz::multiply(x, x),
                |x| wootz::subtract(x, 5),
            ];
            let (mut fused, mut stepped) = (x.clone(), x);
            for step in steps {
                fused = step(&fused)?;
                stepped = step(&stepped)?;
                stepped.eval()?;
            }
            assert_eq!(fused.to_bytes()?, stepped.to_bytes()?, "{device} {dtype}");
        }
    }
    Ok(())
}

/// Steps of `gelu_approx` and `gelu` before and behind a function that keeps sign and NaN.
#[test]
fn functions_of_what_was_rounded_on_the_way_are_as_in_steps() -> Result<()> {
    let mut devices = vec![Device::cpu()];
    devices.extend(own_gpu());
    let functions: [fn(&Array) -> Result<Array>; 4] =
        [|x| wootz::tanh(x), |x| wootz::erf(x), |x| wootz::sigmoid(x), |x| wootz::sinh(x)];
    for device in devices {
        for (dtype, function) in [DType::F16, DType::BF16]
            .into_iter()
            .flat_map(|dtype| functions.map(|function| (dtype, function)))
        {
            let mut values: Vec<f32> =
                (0..997).map(|i| (i * 37 % 997) as f32 / 200.0 - 2.5).collect();
            values[5] = f32::NAN;
            values[6] = f32::INFINITY;
            let x = Array::from_slice_on(&values, &[997], &device)?.astype(dtype)?;
            let run = |each: &dyn Fn(Array) -> Result<Array>| -> Result<Array> {
                let cube = each(wootz::multiply(each(wootz::square(&x)?)?, &x)?)?;
                let sum = each(wootz::add(&x, each(wootz::multiply(0.044715, cube)?)?)?)?;
                each(function(&each(wootz::multiply(0.79788, sum)?)?)?)
            };
            let fused = run(&Ok)?;
            let stepped = run(&|x| x.eval().map(|()| x))?;
            assert_eq!(fused.to_bytes()?, stepped.to_bytes()?, "{device} {dtype}");
        }
    }
    Ok(())
}

#[test]
fn evaluation_inside_a_gradient_keeps_the_gradient() -> Result<()> {
    let mut devices = vec![Device::cpu()];
    devices.extend(own_gpu());
    for device in devices {
        let x = ramp(&device, 4);
        let gradient = wootz::grad(|x: &[Array]| {
            let y = x[0].square()?;
            y.eval()?;
            let z = &y * 3.0;
            let _looked_at = z.to_vec::<f32>()?;
            z.sum(())
        })(&[x])?;
        assert_eq!(gradient[0].to_vec::<f32>()?, [0.0, 6.0, 12.0, 18.0], "{device}");
    }
    Ok(())
}

#[test]
fn several_threads_evaluate_one_graph() -> Result<()> {
    let mut devices = vec![Device::cpu()];
    devices.extend(own_gpu());
    for device in devices {
        let x = ramp(&device, 5000);
        let shared = (&x + 1.0).square()?;
        let parts: Vec<Array> = (0..8).map(|i| &shared * i).collect();
        std::thread::scope(|scope| {
            for (i, part) in parts.iter().enumerate() {
                scope.spawn(move || {
                    let values = part.to_vec::<f32>().unwrap();
                    assert_eq!(values[9], 100.0 * i as f32);
                });
            }
            scope.spawn(|| assert_eq!(shared.to_vec::<f32>().unwrap()[1], 4.0));
        });
    }
    Ok(())
}

#[test]
fn async_eval_returns_at_once_and_the_value_follows() -> Result<()> {
    let mut devices = vec![Device::cpu()];
    devices.extend(own_gpu());
    for device in devices {
        let x = ramp(&device, 5000);
        let y = (&x + 1.0).sum(())?;
        let z = &y * 2.0;
        wootz::async_eval([&y, &z])?;
        assert_eq!(z.item::<f32>()?, 2.0 * y.item::<f32>()?, "{device}");
    }
    Ok(())
}

#[test]
fn updates_are_not_visible_through_earlier_views() -> Result<()> {
    let mut devices = vec![Device::cpu()];
    devices.extend(own_gpu());
    for device in devices {
        let x = ramp(&device, 6);
        let view = x.reshape(&[2, 3])?;
        let update = Array::from_slice_on(&[10.0f32, 20.0], &[2], &device)?;
        let y = wootz::slice_update(&x, &update, &[1], &[3], &[1])?;
        assert_eq!(y.to_vec::<f32>()?, [0.0, 10.0, 20.0, 3.0, 4.0, 5.0], "{device}");
        assert_eq!(view.to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "{device}");
        assert_eq!(x.to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "{device}");
    }
    Ok(())
}

#[test]
fn a_constant_can_be_in_memory_for_one_reader_and_inlined_for_another() -> Result<()> {
    let one = Array::scalar(1.0, DType::F32)?;
    let broadcast = wootz::broadcast_to(&one, &[3])?;
    let sum = broadcast.sum(())?;
    let fused = &sum * 2.0 + &one;
    assert_eq!(fused.item::<f32>()?, 7.0);
    Ok(())
}

/// Results of more than 16 MiB go past the caches.
#[test]
fn large_results_have_the_bits_of_their_parts() -> Result<()> {
    let (rows, columns) = (4200, 1003);
    let draw = |shape: &[usize], key: u64| {
        wootz::random::normal(shape, DType::F32, 0.0, 1.0, Some(&wootz::random::key(key)?))
    };
    let (x, dy, weight) =
        (draw(&[rows, columns], 1)?, draw(&[rows, columns], 2)?, draw(&[columns], 3)?);
    wootz::eval([&x, &dy, &weight])?;
    type Call = fn(&Array, &Array, &Array) -> Result<Array>;
    let calls: [(&str, Call); 5] = [
        ("fused", |x, dy, _| wootz::exp(x)?.add(dy)?.multiply(0.5)),
        ("softmax", |x, _, _| wootz::softmax(x, -1)),
        ("softmax_backward", |x, dy, _| wootz::softmax_backward(x, dy, -1)),
        ("rms_norm", |x, _, weight| wootz::rms_norm(x, Some(weight), 1e-5)),
        ("rms_norm_backward", |x, dy, weight| Ok(wootz::rms_norm_backward(x, weight, dy, 1e-5)?.0)),
    ];
    for (name, call) in calls {
        let whole = call(&x, &dy, &weight)?.to_bytes()?;
        assert!(whole.len() > 16 << 20);
        let mut parts = Vec::new();
        for (x, dy) in wootz::split(&x, 3, 0)?.iter().zip(&wootz::split(&dy, 3, 0)?) {
            parts.extend(call(&x.contiguous()?, &dy.contiguous()?, &weight)?.to_bytes()?);
        }
        assert!(whole == parts, "{name}");
    }
    Ok(())
}

#[test]
fn synchronizing_waits_for_what_was_begun() -> Result<()> {
    let cpu = Device::cpu();
    for _ in 0..20 {
        let y = (ramp(&cpu, 1000) * 2.0).sin()?;
        wootz::async_eval([&y])?;
        wootz::synchronize(&cpu)?;
        assert!(y.is_evaluated());
    }
    let Some(gpu) = own_gpu() else { return Ok(()) };
    wootz::async_eval([&(ramp(&gpu, 1000) * 2.0).sin()?])?;
    wootz::synchronize(&gpu)?;
    // Nothing comes from a device that is lost.
    gpu.as_gpu().unwrap().lose_for_test();
    assert!(wootz::synchronize(&gpu).is_err());
    Ok(())
}
