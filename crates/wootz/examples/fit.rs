//! Trains a small network on generated data: `cargo run --release --example fit`.
//!
//! Options: `--device cpu|gpu|gpu:N`, `--threads N`, `--steps N`. The same device gives the same
//! final loss to the last bit, whatever the number of threads.

mod shared;

use shared::{Options, progress};
use wootz::{Array, DType, Result, random, value_and_grad};

const SAMPLES: usize = 1024;
const HIDDEN: usize = 64;
const MOMENTUM: f64 = 0.9;
const RATE: f64 = 0.05;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let loss = Options::parse(300)?.run(train)?;
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
