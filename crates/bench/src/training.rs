//! Steps of training with AdamW and mean squared error: of linear layers with relu between them, and
//! of a block as GPTs have.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use wootz::nn::losses::{Reduction, mse_loss};
use wootz::nn::{LayerNorm, Linear, Module, gelu, relu};
use wootz::optim::{AdamW, Optimizer};
use wootz::{
    Array, Compiled, DType, Mask, Tree, compile, ops, random, transpose_axes, tree_map,
    value_and_grad_of,
};

use crate::rows::Row;

/// Something to be trained by steps.
pub trait Step {
    /// Takes one step.
    fn run(&mut self) -> wootz::Result<()>;
}

/// The step that a row is about.
pub fn step(row: &Row, dtype: DType) -> Result<Box<dyn Step>> {
    let compiled = row.name.ends_with("compiled");
    match (row.name, row.sizes) {
        ("mlp_step" | "mlp_step_compiled", &[layers, width, batch]) => {
            let layer = |_| Linear::new(width, width, true);
            let layers = (0..layers).map(layer).collect::<wootz::Result<_>>()?;
            Ok(Box::new(Training::new(Mlp { layers }, &[batch, width], dtype, compiled)?))
        }
        ("gpt_step" | "gpt_step_compiled", &[dims, heads, length, batch]) => {
            let shape = [batch, length, dims];
            Ok(Box::new(Training::new(GptBlock::new(dims, heads)?, &shape, dtype, compiled)?))
        }
        _ => bail!("no step {}", row.title()),
    }
}

/// A model, its optimizer and the data it is trained on.
struct Training<M: Tree> {
    data: [Array; 2],
    kind: Kind<M>,
}

enum Kind<M> {
    Eager {
        model: M,
        optimizer: Box<AdamW>,
    },
    /// What the model and the optimizer hold is handed from step to step.
    Compiled {
        step: Compiled<Function>,
        state: Vec<Array>,
    },
}

type Function = Box<dyn Fn(&[Array]) -> wootz::Result<Vec<Array>>>;

impl<M: Module + Tree + Clone + 'static> Training<M> {
    fn new(model: M, shape: &[usize], dtype: DType, compiled: bool) -> Result<Training<M>> {
        let model = tree_map(&model, |_, array| array.astype(dtype))?;
        let mut optimizer = adam()?;
        optimizer.init(&model.parameters())?;
        let data = |seed: u64| {
            let key = random::key(seed)?;
            random::normal(shape, dtype, 0.0, 1.0, Some(&key))
        };
        let data = [data(1)?, data(2)?];
        wootz::eval(optimizer.arrays(&model).iter().chain(&data))?;
        if !compiled {
            let kind = Kind::Eager { model, optimizer: Box::new(optimizer) };
            return Ok(Training { data, kind });
        }
        let state = optimizer.arrays(&model);
        let names = [names(&model.parameters()), names(&optimizer.state())];
        // Its own values are replaced and never computed.
        let template = tree_map(&model, |_, array| Array::zeros(array.shape(), array.dtype()))?;
        drop(model);
        let step = move |x: &[Array]| recorded(template.clone(), &names, x);
        Ok(Training { data, kind: Kind::Compiled { step: compile(Box::new(step)), state } })
    }
}

impl<M: Module + Tree + Clone + 'static> Step for Training<M> {
    fn run(&mut self) -> wootz::Result<()> {
        match &mut self.kind {
            Kind::Eager { model, optimizer } => {
                let [x, y] = &self.data;
                let (value, gradients) = value_and_grad_of(|m: &M| loss(m, x, y))(model)?;
                optimizer.update(model, &gradients)?;
                // So that a gradient is gone when the optimizer has used it.
                drop(gradients);
                wootz::eval(optimizer.arrays(model).iter().chain([&value]))
            }
            Kind::Compiled { step, state } => {
                let mut arguments = std::mem::take(state);
                arguments.extend(self.data.iter().cloned());
                *state = step.call_owned(arguments)?;
                // The last one is the loss.
                state.pop();
                Ok(())
            }
        }
    }
}

