//! What is in memory, and its limits. In a binary of its own, and one test at a time, because the
//! CPU's counters and its limit are for the process.
#![allow(missing_docs)]
#![cfg(feature = "gpu")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use wootz::io::MappedFile;
use wootz::optim::{AdamW, Optimizer};
use wootz::quant::{Format, Scheme};
use wootz::{
    Array, DType, Device, Error, Quantized, Result, Tree, dequantize, gather_qmm, quantize,
    quantized_matmul, with_device,
};

/// Held by each test here while it runs; a test that failed does not fail the next.
fn take_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The CPU, and a GPU device of the test's own.
fn devices() -> Vec<Device> {
    let opened = Device::gpu().and_then(|gpu| {
        Device::gpu_with(gpu.as_gpu().map_or(0, |gpu| gpu.summary().index), &Default::default())
    });
    match opened {
        Ok(gpu) => vec![Device::cpu(), gpu],
        Err(error) if !wootz::testing::ci() => {
            eprintln!("SKIPPED: {error}");
            vec![Device::cpu()]
        }
        Err(error) => panic!("{error}"),
    }
}

fn ramp(device: &Device, count: usize) -> Array {
    let values: Vec<f32> = (0..count).map(|i| i as f32).collect();
    Array::from_slice_on(&values, &[count], device).unwrap()
}

#[test]
fn views_take_no_memory() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let x = ramp(&device, 1 << 20);
        let active = device.memory().active;
        let y = x.reshape(&[1024, 1024])?.transpose()?;
        let y = wootz::slice(&y, &[3, 1000], &[900, 0], &[2, -1])?;
        let wide = wootz::broadcast_to(&x.reshape(&[1, 1 << 20])?, &[500, 1 << 20])?;
        wootz::eval([&y, &wide])?;
        assert!(y.is_evaluated() && wide.is_evaluated());
        assert_eq!(device.memory().active, active, "{device}");
    }
    Ok(())
}

#[test]
fn quantized_weights_at_odd_bytes_of_a_file_are_not_copied() -> Result<()> {
    let _turn = take_turn();
    with_device(&Device::cpu(), products_of_odd_bytes)
}

fn products_of_odd_bytes() -> Result<()> {
    let cpu = Device::cpu();
    let (experts, rows, columns) = (4, 256, 512);
    let scheme = Scheme::Affine { group_size: 64, bits: 4 };
    let aligned = quantize(&uneven(&[experts, rows, columns], DType::F16)?, scheme)?;
    let w = at_odd_bytes(&aligned, &cpu)?;
    let table = flat(&w)?;

    let (indices, chosen) = (Array::new([3u32, 700, 3])?, Array::new([2u32, 0])?);
    let x = uneven(&[2, columns], DType::F16)?;
    let one = uneven(&[1, 1, columns], DType::F16)?;
    wootz::eval([&indices, &x, &one, &chosen])?;
    let before = cpu.memory().active;
    let results = [
        table.take(&indices, DType::F16)?,
        quantized_matmul(&x, &table, true)?,
        gather_qmm(&one, &w, None, Some(&chosen), true, false)?,
    ];
    wootz::eval(&results)?;
    // What allocations are rounded up to is little beside the weights.
    let bytes = results.iter().map(|result| result.nbytes() as u64).sum::<u64>();
    let grown = cpu.memory().active - before;
    let scales = aligned.arrays()[1].nbytes() as u64;
    assert!(grown < bytes + scales / 2, "{grown} bytes for results of {bytes}");
    let decoded = dequantize(&flat(&aligned)?, None)?.take(&indices, Some(0))?;
    assert_eq!(results[0].to_bytes()?, decoded.to_bytes()?);
    Ok(())
}

/// Numbers of which no two neighbours, rows or matrices are the same.
fn uneven(shape: &[usize], dtype: DType) -> Result<Array> {
    let values: Vec<f32> =
        (0..shape.iter().product::<usize>()).map(|i| (i as f32 * 0.7129).sin()).collect();
    Array::from_slice(&values, shape)?.astype(dtype)
}

