//! How fast a device is: copies, some operations, products, attention and a training step, without peers.
//!
//! `cargo run --release --example speed -- gpu` (or `cpu`, `gpu:1`). A software driver gets small
//! sizes, which say nothing about any GPU.

use std::time::Instant;

use wootz::nn::losses::{Reduction, mse_loss};
use wootz::nn::{Linear, Module, Sequential};
use wootz::optim::{AdamW, Optimizer};
use wootz::quant::Scheme;
use wootz::{Array, DType, Device, Mask, Result, ops, random, value_and_grad_of, with_device};

/// Each row's time is the best of so many rounds.
const ROUNDS: usize = 7;
/// Results that one evaluation computes on a GPU, so that handing it over is a small part of its time.
const BATCH: usize = 8;

/// A function whose gradient is measured.
type Slope<'a> = &'a dyn Fn(&[Array]) -> Result<Array>;

enum Work {
    /// Bytes that must be read and written.
    Bytes(usize),
    /// Floating-point operations.
    Flops(usize),
}

fn main() -> Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "gpu".into());
    let device = Device::from_name(&name)?;
    let software =
        device.as_gpu().is_some_and(|gpu| gpu.summary().kind == wootz::gpu::AdapterKind::Software);
    println!("device: {device}{}", if software { ", a SOFTWARE driver, small sizes" } else { "" });
    println!("best of {ROUNDS} rounds; GB/s counts bytes read and written once");
    with_device(&device, || {
        transfers(&device, if software { 1 << 20 } else { 64 << 20 })?;
        latency()?;
        rows(if software { 128 } else { 4096 })?;
        let large: &[usize] = if device.is_gpu() { &[1024, 2048, 4096] } else { &[1024, 2048] };
        products(if software { &[64] } else { large })?;
        quantized(if software { 128 } else { 4096 })?;
        attention(if software { 64 } else { 1024 })?;
        others(if software { 128 } else { 4096 })?;
        training(if software { [16, 32] } else { [256, 1024] })
    })
}

/// From the host to the device and back.
fn transfers(device: &Device, bytes: usize) -> Result<()> {
    let host = vec![1.0f32; bytes / 4];
    let up = best(|| Array::from_slice_on(&host, &[host.len()], device)?.eval())?;
    print("upload", &format!("{} MiB", bytes >> 20), up, Work::Bytes(bytes));
    let there = Array::from_slice_on(&host, &[host.len()], device)?;
    let down = best(|| there.to_vec::<f32>().map(drop))?;
    print("download", &format!("{} MiB", bytes >> 20), down, Work::Bytes(bytes));
    Ok(())
}

/// What an evaluation costs that computes next to nothing.
fn latency() -> Result<()> {
    let x = data(1, &[4], DType::F32)?;
    let alone = best(|| (&x + 1.0).eval())?;
    println!("{:<16}{:<26}{:>12.1} us", "latency", "one small evaluation", alone * 1e6);
    Ok(())
}

