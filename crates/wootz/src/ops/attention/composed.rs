//! Attention and its gradients of plain operations, in `float32` at least: what the kernels are
//! compared with, and what their own gradients are made of.

use super::spec::{AttentionSpec, MaskKind, wide};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::ops::elementwise::sum_to_shape;
use crate::ops::*;
use crate::with_device;

/// The optional arrays of an operation, in the order of its inputs.
#[derive(Clone, Copy, Default)]
pub(super) struct Optional<'a> {
    pub(super) mask: Option<&'a Array>,
    pub(super) sinks: Option<&'a Array>,
    pub(super) lengths: &'a [Array],
}

impl<'a> Optional<'a> {
    /// Out of the inputs behind those that are always there.
    pub(super) fn of(spec: &AttentionSpec, sinks: bool, inputs: &'a [Array]) -> Optional<'a> {
        let mut inputs = inputs.iter();
        Optional {
            mask: if spec.mask == MaskKind::None { None } else { inputs.next() },
            sinks: if sinks { inputs.next() } else { None },
            lengths: inputs.as_slice(),
        }
    }
}

/// The output, and the log-sum-exp of each row.
pub(super) fn forward(
    spec: &AttentionSpec,
    q: &Array,
    k: &Array,
    v: &Array,
    optional: Optional<'_>,
) -> Result<(Array, Array)> {
    let dtype = q.dtype();
    let Scores { hidden: scores, .. } = Scores::new(spec, q, k, optional)?;
    let sinks = match optional.sinks {
        Some(sinks) => Some(sinks.astype(wide(dtype))?.reshape(&[1, sinks.size(), 1, 1])?),
        None => None,
    };
    // The largest score, which cancels out; 0 where there is none.
    let mut most = match scores.shape()[3] {
        0 => full_like(&sum(&scores, -1, true)?, f64::NEG_INFINITY)?,
        _ => max(&scores, -1, true)?,
    };
    if let Some(sinks) = &sinks {
        most = maximum(&most, sinks)?;
    }
    let most = stop_gradient(where_(isneginf(&most)?, 0.0, &most)?)?;
    let powers = exp(subtract(&scores, &most)?)?;
    let mut total = sum(&powers, -1, true)?;
    if let Some(sinks) = &sinks {
        total = add(&total, exp(subtract(sinks, &most)?)?)?;
    }
    let nothing = equal(&total, 0.0)?;
    let total = where_(&nothing, 1.0, &total)?;
    let out = grouped_matmul(&divide(&powers, &total)?, &v.astype(wide(dtype))?)?;
    let lse = where_(&nothing, f64::NEG_INFINITY, add(log(&total)?, &most)?)?;
    Ok((out.astype(dtype)?, squeeze(&lse, -1)?))
}

/// The gradients of `q`, `k`, `v` and of an additive mask.
pub(super) struct Gradients {
    pub(super) q: Array,
    pub(super) k: Array,
    pub(super) v: Array,
    pub(super) mask: Option<Array>,
}

/// The gradients from the output's gradient `dy`, the log-sum-exps and `d`, the sums of `dy · out`.
pub(super) fn backward(
    spec: &AttentionSpec,
    inputs: &[Array],
    optional: Optional<'_>,
) -> Result<Gradients> {
    let [q, k, v, dy, lse, d] = [0, 1, 2, 3, 4, 5].map(|i| &inputs[i]);
    let dtype = q.dtype();
    let scores = Scores::new(spec, q, k, optional)?;
    let lse = expand_dims(&where_(isneginf(lse)?, 0.0, lse)?, -1)?;
    let p = exp(subtract(&scores.hidden, &lse)?)?;
    let (v_wide, dy) = (v.astype(wide(dtype))?, dy.astype(wide(dtype))?);
    let dp = grouped_matmul(&dy, &v_wide.swapaxes(-1, -2)?)?;
    let ds = multiply(&p, subtract(&dp, expand_dims(d, -1)?)?)?;
    let mask = match optional.mask {
        Some(mask) if spec.mask == MaskKind::Additive => {
            Some(sum_to_shape(&ds, mask.shape())?.astype(dtype)?)
        }
        _ => None,
    };
    let ds = match &scores.slope {
        Some(slope) => multiply(ds, slope)?,
        None => ds,
    };
    let ds = multiply(ds, spec.scale)?;
    let dq = grouped_matmul(&ds, &k.astype(wide(dtype))?)?;
    let dk = summed_matmul(&ds, &q.astype(wide(dtype))?, k.shape()[1])?;
    let dv = summed_matmul(&p, &dy, k.shape()[1])?;
    Ok(Gradients { q: dq.astype(dtype)?, k: dk.astype(dtype)?, v: dv.astype(dtype)?, mask })
}

/// The scores of every query and key.
struct Scores {
    /// −∞ where a key is not seen.
    hidden: Array,
    /// How they change with the products, if softened.
    slope: Option<Array>,
}

impl Scores {
    fn new(spec: &AttentionSpec, q: &Array, k: &Array, optional: Optional<'_>) -> Result<Scores> {
        let wide = wide(q.dtype());
        let (q, k) = (q.astype(wide)?, k.astype(wide)?);
        let mut scores = multiply(grouped_matmul(&q, &k.swapaxes(-1, -2)?)?, spec.scale)?;
        let mut slope = None;
        if let Some(softcap) = spec.softcap {
            let soft = tanh(divide(&scores, softcap)?)?;
            slope = Some(subtract(1.0, square(&soft)?)?);
            scores = multiply(soft, softcap)?;
        }
        scores = match (spec.mask, optional.mask) {
            (MaskKind::Bool, Some(mask)) => where_(mask, scores, f64::NEG_INFINITY)?,
            (MaskKind::Additive, Some(mask)) => {
                // Whatever the score is, −∞ hides it.
                let sum = add(scores, mask.astype(wide)?)?;
                where_(isneginf(mask)?, f64::NEG_INFINITY, sum)?
            }
            _ => scores,
        };
        if let Some(seen) = seen(spec, &scores, optional.lengths)? {
            scores = where_(seen, scores, f64::NEG_INFINITY)?;
        }
        Ok(Scores { hidden: scores, slope })
    }
}

/// Which keys are seen by position: broadcasts to the scores.
fn seen(spec: &AttentionSpec, scores: &Array, lengths: &[Array]) -> Result<Option<Array>> {
    let (queries, keys) = (scores.shape()[2] as i64, scores.shape()[3] as i64);
    let count = |to: i64| with_device(scores.device(), || arange(0, to, 1, DType::I32));
    let (rows, columns) = (expand_dims(&count(queries)?, -1)?, count(keys)?);
    let mut seen: Option<Array> = None;
    let mut and = |more: Array| -> Result<()> {
        seen = Some(match &seen {
            Some(seen) => logical_and(seen, &more)?,
            None => more,
        });
        Ok(())
    };
    // How far a query's position is behind its number.
    let mut shift =
        with_device(scores.device(), || Array::scalar((keys - queries) as f64, DType::I32))?;
    match lengths {
        [length] => {
            let length = clip(&reshape(length, &[length.size(), 1, 1, 1])?, Some(0), Some(keys))?;
            and(less(&columns, &length)?)?;
            shift = subtract(length, queries)?;
        }
        [query_ends, key_ends] => {
            let (own, theirs) = (sequence_of(&rows, query_ends)?, sequence_of(&columns, key_ends)?);
            and(equal(&own, theirs)?)?;
            let end = |ends: &Array| take(ends, &add(&own, 1)?, Some(0));
            shift = subtract(end(key_ends)?, end(query_ends)?)?;
        }
        _ => {}
    }
    if spec.causal {
        let positions = add(&rows, shift)?;
        and(greater_equal(&positions, &columns)?)?;
        if let Some(window) = spec.reach(scores.shape()[3]) {
            and(less(&positions, add(&columns, window)?)?)?;
        }
    }
    Ok(seen)
}

/// The number of the sequence that each place belongs to.
fn sequence_of(places: &Array, ends: &Array) -> Result<Array> {
    if ends.size() <= 2 {
        return multiply(places, 0);
    }
    let inner = ends.index(1..ends.size() as i64 - 1)?;
    let behind = greater_equal(expand_dims(places, -1)?, inner)?;
    sum(&behind.astype(DType::I32)?, -1, false)
}

/// `a · b`, where `b` has fewer heads and each is for several of `a`.
fn grouped_matmul(a: &Array, b: &Array) -> Result<Array> {
    let (split, heads) = (by_group(a, b.shape()[1])?, a.shape()[1]);
    let c = matmul(&split, &expand_dims(b, 2)?)?;
    let [batch, rows, columns] = [c.shape()[0], c.shape()[3], c.shape()[4]];
    c.reshape(&[batch, heads, rows, columns])
}

/// `aᵀ · b`, summed over the heads of a group.
fn summed_matmul(a: &Array, b: &Array, key_heads: usize) -> Result<Array> {
    let (a, b) = (by_group(a, key_heads)?, by_group(b, key_heads)?);
    sum(&matmul(&a.swapaxes(-1, -2)?, &b)?, 2, false)
}

/// Heads that share keys along an axis of their own.
fn by_group(x: &Array, key_heads: usize) -> Result<Array> {
    let &[batch, heads, rows, columns] = x.shape() else { return Ok(x.clone()) };
    x.reshape(&[batch, key_heads, heads / key_heads.max(1), rows, columns])
}