/// The same weights, in a file in which each array begins at an odd byte.
fn at_odd_bytes(w: &Quantized, device: &Device) -> Result<Quantized> {
    let parts = w.arrays().iter().map(Array::to_bytes).collect::<Result<Vec<_>>>()?;
    let file = MappedFile::from_bytes("odd", &[vec![0xaa], parts.concat()].concat())?;
    let mut start = 1;
    let mut arrays = Vec::new();
    for (array, bytes) in w.arrays().iter().zip(&parts) {
        assert_eq!(start % 2, 1, "{}", w.scheme());
        let range = start..start + bytes.len();
        start = range.end;
        arrays.push(file.array(range, array.shape(), array.dtype(), device)?);
    }
    Quantized::new(w.scheme(), &arrays[0], arrays.get(1), arrays.get(2))
}

/// The matrices of a stack, one below the other.
fn flat(w: &Quantized) -> Result<Quantized> {
    let flat = |x: &Array| x.reshape(&[x.shape()[0] * x.shape()[1], x.shape()[2]]);
    let arrays = w.arrays().iter().map(flat).collect::<Result<Vec<_>>>()?;
    Quantized::new(w.scheme(), &arrays[0], arrays.get(1), arrays.get(2))
}

#[test]
fn quantized_weights_at_odd_bytes_of_a_file_are_what_they_are_elsewhere() -> Result<()> {
    let _turn = take_turn();
    let affine = |bits| Scheme::Affine { group_size: 64, bits };
    let cases = [
        (affine(4), DType::F16),
        (affine(3), DType::BF16),
        (affine(8), DType::F32),
        (Scheme::Mxfp4, DType::BF16),
        (Scheme::Mxfp8, DType::F16),
        (Scheme::Nvfp4, DType::BF16),
        (Format::Q4_0.into(), DType::F32),
        (Format::Q4_K.into(), DType::F16),
        (Format::Q6_K.into(), DType::F32),
        (Format::Q8_0.into(), DType::BF16),
    ];
    for device in devices() {
        with_device(&device, || cases.iter().try_for_each(|&(scheme, dtype)| odd(scheme, dtype)))?;
    }
    Ok(())
}

/// Compares weights at odd bytes with those at even ones, on the default device.
fn odd(scheme: Scheme, dtype: DType) -> Result<()> {
    let device = Device::default_device();
    // So many that products with all of them are those of integers on the CPU.
    let aligned = quantize(&uneven(&[3, 48, 512], dtype)?, scheme)?;
    let moved = at_odd_bytes(&aligned, &device)?;
    let indices = Array::new([3u32, 143, 0, 3])?;
    let chosen = |count: usize| {
        let chosen: Vec<u32> = (0..count).map(|i| (i * 2 % 3) as u32).collect();
        Array::from_slice(&chosen, &[count])
    };
    // One row, and so many that products are tiles.
    for rows in [1, 20] {
        let x = uneven(&[rows, 512], dtype)?;
        let each = x.reshape(&[rows, 1, 512])?;
        let results = |w: &Quantized| {
            let all = [
                dequantize(w, None)?,
                flat(w)?.take(&indices, dtype)?,
                quantized_matmul(&x, &flat(w)?, true)?,
                quantized_matmul(&uneven(&[rows, 144], dtype)?, &flat(w)?, false)?,
                gather_qmm(&each, w, None, Some(&chosen(rows)?), true, false)?,
            ];
            all.iter().map(Array::to_bytes).collect::<Result<Vec<_>>>()
        };
        let (got, want) = (results(&moved)?, results(&aligned)?);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!(got == want, "result {i} of {rows} rows, {scheme}, {dtype} on {device}");
            assert!(want.chunks(64).skip(1).any(|part| part != &want[..64]), "all the same");
        }
    }
    Ok(())
}

#[test]
fn memory_that_nobody_else_needs_is_written_again() -> Result<()> {
    let _turn = take_turn();
    const BYTES: u64 = 4 << 20;
    for device in devices() {
        let mut x = ramp(&device, 1 << 20);
        device.reset_peak_memory();
        let start = device.memory().active;
        for i in 0..20 {
            // One evaluation per step, so that it is not fused away.
            let next = &x + i;
            drop(x);
            next.eval()?;
            x = next;
        }
        let peak = device.memory().peak;
        assert!(peak < start + BYTES / 2, "{device}: {} bytes above the start", peak - start);
        // A handle that is kept keeps its values.
        let kept = x.clone();
        let next = &x + 1.0;
        next.eval()?;
        assert_eq!(kept.to_vec::<f32>()?[0] + 1.0, next.to_vec::<f32>()?[0]);
    }
    Ok(())
}

