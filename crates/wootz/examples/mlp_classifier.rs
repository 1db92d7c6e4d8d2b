//! Tells the arms of spirals apart: `cargo run --release --example mlp_classifier`.
//!
//! Options: `--device cpu|gpu|gpu:N`, `--threads N`, `--steps N`.

mod shared;

use shared::{Options, progress};
use wootz::nn::losses::{Reduction, cross_entropy};
use wootz::nn::{self, Linear, Module, relu};
use wootz::optim::{AdamW, Optimizer, clip_grad_norm, cosine_decay};
use wootz::{Array, DType, Result, Tree, arange, random, stack};

const ARMS: usize = 3;
const POINTS: usize = 256;
const HIDDEN: usize = 64;

#[derive(Clone, Tree)]
struct Classifier {
    layers: Vec<Linear>,
}

impl Classifier {
    fn new() -> Result<Classifier> {
        let widths = [2, HIDDEN, HIDDEN, ARMS];
        let layer = |pair: &[usize]| Linear::new(pair[0], pair[1], true);
        Ok(Classifier { layers: widths.windows(2).map(layer).collect::<Result<_>>()? })
    }
}

impl Module for Classifier {
    fn forward(&self, x: &Array) -> Result<Array> {
        let (last, hidden) = self.layers.split_last().expect("there are three layers");
        let x = hidden.iter().try_fold(x.clone(), |x, layer| relu(&layer.forward(&x)?))?;
        last.forward(&x)
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let accuracy = Options::parse(400)?.run(train)?;
    println!("accuracy on points not seen in training: {:.1} %", 100.0 * accuracy);
    Ok(())
}

/// Trains on one draw of points and returns the share of another draw that is classified rightly.
pub fn train(steps: usize) -> Result<f32> {
    random::seed(7);
    let (x, labels) = spirals()?;
    let (unseen, unseen_labels) = spirals()?;

    let mut model = Classifier::new()?;
    let mut optimizer = AdamW::new(cosine_decay(0.01, steps, 0.0)?)?;
    let loss = nn::value_and_grad(|model: &Classifier| {
        cross_entropy(&model.forward(&x)?, &labels, None, -1, 0.0, Reduction::Mean)
    });
    for step in 1..=steps {
        let (value, gradients) = loss(&model)?;
        let (gradients, _) = clip_grad_norm(&gradients, 1.0)?;
        optimizer.update(&mut model, &gradients)?;
        wootz::eval(optimizer.arrays(&model).iter().chain([&value]))?;
        progress(step, steps, value.item()?);
    }
    let guesses = model.forward(&unseen)?.argmax(-1)?;
    let right = wootz::equal(&guesses, &unseen_labels)?;
    right.astype(DType::F32)?.mean(())?.item()
}

/// Noisy points of a spiral's arms, `[ARMS * POINTS, 2]`, and the numbers of their arms.
fn spirals() -> Result<(Array, Array)> {
    let arm = wootz::repeat(&arange(0, ARMS, 1, DType::F32)?, POINTS, 0)?;
    let radius = random::uniform(0.1, 1.0, &[ARMS * POINTS], DType::F32, None)?;
    let noise = random::normal(&[ARMS * POINTS], DType::F32, 0.0, 0.15, None)?;
    let angle = &radius * 6.0 + &arm * (std::f64::consts::TAU / ARMS as f64) + noise;
    let points = [&radius * angle.cos()?, &radius * angle.sin()?];
    Ok((stack(&points, -1)?, arm.astype(DType::U32)?))
}