/// Operations that memory bounds, on matrices of `n` rows and columns.
fn rows(n: usize) -> Result<()> {
    for dtype in [DType::F32, DType::BF16] {
        let shape = [n, n];
        let (x, g) = (data(1, &shape, dtype)?, data(2, &shape, dtype)?);
        let weight = data(3, &[n], dtype)?;
        let pass = n * n * dtype.size();
        let title = format!("{n} {n} {dtype}");
        // One read and one write, the device's limit for all that follows.
        let time = batch(|| ops::copy(&x))?;
        print("copy", &title, time, Work::Bytes(2 * pass));
        let time = batch(|| ops::maximum((&x + 0.5) * 1.5, &x))?;
        print("chain of 3", &title, time, Work::Bytes(2 * pass));
        let time = batch(|| ops::softmax(&x, -1))?;
        print("softmax", &title, time, Work::Bytes(2 * pass));
        let time = batch(|| ops::rms_norm(&x, Some(&weight), 1e-5))?;
        print("rms_norm", &title, time, Work::Bytes(2 * pass));
        let time = batch(|| ops::layer_norm(&x, Some(&weight), Some(&weight), 1e-5))?;
        print("layer_norm", &title, time, Work::Bytes(2 * pass));
        // Two reads and a write; what the forward pass needs comes on top.
        let slopes: [(&str, Slope<'_>); 3] = [
            ("softmax, slope", &|x| ops::softmax(&x[0], -1)),
            ("rms_norm, slope", &|x| ops::rms_norm(&x[0], Some(&weight), 1e-5)),
            ("layer_norm, slope", &|x| ops::layer_norm(&x[0], Some(&weight), Some(&weight), 1e-5)),
        ];
        for (name, function) in slopes {
            let backward = || {
                let inputs = std::slice::from_ref(&x);
                let function = |x: &[Array]| Ok(vec![function(x)?]);
                let (_, slopes) = wootz::vjp(function, inputs, std::slice::from_ref(&g))?;
                Ok(slopes[0].clone())
            };
            print(name, &title, batch(backward)?, Work::Bytes(3 * pass));
        }
        let heads = x.reshape(&[1, n / 64, n, 64])?;
        let base = ops::RopeBase::Base(10000.0);
        let time = batch(|| ops::rope(&heads, 64, false, base, 1.0, 0))?;
        print("rope", &title, time, Work::Bytes(2 * pass));
        let time = batch(|| (&x * &g).sum(-1))?;
        print("dot of rows", &title, time, Work::Bytes(2 * pass));
    }
    Ok(())
}

fn products(sizes: &[usize]) -> Result<()> {
    for &n in sizes {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let (a, b) = (data(1, &[n, n], dtype)?, data(2, &[n, n], dtype)?);
            // Drivers give up submissions that run for seconds.
            let count = if n > 1024 { 1 } else { BATCH };
            let time = several(count, || ops::matmul(&a, &b))?;
            print("matmul", &format!("{n} {n} {n} {dtype}"), time, Work::Flops(2 * n * n * n));
        }
    }
    let n = *sizes.last().unwrap_or(&64);
    for dtype in [DType::F32, DType::BF16] {
        let (a, x) = (data(1, &[n, n], dtype)?, data(2, &[n, 1], dtype)?);
        let time = batch(|| ops::matmul(&a, &x))?;
        print(
            "matrix * vector",
            &format!("{n} {n} 1 {dtype}"),
            time,
            Work::Bytes(n * n * dtype.size()),
        );
    }
    Ok(())
}

/// A token's and a prompt's products with weights of 4 bits.
fn quantized(n: usize) -> Result<()> {
    let scheme = Scheme::new("affine", Some(64), Some(4))?;
    let weights = ops::quantize(&data(1, &[n, n], DType::BF16)?, scheme)?;
    wootz::eval(weights.arrays())?;
    for rows in [1, 128] {
        let x = data(2, &[rows, n], DType::BF16)?;
        let time = batch(|| ops::quantized_matmul(&x, &weights, true))?;
        // Half a byte and a share of two numbers for each weight.
        let work =
            if rows == 1 { Work::Bytes(n * n * 9 / 16) } else { Work::Flops(2 * rows * n * n) };
        print("quantized", &format!("{rows} {n} {n} affine 4"), time, work);
    }
    Ok(())
}

/// A loss over a vocabulary with its gradient, orders of a long row, and a convolution of an image.
fn others(n: usize) -> Result<()> {
    let (logits, each) = (data(1, &[n, 8 * n], DType::F32)?, data(2, &[n], DType::F32)?);
    let labels = ops::arange(0, n as i32, 1, DType::I32)?;
    let loss = |x: &[Array]| Ok(vec![ops::cross_entropy(&x[0], &labels)?]);
    let time = best(|| {
        let (loss, slopes) =
            wootz::vjp(loss, std::slice::from_ref(&logits), std::slice::from_ref(&each))?;
        wootz::eval(loss.iter().chain(&slopes))
    })?;
    let pass = logits.size() * 4;
    print("cross entropy", &format!("{n} {} float32", 8 * n), time, Work::Bytes(3 * pass));
    let (row, title) = (data(3, &[n * n], DType::F32)?, format!("{} float32", n * n));
    let bytes = n * n * 4;
    print("sort", &title, best(|| ops::sort(&row, -1)?.eval())?, Work::Bytes(2 * bytes));
    print("argsort", &title, best(|| ops::argsort(&row, -1)?.eval())?, Work::Bytes(2 * bytes));
    print("topk 32", &title, best(|| ops::topk(&row, 32, -1)?.eval())?, Work::Bytes(bytes));
    let side = n / 16;
    let (image, weight) =
        (data(4, &[1, side, side, 64], DType::F32)?, data(5, &[64, 3, 3, 64], DType::F32)?);
    let time = batch(|| ops::conv2d(&image, &weight, 1, 1, 1, 1))?;
    let flops = 2 * side * side * 64 * 64 * 9;
    print("conv2d 3x3", &format!("{side} {side} 64 64 float32"), time, Work::Flops(flops));
    Ok(())
}