#[test]
fn going_over_the_limit_is_an_error_and_the_process_lives_on() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        over_the_limit(&device)?;
    }
    Ok(())
}

fn over_the_limit(device: &Device) -> Result<()> {
    const MIB: usize = 1 << 20;
    let quarter: Vec<f32> = (0..MIB / 16).map(|i| i as f32).collect();
    let x = Array::from_slice_on(&quarter, &[quarter.len()], device)?;
    let before = device.memory();
    let limit = before.active + MIB as u64;
    device.set_memory_limit(limit);

    // Too large at once.
    let error = Array::empty_on(&[2 * MIB], DType::U8, device).err();
    let Some(Error::OutOfMemory { requested, active, limit: told, .. }) = error else {
        panic!("{device}: {error:?}");
    };
    assert!(requested >= 2 * MIB as u64, "{requested}");
    assert_eq!((active, told), (before.active, limit));

    // Too large in the middle of an evaluation: what was there before stays.
    let mut kept = vec![x.clone()];
    let mut error = None;
    for i in 0..8 {
        let next = &kept[i] + 1.0;
        match next.eval() {
            Ok(()) => kept.push(next),
            Err(found) => {
                error = Some((found, next));
                break;
            }
        }
    }
    let Some((Error::OutOfMemory { .. }, failed)) = error else { panic!("{device}: no error") };
    let last = kept.len() - 1;
    assert!(last >= 2, "{device}: only {last} arrays of a quarter MiB fit under a limit of one");
    for (i, array) in kept.iter().enumerate() {
        assert_eq!(array.to_vec::<f32>()?[5], 5.0 + i as f32, "{device}");
    }

    // With memory given back the same array can be evaluated.
    kept.truncate(1);
    drop(kept);
    assert_eq!(failed.to_vec::<f32>()?[5], 6.0 + last as f32, "{device}");
    drop(failed);
    device.set_memory_limit(u64::MAX);
    let large = Array::empty_on(&[2 * MIB], DType::U8, device)?;
    assert!(device.memory().active >= before.active + 2 * MIB as u64);
    drop(large);
    drop(x);
    assert!(device.memory().active < before.active);
    device.clear_cache();
    assert_eq!(device.memory().cached, 0);
    Ok(())
}

/// Weights of as many layers, evaluated.
fn weights(layers: usize, shape: &[usize]) -> Result<Vec<Array>> {
    let make = |layer: usize| {
        let key = wootz::random::key(layer as u64)?;
        let w = wootz::random::normal(shape, DType::F32, 0.0, 0.05, Some(&key))?;
        w.eval()?;
        Ok(w)
    };
    (0..layers).map(make).collect()
}

/// Bytes above what was there before that `body` needed on the CPU at most.
fn peak_of(body: impl FnOnce() -> Result<()>) -> Result<u64> {
    let cpu = Device::cpu();
    cpu.reset_peak_memory();
    let before = cpu.memory().active;
    body()?;
    Ok(cpu.memory().peak - before)
}

#[test]
fn forward_mode_takes_as_much_memory_for_many_layers_as_for_few() -> Result<()> {
    let _turn = take_turn();
    let peak = |layers: usize| {
        let weights = weights(layers, &[64, 64])?;
        let x = Array::zeros(&[1024, 64], DType::F32)? + 0.1;
        let dx = &x + 1.0;
        wootz::eval([&x, &dx])?;
        let network = |x: &[Array]| {
            let mut x = x[0].clone();
            for w in &weights {
                x = wootz::sin(x.matmul(w)?.softmax(-1)?)?;
            }
            Ok(vec![x])
        };
        peak_of(|| {
            let (y, dy) = wootz::jvp(network, std::slice::from_ref(&x), &[dx.clone()])?;
            wootz::eval([&y[0], &dy[0]])
        })
    };
    let (few, many) = (peak(8)?, peak(64)?);
    assert!(many <= few + (1 << 16), "{few} bytes for 8 layers, {many} for 64");
    Ok(())
}