fn adam() -> wootz::Result<AdamW> {
    Ok(AdamW::new(1e-4)?.bias_correction(true))
}

fn names(arrays: &BTreeMap<String, Array>) -> Vec<String> {
    arrays.keys().cloned().collect()
}

/// The step as a function of parameters, the optimizer's state, and data; returns the first two, and
/// the loss.
fn recorded<M: Module + Tree + Clone>(
    mut model: M,
    names: &[Vec<String>; 2],
    x: &[Array],
) -> wootz::Result<Vec<Array>> {
    let (parameters, rest) = x.split_at(names[0].len());
    let (state, data) = rest.split_at(names[1].len());
    let named = |names: &[String], arrays: &[Array]| -> BTreeMap<String, Array> {
        names.iter().cloned().zip(arrays.iter().cloned()).collect()
    };
    let mut optimizer = adam()?;
    model.update(&named(&names[0], parameters))?;
    optimizer.set_state(&named(&names[1], state))?;
    let (value, gradients) = value_and_grad_of(|m: &M| loss(m, &data[0], &data[1]))(&model)?;
    optimizer.update(&mut model, &gradients)?;
    Ok(optimizer.arrays(&model).into_iter().chain([value]).collect())
}

fn loss<M: Module>(model: &M, x: &Array, y: &Array) -> wootz::Result<Array> {
    mse_loss(&model.forward(x)?, y, Reduction::Mean)
}

#[derive(Clone, Tree)]
struct Mlp {
    layers: Vec<Linear>,
}

impl Module for Mlp {
    fn forward(&self, x: &Array) -> wootz::Result<Array> {
        let mut out = x.clone();
        for (index, layer) in self.layers.iter().enumerate() {
            out = layer.forward(&if index > 0 { relu(&out)? } else { out })?;
        }
        Ok(out)
    }
}

#[derive(Clone, Tree)]
struct GptBlock {
    attention_norm: LayerNorm,
    qkv_proj: Linear,
    out_proj: Linear,
    mlp_norm: LayerNorm,
    up_proj: Linear,
    down_proj: Linear,
    heads: usize,
}

impl GptBlock {
    fn new(dims: usize, heads: usize) -> wootz::Result<GptBlock> {
        Ok(GptBlock {
            attention_norm: LayerNorm::new(dims)?,
            qkv_proj: Linear::new(dims, 3 * dims, true)?,
            out_proj: Linear::new(dims, dims, true)?,
            mlp_norm: LayerNorm::new(dims)?,
            up_proj: Linear::new(dims, 4 * dims, true)?,
            down_proj: Linear::new(4 * dims, dims, true)?,
            heads,
        })
    }
}

impl Module for GptBlock {
    fn forward(&self, x: &Array) -> wootz::Result<Array> {
        let all = self.qkv_proj.forward(&self.attention_norm.forward(x)?)?;
        let dims = all.shape()[all.rank() - 1] / (3 * self.heads);
        let all = all.unflatten(-1, &[3 * self.heads as i64, dims as i64])?;
        let parts = transpose_axes(&all, &[0, 2, 1, 3])?.split(3, 1)?;
        let scale = 1.0 / (dims as f64).sqrt();
        let [q, k, v] = [&parts[0], &parts[1], &parts[2]];
        let y = ops::scaled_dot_product_attention(q, k, v, scale, Mask::Causal, None)?;
        let y = transpose_axes(&y, &[0, 2, 1, 3])?.flatten(-2, -1)?;
        let x = ops::add(x, self.out_proj.forward(&y)?)?;
        let y = gelu(&self.up_proj.forward(&self.mlp_norm.forward(&x)?)?)?;
        ops::add(&x, self.down_proj.forward(&y)?)
    }
}
