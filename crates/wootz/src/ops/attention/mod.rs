//! Scaled dot product attention with every kind of mask, and its backward, as operations whose
//! memory grows with the length and not with its square: tiles of scores are computed, used and
//! forgotten, and the backward computes them again from the log-sum-exp of each row.

/// The names of an operation's arguments: `before`, the optional ones of an [`AttentionSpec`], and
/// `after`.
macro_rules! names {
    (@list [$($before:literal),*] [$($name:literal),*] [$($after:literal),*]) => {
        &[$($before,)* $($name,)* $($after),*]
    };
    ($spec:expr, $before:tt, $sinks:expr, $after:tt) => {{
        use crate::ops::attention::spec::Lengths::*;
        let mask = $spec.mask != crate::ops::attention::spec::MaskKind::None;
        match (mask, $sinks, $spec.lengths) {
            (false, false, All) => names!(@list $before [] $after),
            (true, false, All) => names!(@list $before ["mask"] $after),
            (false, true, All) => names!(@list $before ["sinks"] $after),
            (true, true, All) => names!(@list $before ["mask", "sinks"] $after),
            (false, false, Valid) => names!(@list $before ["key_length"] $after),
            (true, false, Valid) => names!(@list $before ["mask", "key_length"] $after),
            (false, true, Valid) => names!(@list $before ["sinks", "key_length"] $after),
            (true, true, Valid) => names!(@list $before ["mask", "sinks", "key_length"] $after),
            (false, false, Sequences) => names!(@list $before ["query_ends", "key_ends"] $after),
            (true, false, Sequences) => {
                names!(@list $before ["mask", "query_ends", "key_ends"] $after)
            }
            (false, true, Sequences) => {
                names!(@list $before ["sinks", "query_ends", "key_ends"] $after)
            }
            (true, true, Sequences) => {
                names!(@list $before ["mask", "sinks", "query_ends", "key_ends"] $after)
            }
        }
    }};
}
mod backward;
mod cases;
mod composed;
#[cfg(feature = "gpu")]
mod cooperative;
mod cpu;
mod forward;
#[cfg(feature = "gpu")]
mod gpu;
mod quantized;
mod spec;
#[cfg(test)]
mod tests;
#[cfg(feature = "gpu")]
mod text;

pub use backward::{AttentionBackward, AttentionBackwardD, AttentionBackwardMask};
pub(crate) use cases::entries;
pub use forward::Attention;
pub use quantized::{QuantizedAttention, quantized_attention};
pub use spec::{AttentionSpec, Lengths, MOST_DIMS, MaskKind};

use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::{clip, minimum, reshape};

const NAME: &str = "scaled_dot_product_attention";

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, Default)]
pub enum Mask<'a> {
    /// All.
    #[default]
    None,
    /// Those up to its own position; the last query sees all.
    Causal,
    /// Where a `bool` array is true, or with an array added to the scores. It broadcasts to
    /// `[batch, heads, queries, keys]`.
    Array(&'a Array),
}

/// What [`attention`] can be asked for beside its three arrays. All of it goes together.
///
/// ```
/// use wootz::{Array, AttentionOptions, DType, attention};
/// let x = Array::ones(&[1, 2, 3, 4], DType::F32)?;
/// let options = AttentionOptions { causal: true, window: Some(2), ..AttentionOptions::new(0.5) };
/// assert_eq!(attention(&x, &x, &x, &options)?.shape(), [1, 2, 3, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AttentionOptions<'a> {
    /// What products of queries and keys are multiplied with.
    pub scale: f64,
    /// Whether a query sees keys up to its own position only. The last query is at the last key.
    pub causal: bool,
    /// How many keys up to its own position a query sees; needs `causal`.
    pub window: Option<i64>,
    /// Scores are softened to `softcap · tanh(score / softcap)`, before the mask.
    pub softcap: Option<f64>,
    /// Keys are seen where it is true, or it is added to the scores. It broadcasts to
    /// `[batch, heads, queries, keys]`.
    pub mask: Option<&'a Array>,
    /// One score for each head that takes part in the softmax and then is dropped, of a dtype that promotes to the
    /// result's.
    pub sinks: Option<&'a Array>,
    /// How many keys are valid, an integer, or one for each batch: what lies behind them is never
    /// seen, and the last of them is where the last query is. More than there are is an error.
    pub key_length: Option<&'a Array>,
    /// Several sequences one after the other: where each ends among the queries and among the keys,
    /// with a 0 before them. A query sees keys of its own sequence, whose last query is at its last
    /// key. Not together with `key_length`.
    pub sequences: Option<(&'a Array, &'a Array)>,
}