/// A prompt's, with its gradients, and a token's with the keys of a long prompt.
fn attention(length: usize) -> Result<()> {
    let (heads, dims) = (16, 64);
    for dtype in [DType::F32, DType::BF16] {
        let input = |seed, length| data(seed, &[1, heads, length, dims], dtype);
        let (q, k, v) = (input(1, length)?, input(2, length)?, input(3, length)?);
        let call = |q: &Array, k: &Array, v: &Array| {
            ops::scaled_dot_product_attention(q, k, v, 0.125, Mask::Causal, None)
        };
        let title = format!("{heads} {length} {dims} {dtype}");
        let flops = 2 * heads * length * length * dims;
        print("attention", &title, several(1, || call(&q, &k, &v))?, Work::Flops(flops));
        let slopes =
            wootz::grad(|x: &[Array]| call(&x[0], &x[1], &x[2])?.astype(DType::F32)?.sum(()));
        let inputs = [q.clone(), k, v];
        let time = best(|| wootz::eval(&slopes(&inputs)?))?;
        print("with gradients", &title, time, Work::Flops(flops * 7 / 2));
        let (q, k, v) = (input(1, 1)?, input(2, 4 * length)?, input(3, 4 * length)?);
        let bytes = 2 * heads * 4 * length * dims * dtype.size();
        let title = format!("{heads} {} {dims} {dtype}", 4 * length);
        print("one query", &title, batch(|| call(&q, &k, &v))?, Work::Bytes(bytes));
    }
    Ok(())
}

/// A step of four layers with AdamW.
fn training([rows, width]: [usize; 2]) -> Result<()> {
    let mut model = Sequential::new();
    for _ in 0..4 {
        model = model.then(Linear::new(width, width, true)?);
    }
    let (x, y) = (data(1, &[rows, width], DType::F32)?, data(2, &[rows, width], DType::F32)?);
    let mut optimizer = AdamW::new(1e-4)?;
    let time = best(|| {
        let loss = |m: &Sequential| mse_loss(&m.forward(&x)?, &y, Reduction::Mean);
        let (value, gradients) = value_and_grad_of(loss)(&model)?;
        optimizer.update(&mut model, &gradients)?;
        drop(gradients);
        wootz::eval(optimizer.arrays(&model).iter().chain([&value]))
    })?;
    let title = format!("4 layers, {rows} {width} float32");
    print("training step", &title, time, Work::Flops(11 * 2 * rows * width * width));
    Ok(())
}

fn data(seed: u64, shape: &[usize], dtype: DType) -> Result<Array> {
    let values = random::uniform(-1.0, 1.0, shape, dtype, Some(&random::key(seed)?))?;
    values.eval()?;
    Ok(values)
}

/// Seconds of one result, of several where they are short.
fn batch(build: impl Fn() -> Result<Array>) -> Result<f64> {
    several(BATCH, build)
}

fn several(count: usize, build: impl Fn() -> Result<Array>) -> Result<f64> {
    let count = if Device::default_device().is_gpu() { count } else { 1 };
    let all = best(|| {
        let results = (0..count).map(|_| build()).collect::<Result<Vec<_>>>()?;
        wootz::eval(&results)
    })?;
    Ok(all / count as f64)
}

/// The best of the rounds; the first, which compiles kernels, does not count.
fn best(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn print(name: &str, title: &str, seconds: f64, work: Work) {
    let (amount, unit) = match work {
        Work::Bytes(bytes) => (bytes as f64, "GB/s"),
        Work::Flops(flops) => (flops as f64, "GFLOP/s"),
    };
    let rate = amount / seconds / 1e9;
    println!("{name:<16}{title:<26}{:>12.1} us{rate:>12.1} {unit}", seconds * 1e6);
}