/// A multilayer perceptron with wide layers: what a layer computes on the way is much more than
/// what it hands on.
fn layer(x: &[Array]) -> Result<Vec<Array>> {
    let [x, up, down] = x else { unreachable!("three arguments") };
    let wide = x.matmul(up)?;
    let wide = &wide * wootz::sigmoid(&wide)?;
    Ok(vec![x + wide.tanh()?.matmul(down)?])
}

fn training_step(layers: usize, with_checkpoints: bool) -> Result<u64> {
    let (up, down) = (weights(layers, &[32, 256])?, weights(layers, &[256, 32])?);
    let x = Array::zeros(&[512, 32], DType::F32)? + 0.5;
    x.eval()?;
    let checkpointed = wootz::checkpoint(layer);
    let loss = |w: &[Array]| {
        let mut x = x.clone();
        for (up, down) in w[..layers].iter().zip(&w[layers..]) {
            let arguments = [x, up.clone(), down.clone()];
            let mut outputs =
                if with_checkpoints { checkpointed(&arguments)? } else { layer(&arguments)? };
            x = outputs.remove(0);
        }
        x.square()?.mean(())
    };
    let parameters = [up, down].concat();
    let step = wootz::value_and_grad(loss);
    peak_of(|| {
        let (loss, gradients) = step(&parameters)?;
        let updated = (parameters.iter().zip(&gradients))
            .map(|(w, g)| wootz::subtract(w, g * 0.1))
            .collect::<Result<Vec<_>>>()?;
        drop(gradients);
        wootz::eval(updated.iter().chain([&loss]))
    })
}

#[test]
fn checkpoints_make_a_training_step_take_a_quarter_of_the_memory() -> Result<()> {
    let _turn = take_turn();
    let (with, without) = (training_step(24, true)?, training_step(24, false)?);
    println!("{with} bytes with checkpoints, {without} without: {}", with as f64 / without as f64);
    assert!(4 * with <= without, "{with} bytes with checkpoints, {without} without");
    Ok(())
}

#[test]
fn gradients_are_consumed_while_others_are_still_to_come() -> Result<()> {
    let _turn = take_turn();
    // Large weights and few rows: what counts is how many gradients are there at a time.
    let peak = |layers: usize| {
        let mut parameters = weights(layers, &[256, 256])?;
        let x = Array::zeros(&[4, 256], DType::F32)? + 0.5;
        x.eval()?;
        let mut optimizer = AdamW::new(0.1)?;
        optimizer.init(&parameters.parameters())?;
        wootz::eval(&optimizer.arrays(&parameters))?;
        let loss = |w: &Vec<Array>| {
            let mut y = x.clone();
            for w in w {
                y = y.matmul(w)?.tanh()?;
            }
            y.square()?.mean(())
        };
        peak_of(|| {
            let gradients = wootz::grad_of(loss)(&parameters)?;
            // Nobody else holds the old weights and moments: the new ones are written over them.
            optimizer.update(&mut parameters, &gradients)?;
            drop(gradients);
            wootz::eval(&optimizer.arrays(&parameters))
        })
    };
    let bytes = 256 * 256 * 4;
    let many = peak(16)?;
    assert!(many < 4 * bytes, "{many} bytes for gradients of {bytes}");
    Ok(())
}