impl AttentionOptions<'_> {
    /// Every query sees every key.
    pub fn new(scale: f64) -> AttentionOptions<'static> {
        AttentionOptions {
            scale,
            causal: false,
            window: None,
            softcap: None,
            mask: None,
            sinks: None,
            key_length: None,
            sequences: None,
        }
    }
}

/// Attention: `softmax(scale · q kᵀ + mask) v` for `q` of `[batch, heads, queries, dims]` and `k`,
/// `v` of `[batch, key heads, keys, dims]`, whose heads may be fewer by a whole factor. `sinks`,
/// one number for each head, join the softmax's denominator. A query that sees nothing gets zeros.
///
/// ```
/// use wootz::{Array, DType, Mask, scaled_dot_product_attention};
/// let x = Array::ones(&[1, 2, 3, 4], DType::F32)?;
/// let y = scaled_dot_product_attention(&x, &x, &x, 0.5, Mask::Causal, None)?;
/// assert_eq!(y.shape(), [1, 2, 3, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn scaled_dot_product_attention(
    q: &Array,
    k: &Array,
    v: &Array,
    scale: f64,
    mask: Mask<'_>,
    sinks: Option<&Array>,
) -> Result<Array> {
    let mut options = AttentionOptions { sinks, ..AttentionOptions::new(scale) };
    match mask {
        Mask::None => {}
        Mask::Causal => options.causal = true,
        Mask::Array(mask) => options.mask = Some(mask),
    }
    attention(q, k, v, &options)
}

/// [`scaled_dot_product_attention`] with all that it can be asked for.
///
/// ```
/// use wootz::{Array, AttentionOptions, DType, attention};
/// let (q, k) = (Array::ones(&[1, 1, 1, 2], DType::F32)?, Array::ones(&[1, 1, 8, 2], DType::F32)?);
/// // Of eight keys three are valid.
/// let length = Array::scalar(3.0, DType::I32)?;
/// let options = AttentionOptions { key_length: Some(&length), ..AttentionOptions::new(1.0) };
/// assert_eq!(attention(&q, &k, &k, &options)?.to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn attention(q: &Array, k: &Array, v: &Array, options: &AttentionOptions<'_>) -> Result<Array> {
    let (spec, inputs) = prepared(q, k, v, options)?;
    // The backward starts from the log-sum-exps.
    let train = inputs.iter().any(|input| input.node.is_traced());
    let op = if train { Attention::with_lse(spec) } else { Attention::new(spec) };
    let outputs = Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?;
    first(NAME, outputs)
}

/// [`attention`] and the logarithm of the sum of the exponentials of each row's scores, which is
/// −∞ for a query that sees nothing: with it, attention to two parts of the keys can be joined.
///
/// ```
/// use wootz::{Array, AttentionOptions, DType, attention_with_lse};
/// let x = Array::ones(&[1, 2, 3, 4], DType::F32)?;
/// let (y, lse) = attention_with_lse(&x, &x, &x, &AttentionOptions::new(0.25))?;
/// assert_eq!((y.shape(), lse.shape()), (&[1, 2, 3, 4][..], &[1, 2, 3][..]));
/// assert!((lse.to_vec::<f32>()?[0] - (1.0 + 3f32.ln())).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn attention_with_lse(
    q: &Array,
    k: &Array,
    v: &Array,
    options: &AttentionOptions<'_>,
) -> Result<(Array, Array)> {
    let (spec, inputs) = prepared(q, k, v, options)?;
    let op = Attention::with_lse(spec);
    two(NAME, Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?)
}

/// The sum of the products of attention's output and its gradient over each row, in `float32`
/// (or `float64` for `float64`): the first step of the backward.
///
/// ```
/// use wootz::{Array, DType, attention_backward_d};
/// let x = Array::ones(&[1, 2, 3, 4], DType::BF16)?;
/// assert_eq!(attention_backward_d(&x, &x)?.to_vec::<f32>()?, [4.0; 6]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn attention_backward_d(out: &Array, dout: &Array) -> Result<Array> {
    Array::apply(AttentionBackwardD, &[&out.contiguous()?, &dout.contiguous()?])
}

/// The operation's settings, and its inputs as it takes them.
fn prepared(
    q: &Array,
    k: &Array,
    v: &Array,
    options: &AttentionOptions<'_>,
) -> Result<(AttentionSpec, Vec<Array>)> {
    let dtype = DType::promote(DType::promote(q.dtype(), k.dtype()), v.dtype());
    if !dtype.is_float() {
        return Err(Error::dtype(NAME, "q", "a floating-point type", dtype));
    }
    let mut spec = spec_of(NAME, options)?;
    let mut inputs = Vec::with_capacity(6);
    for x in [q, k, v] {
        inputs.push(x.astype(dtype)?.contiguous()?);
    }
    optional_inputs(NAME, q, dtype, options, &mut spec, &mut inputs)?;
    Ok((spec, inputs))
}

