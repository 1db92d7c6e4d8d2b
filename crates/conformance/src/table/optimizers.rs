//! Optimizers, taking steps on one parameter, and schedules.

use std::collections::BTreeMap;

use serde_json::Value;
use wootz::Tree;
use wootz::optim::*;

use super::{one, rows};
use crate::call::{Call, Outcome, Refusal, sayable, unsayable};

rows! {
    "optimizers.AdaDelta" => |c| {
        steps(c, AdaDelta::new(c.float("learning_rate")?)?.rho(c.float("rho")?)?.eps(c.float("eps")?)?)
    },
    "optimizers.Adafactor" => |c| {
        let rate = c.has("learning_rate").then(|| c.float("learning_rate")).transpose()?;
        let beta_1 = c.has("beta_1").then(|| c.float("beta_1")).transpose()?;
        c.ignore("learning_rate");
        c.ignore("beta_1");
        let optimizer = Adafactor::new(rate.map(LearningRate::Constant))?
            .eps(two(c, "eps")?)
            .clip_threshold(c.float("clip_threshold")?)
            .decay_rate(c.float("decay_rate")?)
            .beta_1(beta_1)
            .weight_decay(c.float("weight_decay")?)
            .scale_parameter(c.flag("scale_parameter")?)
            .relative_step(c.flag("relative_step")?, c.flag("warmup_init")?);
        steps(c, optimizer)
    },
    "optimizers.Adagrad" => |c| {
        steps(c, Adagrad::new(c.float("learning_rate")?)?.eps(c.float("eps")?)?)
    },
    "optimizers.Adam" => |c| {
        let optimizer = Adam::new(c.float("learning_rate")?)?
            .betas(two(c, "betas")?)?
            .eps(c.float("eps")?)?
            .bias_correction(c.flag("bias_correction")?);
        steps(c, optimizer)
    },
    "optimizers.AdamW" => |c| {
        let optimizer = AdamW::new(c.float("learning_rate")?)?
            .betas(two(c, "betas")?)?
            .eps(c.float("eps")?)?
            .weight_decay(c.float("weight_decay")?)
            .bias_correction(c.flag("bias_correction")?);
        steps(c, optimizer)
    },
    "optimizers.Adamax" => |c| {
        let optimizer = Adamax::new(c.float("learning_rate")?)?;
        steps(c, optimizer.betas(two(c, "betas")?)?.eps(c.float("eps")?)?)
    },
    "optimizers.Lion" => |c| {
        let optimizer = Lion::new(c.float("learning_rate")?)?.betas(two(c, "betas")?)?;
        steps(c, optimizer.weight_decay(c.float("weight_decay")?))
    },
    "optimizers.Muon" => |c| {
        let optimizer = Muon::new(c.float("learning_rate")?)?
            .momentum(c.float("momentum")?, c.flag("nesterov")?)
            .weight_decay(c.float("weight_decay")?)
            .ns_steps(c.size("ns_steps")?);
        steps(c, optimizer)
    },
    "optimizers.RMSprop" => |c| {
        let optimizer = RMSprop::new(c.float("learning_rate")?)?;
        steps(c, optimizer.alpha(c.float("alpha")?)?.eps(c.float("eps")?)?)
    },
    "optimizers.SGD" => |c| {
        let (momentum, dampening) = (c.float("momentum")?, c.float("dampening")?);
        let optimizer = SGD::new(c.float("learning_rate")?)?
            .momentum(momentum, dampening, c.flag("nesterov")?)?
            .weight_decay(c.float("weight_decay")?);
        steps(c, optimizer)
    },
    "optimizers.clip_grad_norm" => |c| {
        let (clipped, norm) = clip_grad_norm(&c.arrays("grads")?, c.float("max_norm")?)?;
        Ok(clipped.into_iter().chain([norm]).collect())
    },
    "optimizers.cosine_decay" => |c| scheduled(c, "cosine_decay"),
    "optimizers.exponential_decay" => |c| scheduled(c, "exponential_decay"),
    "optimizers.join_schedules" => |c| {
        let parts = c.value("schedules").and_then(Value::as_array);
        let parts = parts.ok_or_else(|| Refusal::Unknown("no list schedules".into()))?;
        let parts = parts.iter().map(|part| {
            schedule(part[0].as_str().unwrap_or_default(), &part[1])
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        one(join_schedules(parts, c.shape("boundaries")?)?.at(&c.array("step")?))
    },
    "optimizers.linear_schedule" => |c| scheduled(c, "linear_schedule"),
    "optimizers.step_decay" => |c| scheduled(c, "step_decay"),
}

/// The parameter after each step, then the final state in the order of its names.
fn steps(c: &Call<'_>, mut optimizer: impl Optimizer) -> Outcome {
    const NAME: &str = "w";
    let mut model = BTreeMap::from([(NAME.to_string(), c.array("parameter")?)]);
    let mut outputs = Vec::new();
    for gradient in c.arrays("gradients")? {
        optimizer.update(&mut model, &BTreeMap::from([(NAME.to_string(), gradient)]))?;
        outputs.extend(model.parameters().into_values());
    }
    let own = optimizer.state().into_iter().filter(|(name, _)| name.starts_with("w."));
    outputs.extend(own.map(|(_, array)| array));
    Ok(outputs)
}

fn scheduled(c: &Call<'_>, name: &str) -> Outcome {
    let arguments = c.value("args").cloned().unwrap_or_default();
    one(schedule(name, &arguments)?.at(&c.array("step")?))
}

/// A schedule by name and positional arguments, of which the last of `cosine_decay` may be missing.
fn schedule(name: &str, arguments: &Value) -> Result<Schedule, Refusal> {
    let number = |index: usize| {
        let value = arguments[index].as_f64();
        value.ok_or_else(|| Refusal::Unknown(format!("argument {index} of {name}")))
    };
    let count = |index: usize| sayable(name, number(index)? as i64);
    Ok(match name {
        "cosine_decay" => cosine_decay(number(0)?, count(1)?, number(2).unwrap_or(0.0))?,
        "exponential_decay" => exponential_decay(number(0)?, number(1)?),
        "linear_schedule" => linear_schedule(number(0)?, number(1)?, count(2)?)?,
        "step_decay" => step_decay(number(0)?, number(1)?, count(2)?)?,
        _ => return unsayable("schedule", name),
    })
}

/// A pair of numbers.
fn two(c: &Call<'_>, name: &str) -> Result<[f64; 2], Refusal> {
    let value = c.value(name).cloned().unwrap_or_default();
    serde_json::from_value(value).map_err(|error| Refusal::Unknown(format!("{name}: {error}")))
}
