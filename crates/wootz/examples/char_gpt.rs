//! A small GPT over characters, trained on a rhyme: `cargo run --release --example char_gpt`.
//!
//! Options: `--device cpu|gpu|gpu:N`, `--threads N`, `--steps N`. At the end it writes a few lines
//! of its own.

mod shared;

use shared::{Options, progress};
use wootz::fast::{Mask, scaled_dot_product_attention};
use wootz::nn::losses::{Reduction, cross_entropy};
use wootz::nn::{self, Embedding, Linear, Module, RMSNorm, RoPE, silu};
use wootz::optim::{
    AdamW, Optimizer, clip_grad_norm, cosine_decay, join_schedules, linear_schedule,
};
use wootz::random::{self, Samples};
use wootz::{Array, DType, Result, Tree, add, multiply, transpose_axes};

const DIMS: usize = 64;
const HEADS: usize = 4;
const LAYERS: usize = 2;
const CONTEXT: usize = 64;
const BATCH: usize = 16;

/// A traditional cumulative rhyme.
const TEXT: &str = include_str!("shared/rhyme.txt");

#[derive(Clone, Tree)]
struct Attention {
    qkv_proj: Linear,
    out_proj: Linear,
    rope: RoPE,
}

impl Attention {
    fn new() -> Result<Attention> {
        Ok(Attention {
            qkv_proj: Linear::new(DIMS, 3 * DIMS, false)?,
            out_proj: Linear::new(DIMS, DIMS, false)?,
            rope: RoPE::new(DIMS / HEADS),
        })
    }
}

impl Module for Attention {
    fn forward(&self, x: &Array) -> Result<Array> {
        let heads = [3 * HEADS as i64, (DIMS / HEADS) as i64];
        let all = self.qkv_proj.forward(x)?.unflatten(-1, &heads)?;
        let parts = transpose_axes(&all, &[0, 2, 1, 3])?.split(3, 1)?;
        let (q, k) = (self.rope.forward(&parts[0])?, self.rope.forward(&parts[1])?);
        let scale = 1.0 / ((DIMS / HEADS) as f64).sqrt();
        let y = scaled_dot_product_attention(&q, &k, &parts[2], scale, Mask::Causal, None)?;
        self.out_proj.forward(&transpose_axes(&y, &[0, 2, 1, 3])?.flatten(-2, -1)?)
    }
}

#[derive(Clone, Tree)]
struct Block {
    attention_norm: RMSNorm,
    attention: Attention,
    mlp_norm: RMSNorm,
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

impl Block {
    fn new() -> Result<Block> {
        Ok(Block {
            attention_norm: RMSNorm::new(DIMS, 1e-5)?,
            attention: Attention::new()?,
            mlp_norm: RMSNorm::new(DIMS, 1e-5)?,
            gate_proj: Linear::new(DIMS, 2 * DIMS, false)?,
            up_proj: Linear::new(DIMS, 2 * DIMS, false)?,
            down_proj: Linear::new(2 * DIMS, DIMS, false)?,
        })
    }
}

impl Module for Block {
    fn forward(&self, x: &Array) -> Result<Array> {
        let x = add(x, self.attention.forward(&self.attention_norm.forward(x)?)?)?;
        let y = self.mlp_norm.forward(&x)?;
        let gated = multiply(silu(&self.gate_proj.forward(&y)?)?, self.up_proj.forward(&y)?)?;
        add(&x, self.down_proj.forward(&gated)?)
    }
}

/// The model: embedding, blocks, norm, and the embedding again.
#[derive(Clone, Tree)]
pub struct Gpt {
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: RMSNorm,
}

impl Module for Gpt {
    /// Logits of the next character after each of `[batch, positions]`.
    fn forward(&self, tokens: &Array) -> Result<Array> {
        let x = self.embedding.forward(tokens)?;
        let x = self.blocks.iter().try_fold(x, |x, block| block.forward(&x))?;
        self.embedding.as_linear(&self.norm.forward(&x)?)
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse(300)?;
    let sample = options.run(|steps| {
        let show = |step: usize, loss: f32| progress(step, steps, loss);
        let (model, characters) = train(steps, steps, BATCH, show)?;
        let first = characters.iter().position(|&c| c == 'T').unwrap_or_default();
        let written = write(&model, vec![first as u32], 160)?;
        Ok(written.into_iter().map(|token| characters[token as usize]).collect::<String>())
    })?;
    println!("{sample}");
    Ok(())
}

/// Trains a model for the first `steps` of a schedule, tells the loss of each step, and returns it with the characters
/// it knows.
pub fn train(
    steps: usize,
    schedule: usize,
    batch_size: usize,
    mut show: impl FnMut(usize, f32),
) -> Result<(Gpt, Vec<char>)> {
    random::seed(7);
    let mut characters: Vec<char> = TEXT.chars().collect();
    characters.sort_unstable();
    characters.dedup();
    let number = |c: char| characters.binary_search(&c).unwrap_or_default() as u32;
    let tokens: Vec<u32> = TEXT.chars().map(number).collect();
    let data = Array::from_slice(&tokens, &[tokens.len()])?;

    let mut model = Gpt {
        embedding: Embedding::new(characters.len(), DIMS)?,
        blocks: (0..LAYERS).map(|_| Block::new()).collect::<Result<_>>()?,
        norm: RMSNorm::new(DIMS, 1e-5)?,
    };
    let count: usize = model.parameters().values().map(Array::size).sum();
    println!("{} characters, {} kinds, {count} parameters", tokens.len(), characters.len());
    let warmup = (schedule / 10).max(1);
    let rate = vec![linear_schedule(0.0, 6e-3, warmup)?, cosine_decay(6e-3, schedule, 1e-4)?];
    let mut optimizer = AdamW::new(join_schedules(rate, vec![warmup])?)?.betas([0.9, 0.99])?;

    for step in 1..=steps {
        let (inputs, targets) = batch(&data, batch_size)?;
        let loss = nn::value_and_grad(|model: &Gpt| {
            cross_entropy(&model.forward(&inputs)?, &targets, None, -1, 0.0, Reduction::Mean)
        });
        let (value, gradients) = loss(&model)?;
        let (gradients, _) = clip_grad_norm(&gradients, 1.0)?;
        optimizer.update(&mut model, &gradients)?;
        wootz::eval(optimizer.arrays(&model).iter().chain([&value]))?;
        show(step, value.item()?);
    }
    Ok((model, characters))
}

/// Random windows of the text, `[size, CONTEXT]`, and the same ones a character later.
fn batch(data: &Array, size: usize) -> Result<(Array, Array)> {
    let last = data.size() - CONTEXT;
    let starts = random::randint(0, last, &[size, 1], DType::I32, None)?;
    let places = starts + wootz::arange(0, CONTEXT, 1, DType::I32)?;
    Ok((data.take(&places, Some(0))?, data.take(&(places + 1), Some(0))?))
}

/// Goes on from `tokens`, one character at a time.
fn write(model: &Gpt, mut tokens: Vec<u32>, more: usize) -> Result<Vec<u32>> {
    const TEMPERATURE: f64 = 0.5;
    for _ in 0..more {
        let seen = &tokens[tokens.len().saturating_sub(CONTEXT)..];
        let logits = model.forward(&Array::from_slice(seen, &[1, seen.len()])?)?;
        let next = logits.index((0, -1))? / TEMPERATURE;
        tokens.push(random::categorical(&next, -1, Samples::One, None)?.item()?);
    }
    Ok(tokens)
}