/// What is asked for beside arrays.
fn spec_of(op: &'static str, options: &AttentionOptions<'_>) -> Result<AttentionSpec> {
    let window = match options.window {
        Some(window) => Some(
            usize::try_from(window)
                .map_err(|_| Error::argument(op, "window", "at least 1 key", window))?,
        ),
        None => None,
    };
    Ok(AttentionSpec {
        causal: options.causal,
        window,
        softcap: options.softcap,
        sinks: options.sinks.is_some(),
        ..AttentionSpec::new(options.scale)
    })
}

/// The optional arrays as the operations take them, for queries that are computed with in a dtype.
fn optional_inputs(
    op: &'static str,
    q: &Array,
    dtype: DType,
    options: &AttentionOptions<'_>,
    spec: &mut AttentionSpec,
    inputs: &mut Vec<Array>,
) -> Result<()> {
    if let Some(mask) = options.mask {
        if mask.rank() > 4 {
            return Err(Error::shape(op, "mask", "at most four axes", mask.shape()));
        }
        spec.mask = if mask.dtype() == DType::Bool { MaskKind::Bool } else { MaskKind::Additive };
        let mask = match spec.mask {
            MaskKind::Additive if DType::promote(mask.dtype(), dtype) != dtype => {
                return Err(Error::dtype(op, "mask", dtype, mask.dtype()));
            }
            MaskKind::Additive => mask.astype(dtype)?,
            _ => mask.clone(),
        };
        let shape = [&[1, 1, 1, 1][mask.rank()..], mask.shape()].concat();
        inputs.push(reshape(&mask, &shape)?.contiguous()?);
    }
    if let Some(sinks) = options.sinks {
        if DType::promote(sinks.dtype(), dtype) != dtype {
            return Err(Error::dtype(op, "sinks", dtype, sinks.dtype()));
        }
        inputs.push(sinks.astype(dtype)?.contiguous()?);
    }
    match (options.key_length, options.sequences) {
        (None, None) => {}
        (Some(length), None) => {
            spec.lengths = Lengths::Valid;
            inputs.push(valid_lengths(op, q, length)?);
        }
        (None, Some((query_ends, key_ends))) => {
            spec.lengths = Lengths::Sequences;
            inputs.push(integers(op, "query_ends", query_ends)?.contiguous()?);
            inputs.push(integers(op, "key_ends", key_ends)?.contiguous()?);
        }
        (Some(_), Some(_)) => {
            let expected = "either valid lengths or sequences";
            return Err(Error::argument(op, "key_length", expected, "both"));
        }
    }
    Ok(())
}

/// The valid lengths, one for each batch.
fn valid_lengths(op: &'static str, q: &Array, length: &Array) -> Result<Array> {
    let batch = q.shape().first().copied().unwrap_or(1);
    let length = integers(op, "key_length", length)?;
    match length.shape() {
        &[] | &[1] => crate::ops::broadcast_to(&length, &[batch])?.contiguous(),
        &[own] if own == batch => length.contiguous(),
        other => Err(Error::shape(op, "key_length", format!("[] or [{batch}]"), other)),
    }
}

fn integers(op: &'static str, argument: &str, x: &Array) -> Result<Array> {
    if x.dtype().is_float() || x.dtype() == DType::Bool {
        return Err(Error::dtype(op, argument, "an integer type", x.dtype()));
    }
    // What does not fit becomes a number that is as wrong, and not one that may be right.
    let most = i64::from(i32::MAX);
    let fitting = match x.dtype() {
        DType::I64 => clip(x, Some(-most), Some(most))?,
        DType::U32 | DType::U64 => minimum(x, most)?,
        _ => x.clone(),
    };
    fitting.astype(DType::I32)
}

fn first(op: &'static str, outputs: impl IntoIterator<Item = Array>) -> Result<Array> {
    let missing = || Error::argument(op, "outputs", "an array", "none");
    outputs.into_iter().next().ok_or_else(missing)
}

fn two(op: &'static str, outputs: impl IntoIterator<Item = Array>) -> Result<(Array, Array)> {
    let mut outputs = outputs.into_iter();
    match (outputs.next(), outputs.next()) {
        (Some(first), Some(second)) => Ok((first, second)),
        _ => Err(Error::argument(op, "outputs", "two arrays", "fewer")),
    }
}
