//! Trains a small network on generated data: `cargo run --release --example fit`.
//!
//! Options: `--device cpu|gpu|gpu:N`, `--threads N`, `--steps N`. The same device gives the same
//! final loss to the last bit, whatever the number of threads.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use wootz::{Array, DType, Device, Result, random, value_and_grad, with_device};

const SAMPLES: usize = 1024;
const HIDDEN: usize = 64;
const MOMENTUM: f64 = 0.9;
const RATE: f64 = 0.05;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse(std::env::args().skip(1))?;
    if let Some(threads) = options.threads {
        wootz::set_threads(threads);
    }
    println!("device: {}, threads: {}", options.device, wootz::threads());
    let start = Instant::now();
    let loss = with_device(&options.device, || train(options.steps))?;
    println!("{} steps in {:.2} s", options.steps, start.elapsed().as_secs_f64());
    println!("final loss: {loss}");
    Ok(())
}

/// Fits a two-layer network to a wavy surface and returns the last loss.
fn train(steps: usize) -> Result<f32> {
    let keys = random::split(&random::key(7)?, 4)?;
    let key = |index: i64| keys.index(index);
    let x = random::uniform(-2.0, 2.0, &[SAMPLES, 2], DType::F32, Some(&key(0)?))?;
    let target = (x.index((.., 0..1))? * 2.0).sin()? * x.index((.., 1..2))?.cos()?;

    let layer = |inputs: usize, outputs: usize, key: &Array| {
        let scale = 1.0 / (inputs as f64).sqrt();
        random::normal(&[inputs, outputs], DType::F32, 0.0, scale, Some(key))
    };
    let mut parameters = vec![
        layer(2, HIDDEN, &key(1)?)?,
        Array::zeros(&[HIDDEN], DType::F32)?,
        layer(HIDDEN, HIDDEN, &key(2)?)?,
        Array::zeros(&[HIDDEN], DType::F32)?,
        layer(HIDDEN, 1, &key(3)?)?,
    ];
    let mut velocity = parameters.iter().map(wootz::zeros_like).collect::<Result<Vec<_>>>()?;

    let loss = value_and_grad(|p: &[Array]| {
        let hidden = (x.matmul(&p[0])? + &p[1]).tanh()?;
        let hidden = (hidden.matmul(&p[2])? + &p[3]).tanh()?;
        (hidden.matmul(&p[4])? - &target).square()?.mean(())
    });
    let mut last = f32::NAN;
    for step in 1..=steps {
        let (value, gradients) = loss(&parameters)?;
        for ((parameter, velocity), gradient) in
            parameters.iter_mut().zip(&mut velocity).zip(&gradients)
        {
            *velocity = &*velocity * MOMENTUM + gradient;
            *parameter = &*parameter - &*velocity * RATE;
        }
        wootz::eval(parameters.iter().chain(&velocity).chain([&value]))?;
        last = value.item()?;
        progress(step, steps, last);
    }
    Ok(last)
}

/// One line that is rewritten on a terminal, and a line now and then elsewhere.
fn progress(step: usize, steps: usize, loss: f32) {
    let mut out = std::io::stderr();
    // A closed stderr is no reason to stop.
    let _ = if out.is_terminal() {
        let filled = 30 * step / steps;
        let end = if step == steps { "\n" } else { "" };
        write!(out, "\r[{:30}] {step}/{steps} loss {loss:.5}{end}", "=".repeat(filled))
    } else if step == steps || step.is_multiple_of((steps / 5).max(1)) {
        writeln!(out, "step {step}/{steps} loss {loss:.5}")
    } else {
        Ok(())
    };
    let _ = out.flush();
}

struct Options {
    device: Device,
    threads: Option<usize>,
    steps: usize,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> std::result::Result<Options, String> {
        let mut options = Options { device: Device::default_device(), threads: None, steps: 300 };
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{flag} needs a value"));
            match flag.as_str() {
                "--device" => {
                    options.device =
                        Device::from_name(&value()?).map_err(|error| error.to_string())?;
                }
                "--threads" => options.threads = Some(positive(&flag, &value()?)?),
                "--steps" => options.steps = positive(&flag, &value()?)?,
                _ => {
                    return Err(format!(
                        "unknown option {flag}; known: --device --threads --steps"
                    ));
                }
            }
        }
        Ok(options)
    }
}

fn positive(flag: &str, value: &str) -> std::result::Result<usize, String> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{flag} needs a positive number, got {value:?}")),
    }
}
