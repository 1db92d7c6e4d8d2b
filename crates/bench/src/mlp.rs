//! A step of training: linear layers with relu between them, mean squared error, AdamW.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use wootz::nn::losses::{Reduction, mse_loss};
use wootz::nn::{Linear, Module, relu};
use wootz::optim::{AdamW, Optimizer};
use wootz::{Array, Compiled, DType, Tree, compile, random, value_and_grad_of};

use crate::rows::Row;

/// A model, its optimizer and the data it is trained on.
pub struct MlpStep {
    data: [Array; 2],
    kind: Kind,
}

enum Kind {
    Eager {
        model: Vec<Linear>,
        optimizer: Box<AdamW>,
    },
    /// What the model and the optimizer hold is handed from step to step.
    Compiled {
        step: Compiled<Function>,
        state: Vec<Array>,
    },
}

type Function = Box<dyn Fn(&[Array]) -> wootz::Result<Vec<Array>>>;

impl MlpStep {
    /// The step that a row is about.
    pub fn new(row: &Row) -> Result<MlpStep> {
        let &[layers, width, batch] = row.sizes else { bail!("layers, width and batch") };
        let model = Self::model(layers, width)?;
        let mut optimizer = Self::optimizer()?;
        optimizer.init(&model.parameters())?;
        let data = |seed: u64| {
            let key = random::key(seed)?;
            random::normal(&[batch, width], DType::F32, 0.0, 1.0, Some(&key))
        };
        let data = [data(1)?, data(2)?];
        wootz::eval(optimizer.arrays(&model).iter().chain(&data))?;
        let kind = match row.name {
            "mlp_step" => Kind::Eager { model, optimizer: Box::new(optimizer) },
            _ => {
                let state = optimizer.arrays(&model);
                let names = [names(&model.parameters()), names(&optimizer.state())];
                // Its own values are replaced and never computed.
                let template = Self::model(layers, width)?;
                let step = move |x: &[Array]| recorded(template.clone(), &names, x);
                Kind::Compiled { step: compile(Box::new(step)), state }
            }
        };
        Ok(MlpStep { data, kind })
    }

    /// Takes one step.
    pub fn run(&mut self) -> wootz::Result<()> {
        match &mut self.kind {
            Kind::Eager { model, optimizer } => {
                let [x, y] = &self.data;
                let (value, gradients) = value_and_grad_of(|m: &Vec<Linear>| loss(m, x, y))(model)?;
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

    fn model(layers: usize, width: usize) -> wootz::Result<Vec<Linear>> {
        (0..layers).map(|_| Linear::new(width, width, true)).collect()
    }

    fn optimizer() -> wootz::Result<AdamW> {
        Ok(AdamW::new(1e-4)?.bias_correction(true))
    }
}

fn names(arrays: &BTreeMap<String, Array>) -> Vec<String> {
    arrays.keys().cloned().collect()
}

/// The step as a function of parameters, the optimizer's state, and data; returns the first two, and
/// the loss.
fn recorded(
    mut model: Vec<Linear>,
    names: &[Vec<String>; 2],
    x: &[Array],
) -> wootz::Result<Vec<Array>> {
    let (parameters, rest) = x.split_at(names[0].len());
    let (state, data) = rest.split_at(names[1].len());
    let named = |names: &[String], arrays: &[Array]| -> BTreeMap<String, Array> {
        names.iter().cloned().zip(arrays.iter().cloned()).collect()
    };
    let mut optimizer = MlpStep::optimizer()?;
    model.update(&named(&names[0], parameters))?;
    optimizer.set_state(&named(&names[1], state))?;
    let (value, gradients) =
        value_and_grad_of(|m: &Vec<Linear>| loss(m, &data[0], &data[1]))(&model)?;
    optimizer.update(&mut model, &gradients)?;
    Ok(optimizer.arrays(&model).into_iter().chain([value]).collect())
}

fn loss(model: &[Linear], x: &Array, y: &Array) -> wootz::Result<Array> {
    let mut out = x.clone();
    for (index, layer) in model.iter().enumerate() {
        out = layer.forward(&if index > 0 { relu(&out)? } else { out })?;
    }
    mse_loss(&out, y, Reduction::Mean)
}