#[test]
fn training_attention_takes_memory_by_length_and_not_by_its_square() -> Result<()> {
    let _turn = take_turn();
    // Heads, what each beyond the first takes, and whether there is a mask of the keys, or sinks.
    let kinds = [
        ("causal", 1, DType::F32, false, false),
        ("an additive mask with its gradient", 1, DType::F32, true, false),
        ("sinks with their gradient", 1, DType::F32, false, true),
        ("two heads", 2, DType::BF16, false, false),
    ];
    for device in devices() {
        let length = if device.is_gpu() { 512 } else { 4096 };
        for (name, heads, dtype, masked, sinking) in kinds {
            let of = |shape: &[usize], scale: f64| {
                let x = ramp(&device, shape.iter().product()) * scale;
                let x = wootz::sin(&x)?.reshape(shape)?.astype(dtype)?;
                x.eval()?;
                Ok::<Array, Error>(x)
            };
            let x = of(&[1, heads, length, 8], 1.0)?;
            let mut inputs = vec![x.clone(), x.clone(), x.clone()];
            inputs.extend(masked.then(|| of(&[1, 1, 1, length], 0.7)).transpose()?);
            inputs.extend(sinking.then(|| of(&[heads], 0.7)).transpose()?);
            let before = device.memory().active;
            device.reset_peak_memory();
            let attend = |x: &[Array]| {
                let (mask, sinks) = (masked.then(|| &x[3]), sinking.then(|| &x[3]));
                let causal = !masked;
                let options = wootz::AttentionOptions {
                    causal,
                    mask,
                    sinks,
                    ..wootz::AttentionOptions::new(0.3)
                };
                Ok(vec![wootz::attention(&x[0], &x[1], &x[2], &options)?])
            };
            let (outputs, gradients) = wootz::vjp(attend, &inputs, &[x.clone()])?;
            wootz::eval(outputs.iter().chain(&gradients))?;
            // Sums are in single precision.
            let one = (heads * length * 8 * 4) as u64;
            let used = device.memory().peak - before;
            println!("{name} on {device}: {used} bytes, {} arrays", used as f64 / one as f64);
            // The output, three gradients, and the parts of one that are summed.
            assert!(used <= 16 * one, "{name} on {device}: {used} bytes, an array has {one}");
            // Scores of all heads in bytes, which no dtype does with.
            let scores = (heads * length * length) as u64;
            assert!(used < scores, "{name} on {device}: {used} bytes, scores have {scores}");
        }
    }
    Ok(())
}

#[test]
fn losses_over_a_vocabulary_take_their_gradient_and_a_few_numbers_for_each_row() -> Result<()> {
    let _turn = take_turn();
    type Loss = fn(&Array, &Array) -> Result<Array>;
    let losses: [(&str, Loss); 2] = [
        ("cross entropy", |x, _| {
            let labels: Vec<i32> = (0..x.shape()[0]).map(|row| row as i32 * 7).collect();
            let labels = Array::from_slice_on(&labels, &[labels.len()], x.device())?;
            wootz::cross_entropy(x, &labels)?.sum(())
        }),
        ("KL divergence", |x, target| wootz::kl_divergence(target, x)?.sum(())),
    ];
    for device in devices() {
        // Memory comes in whole MiB, of which these are.
        let (rows, words) = if device.is_gpu() { (16, 4096) } else { (64, 32_768) };
        let of = |scale: f64| {
            let x = wootz::sin(&(ramp(&device, rows * words) * scale))?.reshape(&[rows, words])?;
            x.eval()?;
            Ok::<Array, Error>(x)
        };
        let (x, target) = (of(0.37)?, of(0.11)?);
        for (name, loss) in losses {
            let before = device.memory().active;
            device.reset_peak_memory();
            let gradient = wootz::grad(|x: &[Array]| loss(&x[0], &target))(&[x.clone()])?;
            wootz::eval(&gradient)?;
            let used = device.memory().peak - before;
            let logits = x.nbytes() as u64;
            // Losses, log-sum-exps, labels and cotangents, in pieces of 256 bytes at least.
            let most = logits + 256 + 16 * (rows as u64 * 4).max(256);
            assert!(used >= logits, "{name} on {device}: {used} bytes, a gradient has {logits}");
            assert!(used <= most, "{name} on {device}: {used} bytes, a gradient has {logits}");
        }
    }
    Ok(())
}

