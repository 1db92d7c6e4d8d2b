//! Losses over a vocabulary made of plainer operations.

use super::kl::logits_and_mask;
use super::{KlDivergenceBackward, KlSide, Labels, wide};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::ops::*;
use crate::with_device;

/// Loss and log-sum-exp of each row.
pub(super) fn forward(labels: Labels, inputs: &[Array]) -> Result<Vec<Array>> {
    let logits = astype(&inputs[0], wide(inputs[0].dtype()))?;
    let counts = counts(labels, inputs)?;
    let safe = safe_labels(&inputs[1], counts.as_ref())?;
    let lse = log_sums(&logits)?;
    let chosen = take_along_axis(&logits, &expand_dims(&safe, -1)?, Some(-1))?;
    let mut loss = subtract(&lse, multiply(squeeze(&chosen, -1)?, 1.0 - labels.smoothing)?)?;
    if labels.smoothing > 0.0 {
        loss = subtract(loss, multiply(mean(&logits, -1, false)?, labels.smoothing)?)?;
    }
    match counts {
        Some(counts) => Ok(vec![where_(&counts, loss, 0)?, where_(&counts, lse, 0)?]),
        None => Ok(vec![loss, lse]),
    }
}

/// The log-sum-exp of each row, of which there may be none.
fn log_sums(logits: &Array) -> Result<Array> {
    if logits.size() == 0 { sum(logits, -1, false) } else { logsumexp(logits, -1, false) }
}

/// `softmax · h - target · g` of each row.
pub(super) fn backward(labels: Labels, inputs: &[Array]) -> Result<Vec<Array>> {
    let (x, first) = (&inputs[0], labels.inputs());
    let logits = astype(x, wide(x.dtype()))?;
    let classes = x.shape()[x.rank() - 1];
    let [lse, g, h] = [first, first + 1, first + 2].map(|input| expand_dims(&inputs[input], -1));
    let counts = counts(labels, inputs)?;
    let safe = safe_labels(&inputs[1], counts.as_ref())?;
    let numbers = with_device(x.device(), || arange(0, classes, 1, DType::I32))?;
    let safe = astype(&safe, DType::I32)?;
    let hot = equal(&expand_dims(&safe, -1)?, numbers)?;
    let even = labels.smoothing / classes as f64;
    let target = add(multiply(astype(&hot, logits.dtype())?, 1.0 - labels.smoothing)?, even)?;
    let softmax = exp(subtract(&logits, lse?)?)?;
    let mut gradient = subtract(multiply(softmax, h?)?, multiply(target, g?)?)?;
    if let Some(counts) = counts {
        gradient = where_(expand_dims(&counts, -1)?, gradient, 0)?;
    }
    Ok(vec![astype(&gradient, x.dtype())?])
}

/// Which rows count, if not all do.
fn counts(labels: Labels, inputs: &[Array]) -> Result<Option<Array>> {
    let told = match labels.ignored {
        // A number that the labels' dtype does not hold is no label.
        Some(ignored) if fits(ignored, inputs[1].dtype()) => Some(not_equal(&inputs[1], ignored)?),
        _ => None,
    };
    let mask = labels.masked.then(|| inputs[2].clone());
    match (told, mask) {
        (Some(told), Some(mask)) => Ok(Some(logical_and(told, mask)?)),
        (told, mask) => Ok(told.or(mask)),
    }
}

fn fits(number: i64, dtype: DType) -> bool {
    let bits = 8 * dtype.size() as u32;
    match dtype.is_signed_integer() {
        true => bits == 64 || (-(1i64 << (bits - 1))..1i64 << (bits - 1)).contains(&number),
        false => number >= 0 && (bits == 64 || number < 1i64 << bits),
    }
}

/// The labels, and 0 where they do not count.
fn safe_labels(labels: &Array, counts: Option<&Array>) -> Result<Array> {
    match counts {
        Some(counts) => where_(counts, labels, zeros_like(labels)?),
        None => Ok(labels.clone()),
    }
}

/// Divergence and both log-sum-exps of each row.
pub(super) fn kl(masked: bool, inputs: &[Array]) -> Result<Vec<Array>> {
    let (p, q) = both(masked, inputs)?;
    let (lse_p, lse_q) = (log_sums(&p)?, log_sums(&q)?);
    let chances = exp(subtract(&p, expand_dims(&lse_p, -1)?)?)?;
    let apart = subtract(&p, &q)?;
    let terms = where_(equal(&chances, 0)?, 0, multiply(&chances, apart)?)?;
    let level = subtract(&lse_q, &lse_p)?;
    let results = vec![add(sum(&terms, -1, false)?, level)?, lse_p, lse_q];
    match masked {
        true => results.into_iter().map(|result| where_(&inputs[2], result, 0)).collect(),
        false => Ok(results),
    }
}

/// Both arrays of logits, wide enough, with zeros in rows that do not count: whatever is there, gradients through it
/// are zeros.
fn both(masked: bool, inputs: &[Array]) -> Result<(Array, Array)> {
    let safe = |logits: &Array| {
        let logits = astype(logits, wide(logits.dtype()))?;
        if masked { where_(expand_dims(&inputs[2], -1)?, logits, 0) } else { Ok(logits) }
    };
    Ok((safe(&inputs[0])?, safe(&inputs[1])?))
}

/// The gradient of one side's logits.
pub(super) fn kl_backward(op: KlDivergenceBackward, inputs: &[Array]) -> Result<Vec<Array>> {
    let (p, q) = both(op.masked, inputs)?;
    let numbers = &inputs[logits_and_mask(op.masked)..];
    let column = |number: usize| expand_dims(&numbers[number], -1);
    let (p_log, q_log) = (subtract(p, column(1)?)?, subtract(q, column(2)?)?);
    let p = exp(&p_log)?;
    let gradient = match op.side {
        KlSide::Predictions => subtract(exp(&q_log)?, p)?,
        KlSide::Targets => {
            let slope = subtract(subtract(&p_log, &q_log)?, column(0)?)?;
            where_(equal(&p, 0)?, 0, multiply(&p, slope)?)?
        }
    };
    let mut gradient = multiply(gradient, column(3)?)?;
    if op.masked {
        gradient = where_(expand_dims(&inputs[2], -1)?, gradient, 0)?;
    }
    Ok(vec![astype(&gradient, inputs[0].dtype())?])
}