#[test]
fn the_gradient_of_an_embedding_takes_its_own_memory_and_some_for_each_token() -> Result<()> {
    let _turn = take_turn();
    // So few tokens that a byte for each word would show.
    const WORDS: usize = 1 << 16;
    const DIMS: usize = 64;
    const TOKENS: usize = 12;
    let of_table = |device: &Device, dtype: DType| {
        let table = wootz::sin(&ramp(device, WORDS * DIMS))?.reshape(&[WORDS, DIMS])?;
        let table = table.astype(dtype)?;
        let words: Vec<i32> = (0..TOKENS).map(|i| (i % 5 * WORDS / 5) as i32).collect();
        let tokens = Array::from_slice(&words, &[TOKENS])?;
        wootz::eval([&table, &tokens])?;
        let loss = |x: &[Array]| x[0].take(&tokens, Some(0))?.square()?.sum(());
        device.reset_peak_memory();
        let before = device.memory().active;
        let gradient = wootz::grad(loss)(std::slice::from_ref(&table))?;
        wootz::eval(&gradient)?;
        let used = device.memory().peak - before;
        let own = gradient[0].nbytes() as u64;
        // Rows, their squares, gradients and indices.
        let most = own + 8 * (TOKENS * DIMS * 4) as u64;
        assert!(most < own + WORDS as u64);
        assert!(
            own <= used && used <= most,
            "{dtype} on {device}: {used} bytes, of which a gradient has {own}"
        );
        // Words that occur twice or more are summed, and the others have no gradient.
        for word in [0, WORDS / 5, 4 * WORDS / 5, 77, WORDS - 1] {
            let times = words.iter().filter(|&&w| w as usize == word).count() as f32;
            let wide = |x: &Array| x.astype(DType::F32);
            // Sums of so few are exact before they are rounded.
            let want = wide(&table.index(word as i64)?)? * f64::from(2.0 * times);
            let want = wide(&want.astype(dtype)?)?.to_vec::<f32>()?;
            let slopes = wide(&gradient[0].index(word as i64)?)?.to_vec::<f32>()?;
            for (slope, want) in slopes.iter().zip(want) {
                assert!((slope - want).abs() <= 1e-5, "{dtype} on {device}, word {word}");
            }
        }
        Ok(())
    };
    devices().iter().try_for_each(|device| {
        let dtypes = [DType::F32, DType::BF16, DType::F16];
        with_device(device, || dtypes.into_iter().try_for_each(|dtype| of_table(device, dtype)))
    })
}

#[test]
fn an_optimizer_writes_over_parameters_and_their_state() -> Result<()> {
    use wootz::optim::{AdamW, Optimizer};
    let _turn = take_turn();
    let mut model = weights(1, &[512, 512])?;
    let mut optimizer = AdamW::new(0.1)?.bias_correction(true);
    let bytes = model[0].nbytes() as u64;
    for step in 0..3 {
        let gradients = weights(1, &[512, 512])?;
        let taken = peak_of(|| {
            optimizer.update(&mut model, &gradients)?;
            drop(gradients);
            wootz::eval(&optimizer.arrays(&model))
        })?;
        // In the first step the states are made.
        let most = if step == 0 { 2 * bytes } else { 0 };
        assert!(taken <= most + (1 << 12), "{taken} bytes in step {step}");
    }
    Ok(())
}

#[test]
fn a_compiled_step_writes_over_the_arguments_it_takes() -> Result<()> {
    let _turn = take_turn();
    let step = wootz::compile(|x: &[Array]| {
        let [w, m, g] = x else { unreachable!("three arguments") };
        let m = m * 0.9 + g * 0.1;
        Ok(vec![w - &m * 0.5, m])
    });
    let mut state = weights(2, &[512, 512])?;
    let expected = state.clone();
    let gradient = weights(1, &[512, 512])?.remove(0);
    let bytes = gradient.nbytes() as u64;
    for step_number in 0..4 {
        let others = if step_number == 0 { 2 * bytes } else { 0 };
        let taken = peak_of(|| {
            let mut arguments = std::mem::take(&mut state);
            arguments.push(gradient.clone());
            state = step.call_owned(arguments)?;
            Ok(())
        })?;
        // The first arguments are held here, too, and stay as they are.
        assert!(taken <= others + (1 << 12), "{taken} bytes in step {step_number}");
    }
    let m = &expected[1] * 0.9 + &gradient * 0.1;
    let one = step.call(&[expected[0].clone(), expected[1].clone(), gradient.clone()])?;
    assert_eq!(one[1].to_bytes()?, m.to_bytes()?);
    assert_eq!(one[0].to_bytes()?, (&expected[0] - &m * 0.5).to_bytes()?);
    Ok(())
}
